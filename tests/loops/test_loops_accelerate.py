"""Checkpoints in accelerate's own layout: exact with LossGuard, of use without, and refused whole where they do not fit."""

import os
import shutil

import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from accelerate_kit import ACCUMULATION, Accelerated
from loops_kit import BATCH, ROWS, Tape, Training, loader, tape
from torch.utils.data import DataLoader

from trainer_agent.data.plan import DataPlan
from trainer_agent.loop import HalfLoaded
from trainer_agent.loop.accelerate import AcceleratedState
from trainer_agent.loop.batches import Batches
from trainer_agent.loop.state import CannotLoad
from trainer_agent.wire.vocabulary import CheckpointState, CommandState, DataMode

BATCHES = ROWS // BATCH
EPOCH = BATCHES // ACCUMULATION


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def states(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name and report.state != CommandState.DELIVERED]


def over(training: Accelerated, run, epochs: int) -> Accelerated:
    return training.over(run.batches(training.loader, epochs=epochs), run)


@pytest.mark.parametrize("back_to", [2, EPOCH, EPOCH + 2])
def test_a_replay_through_accelerates_own_load_equals_a_straight_run_to_the_last_bit(taped, tmp_path, back_to):
    """Dropout, batch norm, tied weights, scaler, accumulation, and an object that was registered with the accelerator."""
    straight = Accelerated()
    straight.over(batch for _ in range(2) for batch in straight.loader)
    again = Accelerated()
    left, back = ACCUMULATION * (EPOCH + 3), ACCUMULATION * back_to
    again.at[left] = lambda: taped.rollback(back_to)
    with again.watch(tmp_path, save_every=1, keep=100) as run:
        over(again, run, 2)
    assert again.losses == straight.losses[:left] + straight.losses[back:]
    assert again.averages == straight.averages[:left] + straight.averages[back:]
    assert torch.equal(again.weights, straight.weights)
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert taped.reports[-1].weights_sha256


def test_a_resumed_training_equals_an_unbroken_one_to_the_last_bit(taped, tmp_path):
    straight = Accelerated()
    straight.over(batch for _ in range(2) for batch in straight.loader)
    first = Accelerated()
    with first.watch(tmp_path, save_every=4) as run:
        first.over(run.batches(first.loader, max_steps=8), run)
    second = Accelerated(seed=9)
    with second.watch(tmp_path, save_every=4, resume=True) as run:
        assert run.step == 8
        over(second, run, 2)
    assert first.losses + second.losses == straight.losses
    assert torch.equal(second.weights, straight.weights)


def test_a_checkpoint_serves_without_lossguard(taped, tmp_path):
    """`accelerator.load_state` and its own `skip_first_batches`, as the documentation of accelerate has it."""
    watched = Accelerated(dropout=0.0)
    with watched.watch(tmp_path, save_every=3) as run:
        watched.over(run.batches(watched.loader, max_steps=3), run)
    bare = Accelerated(seed=9, dropout=0.0)
    bare.accelerator.load_state(str(tmp_path / "checkpoint-3"))
    assert torch.equal(bare.weights, watched.weights)
    assert bare.average.state_dict() == watched.average.state_dict()
    assert bare.accelerator.step == 3 * ACCUMULATION
    assert bare.optimizer.state_dict()["param_groups"] == watched.optimizer.state_dict()["param_groups"]
    assert bare.accelerator.scaler.state_dict() == watched.accelerator.scaler.state_dict()
    assert {"model.safetensors", "optimizer.bin", "scheduler.bin", "scaler.pt", "random_states_0.pkl"} <= {
        path.name for path in (tmp_path / "checkpoint-3").iterdir()
    }


def test_such_a_checkpoint_is_inspected_as_any_other(taped, tmp_path):
    training = Accelerated()
    with training.watch(tmp_path, save_every=2) as run:
        training.over(run.batches(training.loader, max_steps=4), run)
    facts = taped.checkpoints[-1]
    assert facts.state is CheckpointState.COMPLETE
    assert set(facts.parts) == {"model", "optimizer", "scheduler", "scaler", "rng", "position"}
    assert (facts.nonfinite_weights, facts.nonfinite_optimizer) == (0, 0)


def test_a_second_model_is_counted_and_comes_back_too(taped, tmp_path):
    training = Accelerated()
    other = training.accelerator.prepare(torch.nn.Linear(2, 2))
    with torch.no_grad():
        other.weight[0, 0] = float("nan")
    with training.watch(tmp_path, save_every=2) as run:
        training.over(run.batches(training.loader, max_steps=2), run)
    assert taped.checkpoints[-1].nonfinite_weights == 1
    with torch.no_grad():
        other.weight.fill_(5.0)
        training.model.head.weight.fill_(5.0)
    run._driver._state.apply(run._driver._state.read(tmp_path / "checkpoint-2"))
    assert torch.isnan(other.weight[0, 0])
    assert not (training.model.head.weight == 5.0).any()


