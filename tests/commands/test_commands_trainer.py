"""Commands in a real Trainer, told to the driver and, where it can do them, to the bare callback."""

import dataclasses
import errno
import random
import time

import pytest
import torch
from commands_kit import DONE, At, Book, HalfTrainer, Paused, at_end, ordered, said, trainer, until, weights
from transformers import TrainerCallback

from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.policy import Policy
from trainer_agent.wire import series
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Reply
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason, Phase, SegmentCause

FACTOR, NORM = CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM


def driven(folder, *callbacks, policy=None, **changes):
    made = trainer(folder, *callbacks, **changes)
    guarded_train(made, policy)
    return made


def bare(folder, *callbacks, **changes):
    made = trainer(folder, *callbacks, LossGuardCallback(), **changes)
    made.train()
    return made


# --- save


@pytest.mark.parametrize("train", [driven, bare])
def test_save_now_saves_at_this_boundary_names_the_checkpoint_and_goes_on(taped, tmp_path, train):
    book = Book()
    train(tmp_path, book, ordered(taped, 3, CommandKind.SAVE), max_steps=5)
    assert (said(taped), at_end(taped).checkpoint_id, at_end(taped).step) == (DONE, "checkpoint-3", 3)
    assert (tmp_path / "checkpoint-3" / "optimizer.pt").is_file()
    assert book.steps == [1, 2, 3, 4, 5]
    assert taped.end.reason is EndReason.FINISHED


class Failing(TrainerCallback):
    """The disk is full from a step on. Comes before LossGuard's callback."""

    def __init__(self, training_of, seconds=0.0):
        self.training_of, self.seconds = training_of, seconds

    def on_train_begin(self, args, state, control, **kwargs):
        training = self.training_of()

        def full(*_, **__):
            time.sleep(self.seconds)
            raise OSError(errno.ENOSPC, "No space left on device")

        training.save_model = full


