"""Where a Trainer goes on when its script is run again, and what becomes of what was begun before."""

import json
import time

import pytest
from commands_kit import DONE, At, Book, at_end, ordered, said, trainer, until
from transformers import Trainer, TrainerCallback

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.commands.going_on import NothingFit
from trainer_agent.commands.journal import Begun, Ended, Intent, Journal, Result
from trainer_agent.data.plan import Cut, DataPlan, to_text
from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.wire import codec
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Reply, Report, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, EndReason, SegmentCause

SETTING = {"max_steps": 6, "save_steps": 2}
NOWHERE = Command("old", CommandKind.ROLLBACK, "dead", 1, 1.0, 1.0)


def first_life(taped, folder, *callbacks, stop_at=5):
    """Checkpoints of steps 2 and 4, and of the step at which it was stopped."""
    guarded_train(trainer(folder, *callbacks, ordered(taped, stop_at, CommandKind.STOP, "first"), **SETTING))
    taped.records.clear()


def second_life(folder, *callbacks, resume: bool | str = True):
    book = Book()
    guarded_train(trainer(folder, book, *callbacks, **SETTING), resume_from_checkpoint=resume)
    return book.steps


def begun(folder, kind, name="old", until_seconds=600.0, changes=()):
    """The process was killed while it did this."""
    run_id = trainer_run(folder)
    DataPlan.open(folder / ".lossguard").add(*changes)
    payload = RollbackPayload("checkpoint-2", 2, 2) if kind is CommandKind.ROLLBACK else None
    command = Command(name, kind, "dead", 1, 600.0, 600.0, rollback=payload)
    now = time.time()
    Journal.open(folder / ".lossguard", run_id).note(Begun(Intent(command, 5, now, now + until_seconds, to_text(changes))))


def trainer_run(folder):
    from trainer_agent.identity import Identity

    return Identity.open(folder / ".lossguard").run_id


def test_it_goes_on_from_the_newest_of_the_stretch_it_went_on_with_not_from_the_highest_number(taped, tmp_path):
    back = At(5, lambda **_: taped.rollback(2))

    class StopsLater(At):
        def on_step_begin(self, args, state, control, **kwargs):
            if len(taped.segments) == 2:
                super().on_step_begin(args, state, control, **kwargs)

    guarded_train(trainer(tmp_path, back, StopsLater(3, lambda **_: taped.stop(name="s")), **SETTING))
    assert (tmp_path / "checkpoint-4").is_dir()
    assert second_life(tmp_path) == [4, 5, 6]
    assert (taped.segments[-1].cause, taped.segments[-1].from_step) == (SegmentCause.RESTART, 3)


def test_a_damaged_one_is_passed_over_for_the_next_older_and_the_reason_is_said(taped, tmp_path, capsys):
    first_life(taped, tmp_path)
    for step in (4, 5):
        path = tmp_path / f"checkpoint-{step}" / "optimizer.pt"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert second_life(tmp_path) == [3, 4, 5, 6]
    assert "passed over: checkpoint-5: optimizer.pt" in capsys.readouterr().err


def test_one_that_the_server_called_unsound_is_passed_over_without_the_server(taped, tmp_path):
    def judged(**_):
        until((tmp_path / "checkpoint-4" / MANIFEST).exists)
        verdicts = (Verdict("checkpoint-4", CheckpointState.UNSOUND, "the loss was rising"),)
        taped.monitor._on_reply(Reply(next_seq=1, verdicts=verdicts))

    first_life(taped, tmp_path, At(5, judged))
    (tmp_path / "checkpoint-5").rename(tmp_path / "elsewhere")
    assert second_life(tmp_path) == [3, 4, 5, 6]


def test_one_that_nobody_inspected_before_the_process_died_is_inspected_now(taped, tmp_path):
    first_life(taped, tmp_path)
    (tmp_path / "checkpoint-5" / MANIFEST).unlink()
    assert second_life(tmp_path) == [6]
    assert (tmp_path / "checkpoint-5" / MANIFEST).is_file()


