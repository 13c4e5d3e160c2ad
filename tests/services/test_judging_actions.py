"""What rules may do by themselves: budgets and the breaker, dry runs, holds, and nothing by what is no longer so."""

from dataclasses import replace

import pytest
from judging_kit import LOSS_HIGH, OWNER, Trainer, alerts_of, data_of, told, use_rules

from server.domain.commands import Hand
from server.domain.countdowns import BREAKER_RULE_ID, CountdownState
from server.domain.default_absence import ABSENCE_RULES
from server.domain.rules import Action, ActionKind
from server.services import commands, countdowns, holds, ingest, liveness, rules, runs, silences
from server.services.alert_words import Teller
from server.services.commands import NewCommand
from server.services.errors import Conflict, Invalid, NotFound
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import countdowns as store
from server.store import runs as run_store
from trainer_agent.wire.messages import Heartbeat
from trainer_agent.wire.vocabulary import AlertState, CommandKind, CommandState, EndReason, Phase

S = CommandState
BACK = replace(
    LOSS_HIGH,
    keep_firing_for_points=3,
    action=Action(ActionKind.ROLLBACK, countdown_seconds=30, max_grad_norm=1.0),
)
DRY = replace(BACK, action=replace(BACK.action, dry_run=True))
DRY_OUTCOME = "dry run: it would have rolled back to step 4, nothing was sent"
STOP = replace(BACK, action=Action(ActionKind.STOP, countdown_seconds=30))
ANN = Hand("ann", "page")


def begun(connection, clock, *given, **of_run):
    """A run with a sound checkpoint at step 4, well so far."""
    use_rules(connection, *(given or (BACK,)))
    trainer = Trainer(connection, clock, **of_run).start()
    for step in range(1, 6):
        trainer.log(step, loss=1.0)
        if step == 4:
            trainer.save(4)
    return trainer.send()


def beat(connection, clock, step, waiting=0):
    message = Heartbeat("run", "life-1", 0, 0.0, Phase.TRAINING, step, waiting_records=waiting)
    runs.take_heartbeat(connection, message, OWNER, clock())


def run_due(connection, clock, seconds=30):
    return countdowns.run_due(connection, clock.advance(seconds))


def given(connection):
    """The kinds of all commands, the oldest first."""
    return [each.kind for each in reversed(commands_store.read_commands(connection, "run"))]


def counting(connection):
    return store.active_countdown(connection, "run")


def outcome(connection):
    return data_of(connection, "countdown.ended")[-1]


def carried_out(connection, trainer):
    """What was ordered, done: a rollback into its segment, a stop to its end."""
    command = commands_store.active_command(connection, "run")
    trainer.report(command.command_id, S.RUNNING)
    if command.rollback is None:
        return trainer.report(command.command_id, S.SUCCEEDED).end(EndReason.STOPPED_BY_COMMAND).send()
    trainer.open_segment(command.rollback.new_segment, command.rollback.target_step, command_id=command.command_id)
    return trainer.report(command.command_id, S.SUCCEEDED, command.rollback.target_step).send()


def test_f48_a_curve_that_diverges_after_every_rollback_is_rolled_back_three_times_and_stopped(connection, clock, figure):
    trainer, step = begun(connection, clock), 5
    for _ in range(8):
        if runs_on(connection):
            step += 600
            trainer.log(step - 1, loss=1.0).save(step - 1).log(step, loss=20.0).send()
            run_due(connection, clock)
        if runs_on(connection) and commands_store.active_command(connection, "run"):
            carried_out(connection, trainer)
    kinds = given(connection)
    figure("F48", "automatic rollbacks of a curve that diverges after each", kinds.count(CommandKind.ROLLBACK), at_most=3)
    assert kinds == [CommandKind.ROLLBACK] * 3 + [CommandKind.STOP]
    calls = [each for each in data_of(connection, "alert.firing") if each["severity"] == "critical"]
    figure("F48", "critical alerts", len(calls), at_most=1, at_least=1)
    assert "3 automatic rollbacks have not cured this run" in calls[0]["text"]
    assert "The run is stopped in 30 s unless somebody says no" in calls[0]["text"]
    episodes = sorted(alerts_store.read_alerts(connection, "run"), key=lambda each: each.segment)
    marks = [each.again_after for each in episodes if each.rule_id == "high"]
    assert marks == [None, 2, 3, 4], "again after rollback 1, 2 and 3"
    assert run_store.get(connection, "run").state.value == "stopped"


def runs_on(connection):
    return run_store.get(connection, "run").state.value == "running"


def test_a_person_who_says_no_to_the_stop_of_the_breaker_is_asked_once(connection, clock):
    trainer = begun(connection, clock).log(6, loss=20.0).send()
    run_due(connection, clock)
    carried_out(connection, trainer).log(5, loss=20.0).send()
    assert counting(connection).action.kind is ActionKind.STOP
    countdowns.cancel(connection, "run", ANN, clock())
    for step in range(6, 40):
        trainer.log(step, loss=20.0).send()
        run_due(connection, clock)
    assert given(connection) == [CommandKind.ROLLBACK]
    assert [each["rule_id"] for each in data_of(connection, "alert.firing")].count(BREAKER_RULE_ID) == 1