def test_a_save_that_meets_a_full_disk_fails_with_the_reason_and_the_training_goes_on(taped, tmp_path):
    book, made = Book(), []
    made.append(trainer(tmp_path, book, Failing(lambda: made[0]), ordered(taped, 2, CommandKind.SAVE), max_steps=4))
    guarded_train(made[0])
    assert said(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert "space" in at_end(taped).reason
    assert book.steps == [1, 2, 3, 4]


def test_a_stop_whose_save_fails_says_so_and_the_run_stops_all_the_same(taped, tmp_path):
    book, made = Book(), []
    made.append(trainer(tmp_path, book, Failing(lambda: made[0]), ordered(taped, 2, CommandKind.STOP), max_steps=6))
    guarded_train(made[0])
    assert said(taped) == DONE
    assert "nothing was saved" in at_end(taped).reason
    assert at_end(taped).checkpoint_id is None
    assert book.steps == [1, 2]
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND


class SlowSave(TrainerCallback):
    def __init__(self, taped):
        self.taped, self.phase = taped, None

    def on_save(self, args, state, control, **kwargs):
        time.sleep(0.5)
        self.phase = self.taped.monitor._heartbeat().phase


def test_a_stop_whose_save_takes_long_says_saving_meanwhile_and_is_done_when_it_is(taped, tmp_path):
    slow = SlowSave(taped)
    driven(tmp_path, slow, ordered(taped, 2, CommandKind.STOP), max_steps=6)
    assert slow.phase is Phase.SAVING
    assert (said(taped), at_end(taped).checkpoint_id) == (DONE, "checkpoint-2")


# --- pause and resume


@pytest.mark.parametrize("train", [driven, bare])
def test_a_pause_holds_until_resume_and_serves_commands_meanwhile(taped, tmp_path, train):
    book = Book()

    def wait():
        time.sleep(0.4)
        taped.command(CommandKind.RESUME, "resume")

    paused = Paused(
        taped, 2, lambda: taped.command(CommandKind.SAVE, "save"), lambda: taped.command(FACTOR, "factor", 0.5),
        lambda: taped.command(CommandKind.SAVE, "again"), wait,
    )  # fmt: skip
    train(tmp_path, book, paused.at, max_steps=4)
    assert not paused.problem
    assert {name: said(taped, name) for name in ("pause", "save", "factor", "again", "resume")} == dict.fromkeys(
        ("pause", "save", "factor", "again", "resume"), DONE
    )
    assert {at_end(taped, "save").checkpoint_id, at_end(taped, "again").checkpoint_id} == {"checkpoint-2"}
    assert book.steps == [1, 2, 3, 4]
    assert taped.phases.index(Phase.PAUSED) < len(taped.phases) - 1
    assert taped.series(series.STEP_SECONDS)[3] < 0.4, "a pause belongs to no step"


def test_a_stop_in_a_pause_saves_and_stops_there(taped, tmp_path):
    book, paused = Book(), Paused(taped, 2, lambda: taped.stop(name="stop"))
    driven(tmp_path, book, paused.at, max_steps=6)
    assert not paused.problem
    assert (said(taped, "stop"), at_end(taped, "stop").checkpoint_id) == (DONE, "checkpoint-2")
    assert book.steps == [1, 2]
    assert taped.end.reason is EndReason.STOPPED_BY_COMMAND


def test_a_rollback_in_a_pause_goes_back_and_the_run_is_not_paused_any_more(taped, tmp_path):
    book, paused = Book(), Paused(taped, 4, lambda: taped.rollback(2, "back"))
    driven(tmp_path, book, paused.at, max_steps=5, save_steps=2)
    assert not paused.problem
    assert said(taped, "back") == DONE
    assert book.steps == [1, 2, 3, 4, 3, 4, 5]


def test_what_a_pause_refuses_leaves_it_a_pause(taped, tmp_path):
    def bad():
        taped.rollback(77, "bad")

    paused = Paused(
        taped, 2, lambda: taped.command(CommandKind.PAUSE, "twice"), bad, lambda: taped.command(CommandKind.RESUME, "resume")
    )
    driven(tmp_path, paused.at, max_steps=3)
    assert not paused.problem
    assert said(taped, "twice") == said(taped, "bad") == [CommandState.REJECTED]
    assert said(taped, "resume") == DONE


# --- setters


class Reference(TrainerCallback):
    """Halves the rate from a step on, the way a script would: in the schedule itself."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, lr_scheduler=None, optimizer=None, **kwargs):
        if state.global_step == self.step:
            lr_scheduler.base_lrs = [rate * 0.5 for rate in lr_scheduler.base_lrs]
            for group in optimizer.param_groups:
                group["lr"] *= 0.5


@pytest.mark.parametrize(
    "setting",
    [
        {"optim": "adamw_torch"},
        {"optim": "adamw_torch_fused", "kind": HalfTrainer, "fp16": True},
        {"optim": "adamw_torch", "kind": HalfTrainer, "fp16": True},
    ],
    ids=["plain", "fused with a scaler", "not fused with a scaler"],
)
def test_a_factor_equals_a_schedule_with_that_factor_to_the_last_bit(taped, tmp_path, setting):
    setting |= {"max_steps": 6, "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 4, "save_steps": 5}
    scaled = driven(tmp_path / "a", ordered(taped, 3, FACTOR, value=0.5), **setting)
    straight = trainer(tmp_path / "b", Reference(3), **setting)
    straight.train()
    assert torch.equal(weights(scaled), weights(straight))
    assert said(taped) == DONE
    assert at_end(taped).reason == "the learning rate is the schedule's times 0.5 from step 4 on"
    rates = taped.series(series.LEARNING_RATE)
    assert [rates[step] for step in (3, 4, 5)] == [5e-4, 7.5e-4 / 2, 1e-3 / 2], "the series shows what the update was made with"
    kept = torch.load(tmp_path / "a/checkpoint-5/optimizer.pt", weights_only=True)
    assert kept["param_groups"][0]["lr"] == 1e-3, "a checkpoint holds the schedule's own"


def test_a_norm_clips_from_the_next_update_on_and_the_scripts_own_comes_back(taped, tmp_path):
    made = driven(tmp_path / "a", ordered(taped, 2, NORM, value=0.01), max_steps=4, max_grad_norm=0)
    straight = trainer(
        tmp_path / "b", At(3, lambda **_: setattr(straight.args, "max_grad_norm", 0.01)), max_steps=4, max_grad_norm=0
    )
    straight.train()
    assert torch.equal(weights(made), weights(straight))
    assert (said(taped), made.args.max_grad_norm) == (DONE, 0)


def test_a_rollback_to_a_segment_far_off_is_refused_because_the_run_would_have_no_numbers_left(taped, tmp_path):
    book = Book()
    driven(tmp_path, book, At(4, lambda **_: taped.rollback(2, new_segment=2**53 - 1)), max_steps=5, save_steps=2)
    assert said(taped) == [CommandState.REJECTED]
    assert book.steps == [1, 2, 3, 4, 5]


def test_a_rollback_with_a_factor_and_a_norm_says_both_in_its_segment(taped, tmp_path):
    order = At(4, lambda **_: taped.rollback(2, learning_rate_factor=0.5, max_grad_norm=0.25))
    driven(tmp_path, order, max_steps=5, save_steps=2, lr_scheduler_type="constant")
    told = taped.segments[1].attributes
    assert (told["learning_rate_factor"], told["max_grad_norm"]) == (0.5, 0.25)
    assert taped.series(series.LEARNING_RATE, 2) == dict.fromkeys((3, 4, 5), 5e-4)


def test_overrides_survive_a_restart_and_are_told_in_its_segment(taped, tmp_path):
    setting = {"max_steps": 6, "save_steps": 3, "lr_scheduler_type": "constant"}
    sets = (ordered(taped, 1, FACTOR, "f", 0.5), ordered(taped, 2, NORM, "n", 0.25), ordered(taped, 3, CommandKind.STOP, "s"))
    driven(tmp_path, *sets, **setting)
    again = trainer(tmp_path, **setting)
    guarded_train(again, resume_from_checkpoint=True)
    told = taped.segments[-1]
    assert (told.cause, told.from_step) == (SegmentCause.RESTART, 3)
    assert (told.attributes["learning_rate_factor"], told.attributes["max_grad_norm"]) == (0.5, 0.25)
    assert taped.series(series.LEARNING_RATE, told.segment) == dict.fromkeys((4, 5, 6), 5e-4)
    assert again.args.max_grad_norm == 1.0


# --- fences


def test_a_command_given_before_the_loop_of_a_restart_begins_is_done(taped, tmp_path):
    class Early(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            taped.monitor.goes_on = taped.monitor.segment
            taped.stop()

    setting = {"max_steps": 6, "save_steps": 2}
    driven(tmp_path, ordered(taped, 2, CommandKind.STOP, "first"), **setting)
    book = Book()
    guarded_train(trainer(tmp_path, book, Early(), **setting), resume_from_checkpoint=True)
    assert said(taped) == DONE
    assert book.steps == [3]


def test_a_command_whose_time_has_run_out_is_never_done(taped, tmp_path, figure):
    book = Book()

    def late(**_):
        at = taped.monitor
        command = Command("c1", CommandKind.STOP, at.start.incarnation, at.segment, 600.0, 0.01)
        at._on_reply(Reply(next_seq=1, commands=(command,)))
        time.sleep(0.05)

    driven(tmp_path, book, At(2, late), max_steps=4)
    assert [receipt.state for receipt in taped.receipts] == [CommandState.DELIVERED, CommandState.REJECTED]
    figure("F45", "commands done after their time", len(book.steps) - 4, at_most=0, at_least=0)


def test_the_same_rollback_delivered_twice_is_one_segment(taped, tmp_path):
    book = Book()

    def twice(**_):
        taped.rollback(2)
        taped.rollback(2)
        taped.rollback(2, "c2")  # another one into the same segment

    driven(tmp_path, book, At(4, twice), max_steps=5, save_steps=2)
    assert [told.segment for told in taped.segments] == [1, 2]
    assert said(taped, "c1") == DONE
    assert [each.state for each in taped.receipts if each.command_id == "c2"] == [CommandState.DELIVERED, CommandState.REJECTED]
    assert book.steps == [1, 2, 3, 4, 3, 4, 5]


def forged(made: random.Random, incarnation: str, number: int) -> Command:
    """A command that is wrong in one way at least."""
    kind = made.choice(list(CommandKind))
    payload = RollbackPayload(made.choice(["checkpoint-2", "../x", "/etc/passwd", "checkpoint-99"]), 2, 2)
    command = Command(f"f{number}", kind, incarnation, 1, 60.0, 60.0, rollback=payload if kind is CommandKind.ROLLBACK else None)
    bad = made.choice([float("nan"), float("inf"), -1.0, 0.0])
    wrong = made.choice(
        [
            {"incarnation": made.randbytes(8).hex()},
            {"segment": made.choice([0, 2, 3, 99])},
            {"deliver_within_seconds": -abs(bad)},
            {"execute_within_seconds": -abs(bad)},
            {"value": bad},
            {"rollback": None if kind is CommandKind.ROLLBACK else payload},
        ]
    )
    return dataclasses.replace(command, **wrong)


def test_a_thousand_forged_commands_are_rejected_and_change_nothing(taped, tmp_path, figure):
    made, book = random.Random(20261129), Book()
    straight = trainer(tmp_path / "b", max_steps=4)
    straight.train()
    sent: list[str] = []

    def forge(**_):
        for first in range(len(sent), len(sent) + 500, 20):
            commands = tuple(forged(made, taped.monitor.start.incarnation, number) for number in range(first, first + 20))
            sent.extend(command.command_id for command in commands)
            taped.monitor._on_reply(Reply(next_seq=1, commands=commands))

    attacked = driven(tmp_path / "a", book, At(2, forge), At(3, forge), max_steps=4, policy=Policy())
    told = {report.command_id: report.state for report in taped.receipts + taped.reports}
    effects = sum(told.get(name) is not CommandState.REJECTED for name in sent)
    figure("F42", "forged commands of 1,000 that were not rejected", effects, at_most=0)
    assert len(sent) == 1000
    assert book.steps == [1, 2, 3, 4]
    assert torch.equal(weights(attacked), weights(straight))


def test_a_stop_during_an_evaluation_waits_visibly_and_is_done_after_it(taped, tmp_path, figure):
    from commands_kit import Rows

    seen: dict[str, object] = {}

    class During(TrainerCallback):
        def on_prediction_step(self, args, state, control, **kwargs):
            if not seen:
                taped.stop()
                seen["phase"], seen["at"] = taped.monitor._heartbeat().phase, time.monotonic()
                until(lambda: any(report.state is CommandState.DELIVERED for report in taped.receipts))

        def on_train_end(self, args, state, control, **kwargs):
            seen["ended"] = time.monotonic()

    book = Book()
    driven(tmp_path, book, During(), max_steps=9, eval_strategy="steps", eval_steps=2, eval_dataset=Rows(16))
    assert seen["phase"] is Phase.EVALUATING
    assert said(taped) == DONE
    figure("F49", "steps made after a stop that came in an evaluation", len(book.steps) - 2, at_most=1, at_least=1)
