"""A rule's action from its countdown to its command, on both databases."""

from dataclasses import replace

import pytest
from judging_kit import LOSS_HIGH, Trainer, alerts_of, data_of, use_rules

from server.domain.alerts import CloseReason
from server.domain.commands import Hand
from server.domain.countdowns import BREAKER_RULE_ID, CountdownState
from server.domain.rules import Action, ActionKind
from server.services import commands, countdowns, rules, runs
from server.services.commands import NewCommand
from server.services.errors import Conflict, Refused
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import countdowns as store
from trainer_agent.wire.vocabulary import AlertState, CheckpointState, CommandKind, CommandState, DataMode, Severity

ROLLBACK = replace(
    LOSS_HIGH,
    keep_firing_for_points=3,
    action=Action(ActionKind.ROLLBACK, countdown_seconds=30, data=DataMode.SKIP, max_grad_norm=1.0),
)
STOP = replace(ROLLBACK, action=Action(ActionKind.STOP, countdown_seconds=30))
S = CommandState


def in_trouble(connection, clock, rule=ROLLBACK, **of_run):
    """A run with a sound checkpoint at step 4 that has just met its trouble at step 6."""
    use_rules(connection, rule)
    trainer = Trainer(connection, clock, **of_run).start()
    for step in range(1, 6):
        trainer.log(step, loss=1.0)
        if step == 4:
            trainer.save(4)
    return trainer.log(6, loss=20.0).send()


def run_due(connection, clock, seconds=30):
    return countdowns.run_due(connection, clock.advance(seconds))


def last_outcome(connection):
    return data_of(connection, "countdown.ended")[-1]


def test_when_the_time_is_up_the_command_is_given_once_in_the_name_of_the_rule(connection, clock):
    trainer = in_trouble(connection, clock)
    assert run_due(connection, clock, 29) == 0
    trainer.log(7, loss=20.0).send()
    assert run_due(connection, clock, 1) == 1
    assert run_due(connection, clock, 1) == 0
    (command,) = commands_store.read_commands(connection, "run")
    assert (command.kind, command.issued_by, command.state) == (CommandKind.ROLLBACK, "rule:high", S.QUEUED)
    rollback = command.rollback
    assert (rollback.target_step, rollback.skip_from_step, rollback.skip_to_step, rollback.max_grad_norm) == (4, 5, None, 1.0)
    assert last_outcome(connection)["state"] == "due"
    assert last_outcome(connection)["outcome"] == "rollback to step 4 given"


def test_a_countdown_of_no_seconds_is_due_at_once(connection, clock):
    in_trouble(connection, clock, replace(ROLLBACK, action=replace(ROLLBACK.action, countdown_seconds=0)))
    assert run_due(connection, clock, 0) == 1


def test_a_person_says_no(connection, clock):
    in_trouble(connection, clock)
    assert countdowns.cancel(connection, "run", Hand("ann"), clock()).state is CountdownState.CANCELLED
    assert run_due(connection, clock) == 0
    assert commands_store.read_commands(connection, "run") == ()
    with pytest.raises(Conflict):
        countdowns.cancel(connection, "run", Hand("ann"), clock())


def test_a_person_says_now(connection, clock):
    in_trouble(connection, clock, automatic_rollback=True)
    countdown, command = countdowns.run_now(connection, "run", Hand("ann"), clock())
    assert (countdown.state, command.kind, command.issued_by) == (CountdownState.DUE, CommandKind.ROLLBACK, "ann")
    assert run_due(connection, clock) == 0
    with pytest.raises(Conflict):
        countdowns.run_now(connection, "run", Hand("ann"), clock())


def test_a_persons_own_command_overtakes_the_countdown(connection, clock):
    in_trouble(connection, clock)
    commands.issue(connection, NewCommand("run", CommandKind.STOP, "key", "ann"), clock())
    assert store.active_countdown(connection, "run") is None
    assert last_outcome(connection)["state"] == "overtaken"
    assert last_outcome(connection)["outcome"] == "ann gave the command stop"


def test_a_second_rule_begins_no_second_countdown(connection, clock):
    use_rules(connection, replace(STOP, rule_id="stops"))
    in_trouble(connection, clock)
    assert len(data_of(connection, "countdown.started")) == 1


def test_beside_an_active_command_no_countdown_begins(connection, clock):
    use_rules(connection, ROLLBACK)
    trainer = Trainer(connection, clock).start().log(1, loss=1.0).save(1).send()
    commands.issue(connection, NewCommand("run", CommandKind.STOP, "key", "ann"), clock())
    trainer.log(2, loss=20.0).send()
    assert store.active_countdown(connection, "run") is None


def test_a_new_segment_withdraws_the_countdown(connection, clock):
    trainer = in_trouble(connection, clock)
    trainer.open_segment(2, 4).send()
    assert last_outcome(connection)["state"] == "withdrawn"
    assert run_due(connection, clock) == 0


def test_a_changed_rule_withdraws_its_countdown(connection, clock):
    in_trouble(connection, clock)
    rules.change(connection, "high", {"enabled": False}, "ann", clock())
    assert last_outcome(connection)["outcome"] == "the rule was changed"


@pytest.mark.parametrize(
    ("of_run", "words"),
    [
        ({"automatic_rollback": False}, "policy does not allow"),
        ({"capabilities": (CommandKind.STOP,)}, "it is a loop"),
    ],
)
def test_where_a_rollback_may_not_be_the_run_is_stopped_and_told_so(connection, clock, of_run, words):
    in_trouble(connection, clock, **of_run)
    assert words in data_of(connection, "countdown.started")[0]["text"]
    run_due(connection, clock)
    (command,) = commands_store.read_commands(connection, "run")
    assert command.kind is CommandKind.STOP