@pytest.mark.parametrize("again", [replace(BACK, name="Another name"), replace(BACK, rule_id="copy", name="A copy")])
def test_a_rule_under_another_name_and_a_copy_of_it_are_the_same_cause(connection, clock, again):
    trainer = begun(connection, clock).log(6, loss=20.0).send()
    run_due(connection, clock)
    carried_out(connection, trainer)
    if again.rule_id == "high":
        rules.change(connection, "high", {"name": again.name}, "ann", clock())
    else:
        rules.change(connection, "high", {"enabled": False}, "ann", clock())
        use_rules(connection, again)
    trainer.log(5, loss=20.0).send()
    assert counting(connection).action.kind is ActionKind.STOP
    assert BREAKER_RULE_ID in alerts_of(connection)


def test_a_dry_run_counts_down_says_what_would_be_done_and_gives_no_command(connection, clock):
    begun(connection, clock, DRY).log(6, loss=20.0).send()
    started = data_of(connection, "countdown.started")[-1]
    assert started["dry_run"] is True
    assert started["text"].startswith("dry run: rollback to step 4 would follow in 30 s, and nothing is done: ")
    with pytest.raises(Conflict, match="dry run"):
        countdowns.run_now(connection, "run", ANN, clock())
    assert run_due(connection, clock) == 1
    assert given(connection) == []
    assert (outcome(connection)["state"], outcome(connection)["outcome"]) == ("due", DRY_OUTCOME)
    assert told(connection, prefix="command.") == []


def test_a_dry_run_can_be_cancelled(connection, clock):
    begun(connection, clock, DRY).log(6, loss=20.0).send()
    assert countdowns.cancel(connection, "run", ANN, clock()).state is CountdownState.CANCELLED


def test_a_dry_run_gives_way_to_a_rule_that_means_it(connection, clock):
    trainer = begun(connection, clock, DRY, replace(STOP, rule_id="stops", settings={"above": 50.0})).log(6, loss=20.0).send()
    trainer.log(7, loss=60.0).send()
    assert (counting(connection).rule_id, counting(connection).action.kind) == ("stops", ActionKind.STOP)
    assert "dry run" in outcome(connection)["outcome"]


def test_a_dry_run_uses_up_no_budget_and_calls_nobody(connection, clock):
    trainer = begun(connection, clock, DRY)
    for step in range(6, 66, 10):
        trainer.log(step, loss=20.0).send()
        run_due(connection, clock)
        for well in range(1, 5):
            trainer.log(step + well, loss=1.0)
        trainer.send()
    assert [each["state"] for each in data_of(connection, "countdown.ended")] == ["due"] * 6
    assert BREAKER_RULE_ID not in alerts_of(connection)


def test_a_rule_on_trial_never_acts(connection, clock):
    begun(connection, clock, replace(BACK, trial=True)).log(6, loss=20.0).send()
    assert alerts_of(connection)["high"].state is AlertState.FIRING
    assert data_of(connection, "countdown.started") == []


def test_r23_a_silence_stops_no_action_and_a_hold_stops_all_of_them(connection, clock):
    trainer = begun(connection, clock, STOP)
    where = {"run_id": "run", "project": None, "rule_id": None}
    silences.start(connection, **where, hours=1.0, reason="noise", by="ann", now=clock())
    trainer.log(6, loss=20.0).send()
    holds.put(connection, "run", ANN, clock(), hours=1.0, reason="a try")
    assert outcome(connection)["outcome"] == "ann holds automatic actions: a try"
    assert run_due(connection, clock) == 0
    trainer.log(7, loss=1.0).log(8, loss=1.0).log(9, loss=1.0).log(10, loss=20.0).send()
    assert counting(connection) is None
    holds.lift(connection, "run", ANN, clock())
    assert counting(connection).action.kind is ActionKind.STOP
    run_due(connection, clock)
    assert given(connection) == [CommandKind.STOP]


def test_when_a_hold_is_over_what_fires_still_gets_its_countdown(connection, clock):
    trainer = begun(connection, clock, STOP)
    holds.put(connection, "run", ANN, clock(), hours=0.5, reason="a try")
    trainer.log(6, loss=20.0).send()
    assert [each["by"] for each in data_of(connection, "hold.started")] == ["ann"]
    for _ in range(59):
        beat(connection, clock, 6)
        liveness.look_due(connection, clock.advance(30))
    assert counting(connection) is None
    beat(connection, clock, 6)
    liveness.look_due(connection, clock.advance(30))
    assert counting(connection) is not None
    assert len(data_of(connection, "hold.over")) == 1
    assert run_store.get(connection, "run").hold is None


def test_a_hold_stops_no_order_of_a_person(connection, clock):
    begun(connection, clock)
    holds.put(connection, "run", ANN, clock(), hours=1.0, reason="a try")
    commands.issue(connection, NewCommand("run", CommandKind.ROLLBACK, "key", "ann"), clock())
    assert given(connection) == [CommandKind.ROLLBACK]


