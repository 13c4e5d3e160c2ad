"""A rollback of a hand-written loop that leaves samples out equals, to the last bit, a loop whose batches never had them."""

import random
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

sys.path.append(str(Path(__file__).parents[1] / "loops"))
from loops_kit import BATCH, ROWS, Training, rows, tape

from trainer_agent.data import carried, weightless
from trainer_agent.wire.vocabulary import CommandState, DataMode

SPREAD = (3, 8, 11, 12, 19, 25, 26, 31)


@pytest.fixture
def taped(monkeypatch, tmp_path):
    return tape(monkeypatch, tmp_path)


def noisy(items):
    """A collator that draws from the random states of Python and NumPy."""
    made = torch.stack([row for (row,) in items]).clone()
    made[:, 1] += random.random() + float(np.random.rand())  # noqa: NPY002  what scripts do
    return (made,)


class Without(BatchSampler):
    """Batches in the order that the loader draws, without some samples from a batch on; those left empty do not come."""

    def __init__(self, data, bad, epoch, place):
        super().__init__(RandomSampler(data), BATCH, drop_last=False)
        self.bad, self.begins, self.epoch = frozenset(bad), (epoch, place), 0

    def __iter__(self):
        for place, batch in enumerate(super().__iter__()):
            kept = [row for row in batch if row not in self.bad] if (self.epoch, place) >= self.begins else batch
            if kept:
                yield kept
        self.epoch += 1


def shuffled(sampler=None, **more):
    data = TensorDataset(rows())
    if sampler is not None:
        return DataLoader(data, batch_sampler=sampler(data), collate_fn=noisy)
    return DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=noisy, **more)


def exclude(taped, samples, target=4, name="c1"):
    return lambda: taped.rollback(target, name, DataMode.EXCLUDE, exclude_samples=tuple(samples))


def same(guarded, reference, left, target):
    """What came after the rollback is what came after its target in the reference."""
    assert guarded.rows_of[left:] == reference.rows_of[target:]
    assert [loss for _, loss in guarded.losses[left:]] == [loss for _, loss in reference.losses[target:]]
    assert guarded.norms[left:] == reference.norms[target:]
    assert guarded.rates[left:] == reference.rates[target:]
    assert guarded.scaler.get_scale() == reference.scaler.get_scale()
    assert torch.equal(guarded.weights, reference.weights)


@pytest.mark.parametrize("whole", [False, True])
def test_exclude_equals_a_loop_that_never_had_the_samples(taped, tmp_path, whole):
    """Shuffled, three epochs, a noisy collator; `whole` leaves a whole batch of the first epoch out besides."""
    seen = Training().over(shuffled())
    bad = {*SPREAD, *(seen.rows_of[5] if whole else ())}
    reference = Training()
    loader = shuffled(lambda data: Without(data, bad, 0, 4))
    for _ in range(3):
        reference.over(loader)
    guarded = Training(at={7: exclude(taped, bad)})
    with guarded.watch(tmp_path, save_every=2) as run:
        guarded.over(run.batches(shuffled(), epochs=3), run)
    assert [report.state for report in taped.reports][-1] is CommandState.SUCCEEDED
    assert len(guarded.rows_of) - 7 == len(reference.rows_of) - 4
    assert (len(reference.rows_of) < 30) is whole
    same(guarded, reference, 7, 4)


def test_what_was_left_out_of_a_loop_stays_out_after_a_restart_and_a_later_rollback(taped, tmp_path):
    reference = Training()
    loader = shuffled(lambda data: Without(data, SPREAD, 0, 4))
    for _ in range(2):
        reference.over(loader)
    first = Training(at={7: exclude(taped, SPREAD)})
    with first.watch(tmp_path, save_every=2) as run:
        first.over(run.batches(shuffled(), 8, epochs=2), run)
    second = Training(seed=9, at={3: lambda: taped.rollback(8, "c2")})
    with second.watch(tmp_path, save_every=2, resume=True) as run:
        assert run.step == 8
        second.over(run.batches(shuffled(), epochs=2), run)
    assert taped.reports[-1].state is CommandState.SUCCEEDED
    same(second, reference, 3, 8)