def test_where_nothing_is_there_it_begins_anew_and_says_so(taped, tmp_path, capsys):
    assert second_life(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert "the training begins anew" in capsys.readouterr().err


def test_where_nothing_is_fit_the_script_is_told_so_before_the_training(taped, tmp_path):
    first_life(taped, tmp_path)
    for step in (2, 4, 5):
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").unlink()
    with pytest.raises(NothingFit, match="checkpoint-5: "):
        second_life(tmp_path)


def test_a_path_is_taken_at_its_word_and_what_was_begun_has_failed(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.ROLLBACK)
    assert second_life(tmp_path, resume=str(tmp_path / "checkpoint-4")) == [5, 6]
    assert said(taped, "old") == [CommandState.FAILED]
    assert "the script says itself where" in at_end(taped, "old").reason
    assert taped.segments[-1].cause is SegmentCause.RESTART


def test_of_a_rollback_that_is_not_brought_to_its_end_the_data_know_nothing(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.ROLLBACK, changes=(Cut(0, 2, 5),))
    assert second_life(tmp_path, resume=str(tmp_path / "checkpoint-4")) == [5, 6]
    assert said(taped, "old") == [CommandState.FAILED]
    assert DataPlan.open(tmp_path / ".lossguard").changes == ()


def test_a_path_may_be_a_path_object_too(taped, tmp_path):
    first_life(taped, tmp_path)
    assert second_life(tmp_path, resume=tmp_path / "checkpoint-2") == [3, 4, 5, 6]


def test_the_path_of_the_target_ends_the_rollback_there(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.ROLLBACK)
    assert second_life(tmp_path, resume=str(tmp_path / "checkpoint-2")) == [3, 4, 5, 6]
    assert said(taped, "old") == [CommandState.SUCCEEDED]


def test_a_rollback_whose_target_is_damaged_meanwhile_fails_with_the_reason_and_an_older_one_is_taken(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.ROLLBACK)
    (tmp_path / "checkpoint-2" / "scheduler.pt").unlink()
    with pytest.raises(NothingFit, match="checkpoint-2"):  # there is none older
        second_life(tmp_path)


def test_a_stop_whose_time_is_over_has_failed_and_the_run_goes_on(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.STOP, until_seconds=0.0)
    assert second_life(tmp_path) == [6]
    assert said(taped, "old") == [CommandState.FAILED]
    assert "its time is over" in at_end(taped, "old").reason


def test_a_stop_in_time_ends_the_run_before_its_first_step(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.STOP)
    assert second_life(tmp_path) == []
    assert (said(taped, "old"), at_end(taped, "old").checkpoint_id) == (DONE, "checkpoint-5")
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND


def test_the_bare_callback_ends_such_a_run_after_one_step(taped, tmp_path):
    first_life(taped, tmp_path)
    begun(tmp_path, CommandKind.STOP)
    book = Book()
    trainer(tmp_path, book, LossGuardCallback(), **SETTING | {"max_steps": 9}).train(resume_from_checkpoint=True)
    assert (book.steps, said(taped, "old")) == ([6], DONE)
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND


class Breaks(TrainerCallback):
    def on_train_end(self, args, state, control, **kwargs):
        raise RuntimeError("the script's own")


class Breaking(Trainer):
    """Cannot load a checkpoint's optimizer."""

    def _load_optimizer_and_scheduler(self, checkpoint):
        if checkpoint is not None:
            raise RuntimeError("no memory")


@pytest.mark.parametrize("place", ["before it is left", "while the target is loaded"])
def test_of_a_rollback_that_failed_with_its_training_the_data_know_nothing(taped, tmp_path, place):
    order = At(4, lambda **_: taped.rollback(2, data=DataMode.EXCLUDE, exclude_samples=(1, 2, 3)))
    more = ([Breaks()], Trainer) if place.startswith("before") else ([], Breaking)
    with pytest.raises(RuntimeError):
        guarded_train(trainer(tmp_path, order, *more[0], kind=more[1], **SETTING))
    assert said(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert DataPlan.open(tmp_path / ".lossguard").changes == ()
    assert Journal.open(tmp_path / ".lossguard", trainer_run(tmp_path)).state.intent is None


@pytest.mark.parametrize("kind", [CommandKind.SAVE, CommandKind.PAUSE])
def test_any_other_command_that_was_under_way_has_failed(taped, tmp_path, kind):
    first_life(taped, tmp_path)
    begun(tmp_path, kind)
    assert second_life(tmp_path) == [6]
    assert said(taped, "old") == [CommandState.FAILED]


def test_the_end_of_the_last_command_is_told_by_every_later_process_because_nobody_may_have_heard_it(taped, tmp_path):
    first_life(taped, tmp_path)
    for _ in range(2):  # one of them may have died before a word of it was sent
        taped.records.clear()
        second_life(tmp_path)
        assert [(each.command_id, each.checkpoint_id) for each in taped.of(Report)] == [("first", "checkpoint-5")]
    taped.records.clear()
    Journal.open(tmp_path / ".lossguard", trainer_run(tmp_path)).note(Ended(Result("r", CommandState.SUCCEEDED, 6)))
    second_life(tmp_path)
    assert [report.command_id for report in taped.of(Report)] == ["r"]


def test_a_journal_that_cannot_be_read_costs_the_run_nothing(taped, tmp_path):
    first_life(taped, tmp_path)
    (tmp_path / ".lossguard" / "journal.json").write_text("{")
    assert second_life(tmp_path) == [6]


@pytest.mark.parametrize(
    "wrong",
    [
        {"overrides": {"learning_rate_factor": "NaN"}},
        {"overrides": {"learning_rate_factor": 0}},
        {"overrides": {"max_grad_norm": "Infinity"}},
        {"intent": {"command": codec.to_json(NOWHERE), "step": 5, "begun_at": 1.0, "until": 2.0}},
    ],
)
def test_a_journal_that_says_what_no_command_can_say_is_not_obeyed(taped, tmp_path, wrong):
    first_life(taped, tmp_path)
    path = tmp_path / ".lossguard" / "journal.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    assert second_life(tmp_path) == [6]
    assert "learning_rate_factor" not in taped.segments[-1].attributes
    assert path.with_name("journal.json.unreadable-1").exists()