def test_a_hold_needs_a_run_that_goes_on_an_end_and_a_reason(connection, clock):
    trainer = begun(connection, clock)
    for hours, reason in ((0.0, "x"), (721.0, "x"), (float("nan"), "x"), (1.0, " "), (1.0, "x" * 3000)):
        with pytest.raises(Invalid):
            holds.put(connection, "run", ANN, clock(), hours=hours, reason=reason)
    with pytest.raises(NotFound):
        holds.put(connection, "no-run", ANN, clock(), hours=1.0, reason="x")
    with pytest.raises(Conflict):
        holds.lift(connection, "run", ANN, clock())
    trainer.end().send()
    with pytest.raises(Conflict, match="finished"):
        holds.put(connection, "run", ANN, clock(), hours=1.0, reason="x")


@pytest.mark.parametrize("knows", ["heartbeat", "age"])
def test_f27_a_backlog_with_five_closed_episodes_and_an_open_one_makes_one_command_at_most(connection, clock, figure, knows):
    """1,000 steps offline: the server hears of them late, in batches that fall anywhere."""
    trainer = begun(connection, clock, replace(STOP, action=replace(STOP.action, countdown_seconds=0)))
    if knows == "heartbeat":
        beat(connection, clock, 1005, waiting=1000)
    for step in range(6, 1006):
        trainer.log(step, loss=20.0 if step % 180 == 0 or step >= 1003 else 1.0)
    late = knows == "age"
    for first in range(trainer.sent, len(trainer.records), 37):
        batch = trainer.batch(first + 1, min(first + 37, len(trainer.records)))
        ingest.take_batch(connection, replace(batch, sent_at=2e9 if late else 0.0), OWNER, clock())
        countdowns.run_due(connection, clock())
    trainer.sent = len(trainer.records)
    if knows == "age":
        assert given(connection) == [], "what is not known to be so now is not acted on"
        beat(connection, clock, 1005)
    countdowns.run_due(connection, clock())
    closed = [each for each in alerts_store.read_alerts(connection, "run") if each.state is AlertState.RESOLVED]
    assert len(closed) == 5
    figure("F27", f"commands from a backlog of 1,000 steps, known by {knows}", len(given(connection)), at_most=1, at_least=1)
    assert len(data_of(connection, "countdown.started")) == 1


def test_r12_what_is_over_at_the_newest_step_makes_no_command(connection, clock):
    trainer = begun(connection, clock, STOP)
    beat(connection, clock, 100, waiting=95)
    trainer.log(6, loss=20.0).send()
    for step in range(7, 101):
        trainer.log(step, loss=1.0)
    trainer.send()
    assert data_of(connection, "countdown.started") == []
    run_due(connection, clock)
    assert given(connection) == []


def test_a_countdown_waits_while_the_condition_does_not_hold(connection, clock):
    trainer = begun(connection, clock, STOP).log(6, loss=20.0).send()
    trainer.log(7, loss=1.0).send()
    assert run_due(connection, clock) == 0
    assert counting(connection).outcome == "waits: the condition does not hold at the newest step"
    trainer.log(8, loss=20.0).send()
    assert run_due(connection, clock, 0) == 1
    assert given(connection) == [CommandKind.STOP]


def test_a_countdown_waits_for_a_backlog_and_for_a_save(connection, clock):
    trainer = begun(connection, clock, STOP).log(6, loss=20.0).send()
    beat(connection, clock, 8, waiting=2)
    assert run_due(connection, clock) == 0
    assert "backlog" in counting(connection).outcome
    trainer.log(7, loss=20.0).log(8, loss=20.0).send()
    saving = commands.issue(connection, NewCommand("run", CommandKind.SAVE, "key", "rule:none"), clock()).command
    assert run_due(connection, clock, 0) == 0
    assert counting(connection).outcome == "waits for a save"
    trainer.report(saving.command_id, S.SUCCEEDED, 8).send()
    assert run_due(connection, clock, 0) == 1


def test_an_earlier_process_makes_no_command(connection, clock):
    trainer = begun(connection, clock, STOP)
    again = Trainer(connection, clock, incarnation="life-2", segment=2)
    clock.advance(1)
    again.start(from_step=5)
    trainer.log(6, loss=20.0).send()
    assert data_of(connection, "countdown.started") == []


def test_an_alert_says_beforehand_that_the_policy_forbids_what_its_rule_asks_for(connection, clock):
    begun(connection, clock, automatic_rollback=False).log(6, loss=20.0).send()
    words = Teller(connection, "run", clock()).in_words(alerts_of(connection)["high"])
    assert "policy allows no automatic rollback" in words.following[0]
    assert "不允许" in words.following[1]
    assert counting(connection).action.kind is ActionKind.STOP


@pytest.mark.parametrize("rule_id", ["run-lost", "run-stalled"])
def test_a_rule_of_absence_can_only_tell(connection, clock, rule_id):
    use_rules(connection, *ABSENCE_RULES)
    with pytest.raises(Invalid, match="must be notify"):
        rules.change(connection, rule_id, {"action": {"kind": "stop"}}, "ann", clock())