class Accumulating(Training):
    """Three batches make a step. A stand-in gets a loss that is not finite."""

    def micro(self, batch, weight):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(self.model(batch / ROWS).squeeze(1), batch.sum(1) / ROWS)
        if not weight:
            loss = loss * torch.inf
        self.scaler.scale(loss * weight / 3).backward()
        return loss

    def step(self):
        self.scaler.unscale_(self.optimizer)
        self.norms.append(float(nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)))
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        if len(self.norms) in self.at:
            self.at[len(self.norms)]()

    def guarded(self, run, loader, *, weighted=True):
        for number, (batch,) in enumerate(run.batches(loader, epochs=1, weighted=weighted)):
            self.rows_of.append([int(row) for row in batch[:, 0]] if run.weight else [])
            loss = self.micro(batch, run.weight)
            if number % 3 == 2:
                self.step()
                run.step_ended(loss=loss)


ONE = range(20, 24)  # a batch in the middle of the second step of three


def in_order():
    return DataLoader(TensorDataset(rows()[:36]), batch_size=BATCH, collate_fn=noisy)


def check_accumulated(taped, tmp_path):
    """Steps 1, 2 | back to 1 | step 2 without its middle batch, which the others count for, and step 3."""
    reference = Accumulating()
    iter(in_order())  # a loader draws once when it begins
    for step in range(3):
        batches = [list(range(at, at + BATCH)) for at in range(step * 12, step * 12 + 12, BATCH)]
        kept = [batch for batch in batches if batch[0] not in ONE]
        for batch in kept:
            reference.micro(noisy([(rows()[row],) for row in batch])[0], 3 / len(kept))
        reference.step()
    guarded = Accumulating(at={2: exclude(taped, ONE, target=1)})
    with guarded.watch(tmp_path, save_every=1) as run:
        guarded.guarded(run, in_order())
    assert taped.reports[-1].state is CommandState.SUCCEEDED
    assert guarded.rows_of[6:] == [[*range(12, 16)], [*range(16, 20)], [], *([*range(at, at + 4)] for at in (24, 28, 32))]
    assert guarded.norms[2:] == reference.norms[1:]
    assert guarded.rates[2:] == reference.rates[1:]
    assert torch.equal(guarded.weights, reference.weights)


def test_a_batch_left_empty_in_a_step_of_three_leaves_nothing_behind(taped, tmp_path):
    check_accumulated(taped, tmp_path)


def keeps_the_gradients(monkeypatch):
    let_through = SimpleNamespace(zeros_like=lambda gradient: gradient, no_grad=torch.no_grad)
    monkeypatch.setattr(weightless, "torch", let_through)


def draws_for_a_stand_in(monkeypatch):
    monkeypatch.setattr(carried, "unmoved", nullcontext)


@pytest.mark.parametrize("broken", [keeps_the_gradients, draws_for_a_stand_in])
def test_the_check_of_an_empty_batch_can_fail(taped, tmp_path, monkeypatch, broken):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_accumulated(taped, tmp_path)


def test_the_check_of_the_random_state_of_a_stand_in_can_fail(taped, tmp_path, monkeypatch):
    monkeypatch.setattr(weightless.Weightless, "end", forgetful(weightless.Weightless.end))
    with pytest.raises(AssertionError):
        check_accumulated(taped, tmp_path)


def forgetful(end):
    def without_random_state(self):
        now = weightless.randomness.capture()
        end(self)
        weightless.randomness.restore(now)

    return without_random_state


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        (
            lambda run, training: training.guarded(run, in_order(), weighted=False),
            "multiply the loss of each batch by run.weight",
        ),
        (lambda run, training: training.draws(run.steps(6), run), "use run.batches"),
    ],
)
def test_a_loop_that_cannot_leave_samples_out_says_what_to_do(taped, tmp_path, over, reason):
    training = Accumulating(at={2: exclude(taped, ONE, target=1)})
    with training.watch(tmp_path, save_every=1) as run:
        over(run, training)
    assert taped.reports[-1].state is CommandState.REJECTED
    assert reason in taped.reports[-1].reason