def test_without_a_sound_target_the_run_is_stopped_though_it_vanished_during_the_countdown(connection, clock):
    trainer = in_trouble(connection, clock)
    trainer.save(4, problem="rotated away", state=CheckpointState.DELETED).send()
    run_due(connection, clock)
    (command,) = commands_store.read_commands(connection, "run")
    assert command.kind is CommandKind.STOP
    assert "no sound checkpoint" in last_outcome(connection)["outcome"]


def test_a_run_that_nothing_can_be_done_to_has_people_called(connection, clock):
    in_trouble(connection, clock, STOP, capabilities=())
    breaker = alerts_of(connection)[BREAKER_RULE_ID]
    assert (breaker.severity, breaker.state) == (Severity.CRITICAL, AlertState.FIRING)
    assert "nothing can be done from here: it is a loop" in breaker.text
    assert [each["severity"] for each in data_of(connection, "alert.firing")] == ["warning", "critical"]
    assert store.active_countdown(connection, "run") is None


def rolled_back(connection, clock, trainer, segment):
    """The due countdown's rollback, carried out into `segment`."""
    run_due(connection, clock)
    command = commands_store.active_command(connection, "run")
    trainer.report(command.command_id, S.RUNNING)
    trainer.open_segment(segment, command.rollback.target_step, command_id=command.command_id)
    return trainer.report(command.command_id, S.SUCCEEDED, command.rollback.target_step).send()


def test_the_same_cause_within_500_steps_opens_the_breaker_and_stops_the_run(connection, clock):
    trainer = in_trouble(connection, clock)
    rolled_back(connection, clock, trainer, 2).log(5, loss=20.0).send()
    assert store.active_countdown(connection, "run").action.kind is ActionKind.STOP
    breaker = alerts_of(connection)[BREAKER_RULE_ID]
    assert "rolled back 1 steps ago" in breaker.text
    assert "The run is stopped in 30 s unless somebody says no" in breaker.text
    trainer.log(6, loss=1.0).log(7, loss=1.0).log(8, loss=1.0).send()
    assert alerts_of(connection)[BREAKER_RULE_ID].state is AlertState.RESOLVED
    assert store.active_countdown(connection, "run") is None


def test_after_three_automatic_rollbacks_the_breaker_opens_once(connection, clock):
    trainer = in_trouble(connection, clock)
    step = 4
    for segment in (2, 3, 4):
        rolled_back(connection, clock, trainer, segment)
        step += 600
        trainer.log(step, loss=1.0).save(step).log(step + 1, loss=20.0).send()
    assert len(commands_store.read_commands(connection, "run")) == 3
    run_due(connection, clock)
    kinds = [each.kind for each in reversed(commands_store.read_commands(connection, "run"))]
    assert kinds == [CommandKind.ROLLBACK] * 3 + [CommandKind.STOP]
    calls = [each for each in alerts_store.read_alerts(connection, "run") if each.rule_id == BREAKER_RULE_ID]
    assert ["3 automatic rollbacks" in each.text for each in calls] == [True]


def test_a_command_that_is_refused_when_due_says_why(connection, clock):
    in_trouble(connection, clock)
    other = NewCommand("run", CommandKind.ROLLBACK, "key", "rule:other", checkpoint_id="c1-4")
    commands.issue(connection, other, clock())
    countdown = store.active_countdown(connection, "run")
    assert countdown is not None
    commands.issue(connection, replace(other, kind=CommandKind.STOP, idempotency_key="key-2", checkpoint_id=None), clock())
    run_due(connection, clock)
    assert last_outcome(connection)["outcome"].startswith("not done: a stop is queued")


def test_said_now_without_a_target_is_refused_and_the_countdown_goes_on(database, clock):
    def prepare(connection):
        in_trouble(connection, clock).save(4, state=CheckpointState.DELETED).send()

    database.writer.submit(prepare)
    with pytest.raises(Refused):
        database.writer.submit(lambda connection: countdowns.run_now(connection, "run", Hand("ann"), clock()))
    with database.reading() as connection:
        assert store.active_countdown(connection, "run") is not None


def test_a_changed_rule_takes_its_call_for_a_person_along(connection, clock):
    in_trouble(connection, clock, STOP, capabilities=())
    rules.change(connection, "high", {"settings": {"above": 50.0}}, "ann", clock())
    breaker = alerts_of(connection)[BREAKER_RULE_ID]
    assert (breaker.state, breaker.closed_because) == (AlertState.RESOLVED, CloseReason.RULE_CHANGED)
    assert data_of(connection, "alert.resolved") == []


def test_a_countdown_that_ran_out_while_the_server_was_away_can_still_be_cancelled(connection, clock):
    in_trouble(connection, clock)
    clock.advance(3600)
    runs.give_grace(connection, clock())
    assert run_due(connection, clock, 14) == 0
    assert run_due(connection, clock, 1) == 1


@pytest.mark.parametrize(("modes", "data"), [((DataMode.REPLAY,), DataMode.REPLAY), (tuple(DataMode), DataMode.SKIP)])
def test_an_automatic_rollback_does_with_the_data_what_the_run_can_do(connection, clock, modes, data):
    in_trouble(connection, clock, data_modes=modes)
    run_due(connection, clock)
    assert commands_store.active_command(connection, "run").rollback.data is data