@pytest.mark.parametrize(
    ("change", "said"), [("grown", "it has no more"), ("registered", "1 objects were registered"), ("optimizer", "groups of")]
)
def test_what_accelerates_load_would_break_off_at_is_found_before_anything_is_touched(taped, tmp_path, change, said):
    straight = Accelerated(dropout=0.0)
    straight.over(straight.loader)
    training = Accelerated(dropout=0.0)

    def spoil():
        if change == "grown":
            training.model.register_buffer("more", torch.zeros(2))
        elif change == "registered":
            training.accelerator.register_for_checkpointing(torch.nn.Linear(1, 1))
        else:
            training.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
        taped.rollback(2)

    training.at[6] = spoil
    with training.watch(tmp_path, save_every=2) as run:
        over(training, run, 1)
    assert states(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert said in taped.reports[-1].reason
    assert training.losses == straight.losses


def state_of(training: Accelerated) -> AcceleratedState:
    return AcceleratedState(
        training.model, training.optimizer, training.schedule, training.accelerator.scaler, {}, training.accelerator
    )


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.bin", "scheduler.bin", "scaler.pt", "random_states_0.pkl", "custom_checkpoint_0.pkl"]
)
@pytest.mark.parametrize("how", ["missing", "cut off"])
def test_no_file_that_load_state_needs_goes_unread_beforehand(saved, tmp_path, name, how):
    """Accelerate itself passes over random states that it cannot read, and comes to most files when others are loaded."""
    folder = shutil.copytree(saved, tmp_path / "checkpoint-2")
    (folder / name).unlink() if how == "missing" else os.truncate(folder / name, 60)
    with pytest.raises(CannotLoad, match="checkpoint-2"):
        state_of(Accelerated(seed=4)).read(folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of step 2."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        tape(patch, folder)
        training = Accelerated()
        with training.watch(folder, save_every=2) as run:
            training.over(run.batches(training.loader, max_steps=2), run)
    return folder / "checkpoint-2"


def test_a_load_that_breaks_off_where_nobody_could_look_is_told_as_half(saved):
    """A registered object that does not take its state: only its own code knows."""
    training = Accelerated(seed=4)
    training.average.load_state_dict = lambda state: state["nothing of the kind"]
    state = state_of(training)
    with pytest.raises(HalfLoaded, match="broke off: KeyError"):
        state.apply(state.read(saved))


def test_what_accelerate_has_not_prepared_is_saved_beside_and_comes_back(taped, tmp_path):
    training = Accelerated()
    generator = torch.Generator().manual_seed(3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(training.optimizer.optimizer, 0.99)
    drawn = []

    def draw():
        drawn.append((int(torch.randint(1000, (), generator=generator)), schedule.get_last_lr()))
        if training.accelerator.sync_gradients:
            schedule.step()

    training.at = dict.fromkeys(range(1, 40), draw) | {8: lambda: (draw(), taped.rollback(2))}
    named = {"generator": generator, "average": training.average}
    prepared, training.schedule = training.schedule, schedule
    with training.watch(tmp_path, save_every=2, also=named) as run:
        training.schedule = prepared
        over(training, run, 1)
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED], taped.reports
    assert drawn[8:12] == drawn[4:8]


def test_a_script_that_lets_accelerate_number_its_folders_keeps_its_numbers(taped, tmp_path):
    training = Accelerated()
    settings = training.accelerator.project_configuration
    settings.automatic_checkpoint_naming, settings.project_dir = True, str(tmp_path / "own")
    with training.watch(tmp_path / "out", save_every=2) as run:
        training.over(run.batches(training.loader, max_steps=4), run)
    training.accelerator.save_state()
    assert (tmp_path / "own" / "checkpoints" / "checkpoint_0" / "model.safetensors").exists()
    assert (tmp_path / "out" / "checkpoint-4" / "model.safetensors").exists()


def test_an_accelerator_that_knows_nothing_of_the_training_is_refused_at_the_start(taped, tmp_path):
    training = Accelerated()
    with pytest.raises(TypeError, match=r"accelerate\.Accelerator, not a str"):
        training.watch(tmp_path, accelerator="accelerator")
    bare = training.model
    training.model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="has not prepared this model"):
        training.watch(tmp_path)
    training.model = bare
    training.accelerator._dataloaders[0].use_stateful_dataloader = True
    with pytest.raises(ValueError, match="use_stateful_dataloader must be off"):
        training.watch(tmp_path)


@pytest.mark.parametrize("weighted", [False, True])
def test_exclude_is_offered_over_accumulated_batches_only_where_they_are_weighted(taped, tmp_path, weighted):
    training = Accelerated()
    with training.watch(tmp_path, save_every=1) as run:
        training.over(run.batches(training.loader, max_steps=2, weighted=weighted), run)
    segment = taped.segments[-1]
    assert (DataMode.EXCLUDE in segment.data_modes) is weighted
    assert ("run.weight" in segment.data_modes_because) is not weighted


def test_a_loop_found_to_accumulate_offers_no_exclude_after_its_rollback(taped, tmp_path):
    """Without accelerate nothing tells before the first step of how many batches it is made."""
    training = Training(at={2: lambda: taped.rollback(1)})
    with training.watch(tmp_path, save_every=1) as run:
        for number, (batch,) in enumerate(run.batches(loader(), max_steps=3)):
            if number % 2:
                training.over([(batch,)], run)
    first, second = taped.segments
    assert DataMode.EXCLUDE in first.data_modes
    assert DataMode.EXCLUDE not in second.data_modes
    assert "weighted=True" in second.data_modes_because


@pytest.mark.parametrize("rank", [0, 1])
def test_the_order_that_accelerate_deals_to_two_ranks_is_drawn_again(rank):
    """Among ranks accelerate draws it from a generator of its own, in a sampler that lies two deep."""
    data = DataLoader(torch.arange(40), batch_size=2, shuffle=True)
    batches = Batches(prepare_data_loader(data, num_processes=2, process_index=rank), None, DataPlan(None))
    taken = [batches.take(0).tolist() for _ in range(3)]
    place = batches.place()
    after = [batches.take(0).tolist() for _ in range(20)]
    batches.go_to(place)
    assert [batches.take(0).tolist() for _ in range(20)] == after
    assert len({tuple(each) for each in taken + after[:7]}) == 10, "an epoch gives each batch once"
