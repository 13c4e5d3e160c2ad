import json
import math
import threading

import pytest
import torch
from training_kit import At, Book, HalfTrainer, Tape, tape, trainer, until, weights

from trainer_agent.hf import LossGuardCallback, guarded_train, guarding
from trainer_agent.measuring.probes import Probes
from trainer_agent.policy import Policy
from trainer_agent.training import opening
from trainer_agent.training.session import Session
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, EndReason, Phase, SegmentCause


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def poison(model=None, **_):
    with torch.no_grad():
        model.transformer.wte.weight[0, 0] = math.nan


def states(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("strategy", ["steps", "no"])
def test_stop_ends_at_the_first_boundary_with_a_checkpoint(taped, tmp_path, alone, strategy):
    book = Book()
    callbacks = [book, At(4, taped.stop), *([LossGuardCallback()] if alone else [])]
    training = trainer(tmp_path, *callbacks, max_steps=50, save_strategy=strategy, save_steps=20)
    output = training.train() if alone else guarded_train(training)
    assert output.global_step == 4
    assert book.steps == [1, 2, 3, 4]
    assert (tmp_path / "checkpoint-4" / "trainer_state.json").is_file()
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert (taped.reports[-1].step, taped.reports[-1].checkpoint_id) == (4, "checkpoint-4")
    assert taped.checkpoints[-1].state is CheckpointState.COMPLETE
    assert (taped.end.reason, taped.end.step) == (EndReason.STOPPED_BY_COMMAND, 4)


def test_a_stop_whose_save_fails_is_told_as_failed_and_the_error_passes_through(taped, tmp_path):
    training = trainer(tmp_path, At(3, taped.stop), max_steps=9)

    def broken(*args, **kwargs):
        raise RuntimeError("this model cannot be saved")

    training.save_model = broken
    with pytest.raises(RuntimeError, match="cannot be saved"):
        guarded_train(training)
    assert states(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert (taped.end.reason, taped.end.detail) == (EndReason.FAILED, "RuntimeError")


def test_a_command_the_policy_does_not_obey_is_rejected_and_training_goes_on(taped, tmp_path):
    output = guarded_train(trainer(tmp_path, At(3, taped.stop)), Policy(obey=()))
    assert output.global_step == 6
    assert states(taped) == [CommandState.REJECTED]
    assert taped.end.reason is EndReason.FINISHED


@pytest.mark.parametrize("alone", [False, True])
def test_a_dead_run_is_stopped_and_saves_nothing_and_the_terminal_says_why(taped, tmp_path, capsys, alone):
    callbacks = [At(3, poison), *([LossGuardCallback()] if alone else [])]
    training = trainer(tmp_path, *callbacks, max_steps=9, save_steps=3)
    output = training.train() if alone else guarded_train(training)
    assert output.global_step == 3
    assert not list(tmp_path.glob("checkpoint-*"))
    assert taped.end.reason is EndReason.STOPPED_BY_GUARD
    assert "not finite at step 3" in taped.end.detail
    assert f"was stopped at step 3: {taped.end.detail}" in capsys.readouterr().err


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
def test_weights_that_are_not_finite_are_never_saved(taped, tmp_path, strategy):
    """The weights go bad in the update itself, so no loss has told yet."""
    from training_kit import Rows

    class Late(At):
        def on_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step + 1 == self.step:
                self.call(**kwargs)

        def on_step_begin(self, args, state, control, **kwargs):
            pass

    late = Late(4, poison)
    guarded_train(trainer(tmp_path, late, data=Rows(16), max_steps=8, save_steps=4, save_strategy=strategy))
    assert not list(tmp_path.glob("checkpoint-*"))
    assert taped.end.reason is EndReason.STOPPED_BY_GUARD


def test_a_run_that_is_only_watched_goes_on_dead_and_saves_what_it_likes(taped, tmp_path):
    output = guarded_train(trainer(tmp_path, At(2, poison), max_steps=4, save_steps=4), Policy.watch_only())
    assert output.global_step == 4
    assert taped.checkpoints[-1].nonfinite_weights > 0
    assert "dead" in taped.checkpoints[-1].sick_because
    assert taped.end.reason is EndReason.FINISHED


class Sick(HalfTrainer):
    """Every gradient is infinite from `bad` on: the loss stays finite and the scaler skips every step."""

    bad = 4
    after = 10_000

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.bad <= self.state.global_step + 1 <= self.after:
            next(model.parameters()).grad[0, 0] = math.inf
        return loss


def test_skipped_steps_in_a_row_are_a_dead_run_beyond_the_search_for_a_scale(taped, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer_agent.measuring.guard.SEARCH_STEPS", 2)
    output = guarded_train(trainer(tmp_path, kind=Sick, fp16=True, max_steps=20))
    assert output.global_step == 6
    assert "3 steps in a row without an update, since step 4" in taped.end.detail
    assert all(math.isfinite(loss) for loss in taped.series(series.LOSS).values())


def test_a_held_run_waits_for_a_command_and_goes_on_after_a_rollback(taped, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer_agent.measuring.guard.SEARCH_STEPS", 2)

    class Once(Sick):
        after = 6

        def training_step(self, model, inputs, num_items_in_batch=None):
            if len(taped.segments) > 1:
                self.bad = 10_000
            return super().training_step(model, inputs, num_items_in_batch)

    def person():
        until(lambda: taped.phases[-1:] == [Phase.HOLDING])
        taped.rollback(2)

    clicking = threading.Thread(target=person)
    clicking.start()
    training = trainer(tmp_path, kind=Once, fp16=True, max_steps=8, save_steps=2)
    output = guarded_train(training, Policy(on_dead="hold", hold_seconds=60))
    clicking.join()
    assert output.global_step == 8
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert [segment.from_step for segment in taped.segments] == [0, 2]
    assert taped.end.reason is EndReason.FINISHED
    assert torch.isfinite(weights(training)).all()


def test_a_held_run_is_stopped_when_nobody_says_anything(taped, tmp_path, capsys):
    output = guarded_train(trainer(tmp_path, At(2, poison)), Policy(on_dead="hold", hold_seconds=0.05))
    assert output.global_step == 2
    assert Phase.HOLDING in taped.phases
    assert taped.end.reason is EndReason.STOPPED_BY_GUARD
    assert "held for 0.05 s" in taped.end.detail
    assert "waits up to 0.05 s for a command" in capsys.readouterr().err


def test_a_stop_of_a_held_run_saves_nothing_and_says_so(taped, tmp_path):
    taped_stop = At(2, lambda **kw: (poison(**kw), taped.stop()))
    guarded_train(trainer(tmp_path, taped_stop), Policy(on_dead="hold", hold_seconds=30))
    assert states(taped) == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert taped.reports[-1].checkpoint_id is None
    assert "nothing was saved" in taped.reports[-1].reason
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_the_training_passes_through_unchanged_and_is_told(taped, tmp_path, error):
    def burst(**_):
        raise error

    training = trainer(tmp_path, At(3, burst))
    with pytest.raises(type(error)) as caught:
        guarded_train(training)
    assert caught.value is error
    detail = "SystemExit 3" if isinstance(error, SystemExit) else type(error).__name__
    assert (taped.end.reason, taped.end.detail, taped.end.step) == (EndReason.FAILED, detail, 2)


def test_the_trainer_is_left_as_it_was_found(taped, tmp_path):
    training = trainer(tmp_path, max_steps=2)
    before, callbacks = set(vars(training)), list(training.callback_handler.callbacks)
    guarded_train(training)
    assert "training_step" not in vars(training)
    assert "get_train_dataloader" not in vars(training)
    assert "clip_grad_norm_" not in vars(training.accelerator)
    assert training.callback_handler.callbacks == callbacks
    assert not training.model._forward_hooks
    assert before <= set(vars(training))


BREAKABLE = [
    (Probes, "attach"),
    (Probes, "take_loss"),
    (Probes, "take_norm"),
    (Probes, "end_step"),
    (Probes, "_before_forward"),
    (Session, "segment_begins"),
    (Session, "step_ended"),
    (Session, "saved"),
    (Session, "evaluated"),
    (Session, "finished"),
    (guarding, "open_session"),
    (opening, "Monitor"),
]


@pytest.mark.parametrize(("owner", "name"), BREAKABLE, ids=[name for _, name in BREAKABLE])
def test_an_error_of_our_own_never_reaches_the_training(taped, tmp_path, monkeypatch, owner, name):
    def broken(*args, **kwargs):
        raise RuntimeError("broken inside")

    monkeypatch.setattr(owner, name, broken)
    training = trainer(tmp_path, max_steps=3, save_steps=2)
    assert guarded_train(training).global_step == 3
    assert torch.isfinite(weights(training)).all()


def test_training_in_the_same_folder_again_takes_up_the_run_in_a_new_segment(taped, tmp_path):
    book = Book()
    with pytest.raises(RuntimeError):
        guarded_train(trainer(tmp_path, At(6, lambda **_: (_ for _ in ()).throw(RuntimeError())), max_steps=9, save_steps=2))
    guarded_train(
        trainer(tmp_path, book, At(8, lambda **_: taped.rollback(2)), max_steps=9, save_steps=2), resume_from_checkpoint=True
    )
    first, second = taped.monitors
    assert first.start.run_id == second.start.run_id
    assert first.start.incarnation != second.start.incarnation
    causes = [(segment.segment, segment.cause, segment.from_step, segment.parent) for segment in taped.segments]
    assert causes == [(1, SegmentCause.START, 0, None), (2, SegmentCause.RESTART, 4, 1), (3, SegmentCause.ROLLBACK, 2, 2)]
    assert book.steps == [5, 6, 7, 8, *range(3, 10)]  # checkpoint-2 is of the first life of the run


def test_training_from_scratch_in_an_old_folder_is_a_new_run(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=2, save_steps=2))
    guarded_train(trainer(tmp_path, At(2, lambda **_: taped.rollback(2)), max_steps=3, save_steps=9))
    first, second = taped.monitors
    assert first.start.run_id != second.start.run_id
    assert taped.segments[-1].segment == 1
    assert states(taped)[-1] is CommandState.REJECTED  # the checkpoint there is another run's


def test_a_run_id_that_was_given_is_used(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=1), run_id="mine-1", name="a name", project="p")
    start = taped.monitor.start
    assert (start.run_id, start.name, start.project) == ("mine-1", "a name", "p")
    assert json.loads((tmp_path / ".lossguard" / "run.json").read_text())["run_id"] == "mine-1"


def test_a_start_says_what_is_trained_and_how(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=2), Policy(automatic_rollback=True))
    start = taped.monitor.start
    assert (start.total_steps, start.integration, start.automatic_rollback) == (2, "transformers", True)
    assert start.capabilities == tuple(CommandKind)
    assert start.attributes["model"] == "GPT2LMHeadModel"
    assert start.attributes["optimizer"] == "adamw_torch_fused"
    assert start.name == tmp_path.name


def test_steps_of_epochs_are_counted_as_the_trainer_counts_them(taped, tmp_path):
    from training_kit import Rows

    training = trainer(tmp_path, max_steps=-1, num_train_epochs=1.5, data=Rows(22), gradient_accumulation_steps=2)
    output = guarded_train(training)
    assert taped.monitor.start.total_steps == output.global_step == 5


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: guarded_train("trainer"), TypeError),
        (lambda t: guarded_train(t, "stop"), TypeError),
        (lambda t: guarded_train(trainer(t.args.output_dir, LossGuardCallback())), ValueError),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_the_training(taped, tmp_path, call, error):
    with pytest.raises(error):
        call(trainer(tmp_path))
    assert not taped.monitors
