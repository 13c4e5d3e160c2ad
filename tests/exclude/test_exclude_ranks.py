"""Two ranks over gloo: where one rank's batch is left empty, it takes part and teaches nothing. The reference is one process."""

import os
import sys
from functools import partial
from pathlib import Path

import forked
import pytest
import torch
from exclude_kit import Papers
from exclude_ranks import BAD, BAD_OF_LOOP, LAST, SERIES, TARGET, Loop, rows
from exclude_reference import Reference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of the trainings of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    more = {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(folder),
        "LOGLEVEL": "ERROR",
    }
    command = [sys.executable, str(Path(__file__).with_name("exclude_ranks.py")), str(folder)]
    done = forked.run(command, env=kept | more)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def left_by(folder):
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]


class Apart:
    """The random states of two ranks in one process."""

    def __init__(self, states):
        self.states = states

    def of(self, rank, call):
        torch.set_rng_state(self.states[rank])
        result = call()
        self.states[rank] = torch.get_rng_state()
        return result


def averaged(model, gradients):
    """As DDP averages over two ranks; None of one on which nothing counts."""
    for weight, *parts in zip(model.parameters(), *gradients, strict=True):
        weight.grad = sum(part / 2 for part in parts if part is not None)


def taken(model, call, *given):
    """Loss and gradients of one rank."""
    loss = call(*given)
    gradients = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    return loss, gradients


def test_a_rank_without_a_batch_takes_part_in_the_trainer_and_teaches_nothing(ran, tmp_path):
    told = left_by(ran / "trainer")
    assert told[0]["reports"][-1][0] == "succeeded"
    assert torch.equal(told[0]["weights"], told[1]["weights"])
    data, checkpoint = Papers(80, BAD), ran / "trainer" / "out" / f"checkpoint-{TARGET}"
    reference = Reference(tmp_path / "reference", data, LAST)
    reference.load(checkpoint, rank=0)
    apart = Apart([torch.load(checkpoint / f"rng_state_{rank}.pth", weights_only=False)["cpu"] for rank in range(2)])
    for step in range(TARGET, LAST):
        batches = [list(range(step * 8 + at, step * 8 + at + 4)) for at in (0, 4)]
        kept = [(rank, batch) for rank, batch in enumerate(batches) if batch[0] not in BAD]
        items = torch.tensor(sum(len(batch) for _, batch in kept) * data[0]["input_ids"].numel())
        found = [apart.of(rank, partial(taken, reference.model, reference.backward, batch, items, 2)) for rank, batch in kept]
        averaged(reference.model, [gradients for _, gradients in found])
        reference.update([loss for (rank, _), (loss, _) in zip(kept, found, strict=True) if rank == 0])
    steps = range(TARGET + 1, LAST + 1)
    wanted = (reference.losses, reference.norms, reference.rates)
    assert [[told[0]["series"][name][step] for step in steps] for name in SERIES[:3]] == list(wanted)
    assert [told[0]["series"]["amp/loss_scale"][step] for step in steps][1:] == reference.scales[:-1]
    assert torch.equal(told[0]["weights"], torch.cat([weight.detach().flatten() for weight in reference.model.parameters()]))


def test_a_rank_without_a_batch_takes_part_in_a_loop_and_teaches_nothing(ran):
    """The loss of the stand-in is infinite, and its forward pass would move the averages of a batch norm."""
    told = left_by(ran / "loop")
    assert told[0]["reports"][-1][0] == "succeeded"
    loops = [Loop(), Loop()]  # two, because each rank keeps averages of its own
    apart = Apart([])
    for rank in range(2):
        torch.manual_seed(rank)
        torch.empty((), dtype=torch.int64).random_()  # a loader draws once when it begins
        apart.states.append(torch.get_rng_state())
    norms = []
    for step in range(LAST):
        batches = [list(range(step * 8 + rank, step * 8 + 8, 2)) for rank in range(2)]
        kept = [(rank, batch) for rank, batch in enumerate(batches) if batch[0] not in BAD_OF_LOOP]
        weight = 2 / len(kept)
        halves = [
            apart.of(rank, partial(taken, loops[rank].model, loops[rank].loss, loops[rank].model, rows()[batch], weight))
            for rank, batch in kept
        ]
        gradients = [half for _, half in halves]
        for loop in loops:
            averaged(loop.model, gradients)
            norm = loop.update()
        norms.append(float(norm))
        if step + 1 == TARGET:  # a checkpoint of a loop holds the averages of rank 0
            for ours, theirs in zip(loops[1].model.buffers(), loops[0].model.buffers(), strict=True):
                ours.copy_(theirs)
    assert [told[0]["series"]["train/grad_norm"][step] for step in range(TARGET + 1, LAST + 1)] == norms[TARGET:]
    for rank, loop in enumerate(loops):
        left = torch.cat([part.detach().flatten() for part in [*loop.model.parameters(), *loop.model.buffers()]])
        assert torch.equal(told[rank]["weights"], left)
