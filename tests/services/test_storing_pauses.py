"""A run that is paused, and a process that was called killed and lives."""

from dataclasses import replace

import pytest
from judging_kit import OWNER, Trainer, told

from server.domain.admission import Refusal
from server.domain.runs import LOST_AFTER
from server.services import commands, runs
from server.services.commands import NewCommand
from server.services.errors import Refused
from server.store import runs as store
from trainer_agent.wire.messages import Heartbeat, RunEnded
from trainer_agent.wire.vocabulary import KILLED, CommandKind, CommandState, EndReason, Phase, RunState

S = CommandState
BEAT = Heartbeat("run", "life-1", 0, 0.0, Phase.TRAINING, 3)


@pytest.fixture
def trainer(connection, clock):
    return Trainer(connection, clock).start().log(1, loss=1.0).send()


def beat(connection, clock, phase=Phase.TRAINING, incarnation="life-1"):
    runs.take_heartbeat(connection, replace(BEAT, phase=phase, incarnation=incarnation), OWNER, clock())
    return state(connection)


def state(connection):
    return store.get(connection, "run").state


def new(kind, key="key"):
    return NewCommand("run", kind, key, "ann")


def test_a_run_is_paused_and_goes_on_as_its_heartbeats_say(connection, trainer, clock):
    assert beat(connection, clock, Phase.PAUSED) is RunState.PAUSED
    assert beat(connection, clock, Phase.PAUSED) is RunState.PAUSED
    trainer.save(1).send()
    assert state(connection) is RunState.PAUSED, "a paused run still saves, says and does things"
    assert beat(connection, clock, Phase.SAVING) is RunState.RUNNING
    assert told(connection, prefix="run.")[-2:] == [("run.paused", 1), ("run.resumed", 1)]


def test_a_pause_is_seen_as_soon_as_its_command_has_succeeded(connection, trainer, clock):
    command = commands.issue(connection, new(CommandKind.PAUSE), clock()).command
    trainer.report(command.command_id, S.RUNNING, 1).report(command.command_id, S.SUCCEEDED, 1).send()
    assert state(connection) is RunState.PAUSED
    command = commands.issue(connection, new(CommandKind.RESUME, "key-2"), clock()).command
    trainer.report(command.command_id, S.SUCCEEDED, 1).send()
    assert state(connection) is RunState.RUNNING


def test_a_paused_run_is_kept_alive_by_its_heartbeats_alone(connection, trainer, clock):
    for _ in range(20):
        clock.advance(30)
        beat(connection, clock, Phase.PAUSED)
        assert runs.mark_overdue(connection, clock()) == 0
    assert state(connection) is RunState.PAUSED


@pytest.mark.parametrize("word", ["heartbeat", "batch"])
def test_a_paused_run_that_was_lost_is_paused_again_when_it_is_heard(connection, trainer, clock, word):
    beat(connection, clock, Phase.PAUSED)
    runs.mark_overdue(connection, clock.advance(LOST_AFTER.total_seconds() + 1))
    assert state(connection) is RunState.LOST
    if word == "batch":
        trainer.save(1).send()
    else:
        beat(connection, clock, Phase.PAUSED)
    assert state(connection) is RunState.PAUSED
    assert told(connection, prefix="run.")[-1][0] == "run.found"


def test_a_lost_run_that_has_been_resumed_meanwhile_is_running(connection, trainer, clock):
    beat(connection, clock, Phase.PAUSED)
    runs.mark_overdue(connection, clock.advance(LOST_AFTER.total_seconds() + 1))
    assert beat(connection, clock) is RunState.RUNNING


def test_only_a_run_that_goes_on_is_paused_and_only_a_paused_one_resumed(connection, trainer, clock):
    def refusal(kind):
        with pytest.raises(Refused) as refused:
            commands.issue(connection, new(kind), clock())
        return refused.value.refusal

    assert refusal(CommandKind.RESUME) is Refusal.NOT_PAUSED
    beat(connection, clock, Phase.PAUSED)
    assert refusal(CommandKind.PAUSE) is Refusal.ALREADY_PAUSED
    runs.mark_overdue(connection, clock.advance(LOST_AFTER.total_seconds() + 1))
    assert refusal(CommandKind.PAUSE) is Refusal.ALREADY_PAUSED, "being lost does not make it run"
    assert commands.issue(connection, new(CommandKind.RESUME), clock()).created


def killed(trainer):
    return trainer.record(RunEnded(EndReason.FAILED, 0.0, 1, KILLED)).send()


@pytest.mark.parametrize("word", ["heartbeat", "points"])
def test_that_it_was_killed_is_taken_back_when_the_process_speaks(connection, trainer, clock, word):
    killed(trainer)
    assert (state(connection), store.get(connection, "run").state_reason) == (RunState.FAILED, "killed")
    if word == "points":
        trainer.log(2, loss=1.0).send()
    else:
        beat(connection, clock)
    run = store.get(connection, "run")
    assert (run.state, run.state_reason, run.ended_at) == (RunState.RUNNING, "", None)
    assert run.deadline_at == clock() + LOST_AFTER
    assert [kind for kind, _ in told(connection, prefix="run.")][-2:] == ["run.failed", "run.lives"]


def test_it_may_end_again_after_that(connection, trainer, clock):
    killed(trainer)
    beat(connection, clock)
    trainer.end(EndReason.FINISHED).send()
    assert state(connection) is RunState.FINISHED
    beat(connection, clock)
    assert state(connection) is RunState.FINISHED, "its own last word is final"


def test_killed_said_twice_is_no_sign_of_life(connection, trainer, clock):
    killed(killed(trainer))
    assert state(connection) is RunState.FAILED


def test_that_an_earlier_process_lives_is_told_and_changes_nothing(connection, trainer, clock):
    clock.advance(1)
    Trainer(connection, clock, incarnation="life-2", segment=2).start().send()
    killed(trainer)
    before = store.get(connection, "run")
    for _ in range(2):
        beat(connection, clock)
    after = store.get(connection, "run")
    assert (after.state, after.deadline_at) == (RunState.RUNNING, before.deadline_at)
    kinds = [kind for kind, _ in told(connection, prefix="run.")]
    assert kinds.count("run.incarnation_ended") == kinds.count("run.lives") == 1


def test_a_run_that_failed_by_itself_is_not_taken_back(connection, trainer, clock):
    trainer.record(RunEnded(EndReason.FAILED, 0.0, 1, "ValueError")).send()
    assert beat(connection, clock) is RunState.FAILED
