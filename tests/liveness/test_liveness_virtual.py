"""Lost, stalled and ended as the server tells them, on a clock that the test moves and on both databases."""

import itertools
from dataclasses import replace

import pytest
from judging_kit import Trainer, data_of, use_default_rules, use_rules
from liveness_kit import ENDED, LOST, STALLED, Life, open_of, rounds, told_of

from server.domain.default_absence import ABSENCE_RULES
from server.domain.rules import Scope, ScopeKind
from server.domain.runs import LOST_AFTER
from server.services import checkpoints, rules, runs
from server.store import alerts as alerts_store
from server.store import checkpoints as checkpoints_store
from server.store import runs as store
from trainer_agent.wire.messages import RunEnded
from trainer_agent.wire.vocabulary import AlertState, CheckpointState, EndReason, Phase, RunState, Severity

LIMIT = 120.0
DAY, HOUR = 86_400.0, 3600.0


@pytest.fixture
def life(connection, clock):
    use_default_rules(connection)
    return Life(connection, clock)


def until_stalled(life, tick):
    """Seconds from the newest step until the stall is told."""
    since = store.get(life.connection, life.run_id).stepped_at
    while STALLED not in open_of(life.connection, life.run_id):
        life.clock.advance(tick)
        life.beat()
        rounds(life.connection, life.clock())
        assert (life.clock() - since).total_seconds() < 20_000
    return (life.clock() - since).total_seconds()


@pytest.mark.parametrize(
    ("step_seconds", "lasts", "tick", "limit"), [(0.1, 300, 5, 120), (30, 900, 15, 300), (300, 3600, 50, 3000)]
)
def test_r9_a_run_at_its_own_pace_never_stalls_and_a_real_stall_is_found(life, figure, step_seconds, lasts, tick, limit):
    many = max(1, round(tick / step_seconds))
    life.lasts(lasts, every=tick, step_every=max(step_seconds, tick), steps_a_batch=many)
    figure("R9", f"false stalls at {step_seconds:g} s a step", len(told_of(life.connection)), at_most=0)
    if many > 1:
        for _ in range(30):  # batches of a quick run come as they are made, not at the worker's pace
            life.steps()
            life.clock.advance(1.0)
    late = until_stalled(life, tick) - limit
    figure("R9", f"seconds past the limit until a stall is told, at {step_seconds:g} s a step", late, at_most=tick, at_least=0)
    alert = open_of(life.connection)[STALLED]
    assert (alert.severity, alert.limit, alert.onset_step) == (Severity.WARNING, limit, life.step)
    life.steps()
    assert open_of(life.connection) == {}, "a step ends it in the same transaction"
    assert store.get(life.connection, "run").state is RunState.RUNNING, "a stall is no state"


def test_f30_an_evaluation_of_ten_minutes_is_no_stall_and_the_same_silence_in_training_is(life, figure):
    life.lasts(60, step_every=10)
    life.lasts(600, Phase.EVALUATING)
    figure("F30", "false stalls in an evaluation of ten minutes", len(told_of(life.connection)), at_most=0)
    life.lasts(60, step_every=10)
    life.lasts(600, Phase.TRAINING)
    assert told_of(life.connection) == [STALLED]


@pytest.mark.parametrize("phase", [Phase.PAUSED, Phase.HOLDING])
def test_a_run_that_waits_by_order_never_stalls_and_has_a_full_limit_afterwards(life, phase):
    life.lasts(60, step_every=10)
    life.lasts(2 * HOUR, phase, every=55)
    life.lasts(LIMIT - 10)
    assert told_of(life.connection) == []
    life.lasts(30)
    assert told_of(life.connection) == [STALLED]


def test_before_the_first_step_the_budget_of_a_start_holds(life):
    life.lasts(1790, Phase.STARTING, every=10)
    assert told_of(life.connection) == []
    life.lasts(20, Phase.STARTING)
    assert told_of(life.connection) == [STALLED]


def test_steps_that_only_a_heartbeat_tells_of_are_steps(life):
    life.lasts(60, step_every=10)
    for _ in range(60):
        life.step += 1
        life.beat()
        rounds(life.connection, life.clock.advance(10))
    assert told_of(life.connection) == []
    life.lasts(LIMIT + 10)
    assert told_of(life.connection) == [STALLED]


def test_a_backlog_that_drains_counts_as_stepping(life):
    life.lasts(60, step_every=10)
    frozen = life.step + 500
    for _ in range(40):
        life.steps()
        life.beat(step=frozen, waiting=450)
        rounds(life.connection, life.clock.advance(10))
    assert told_of(life.connection) == []


def test_a_run_that_is_heard_again_is_not_stalled_at_once(life):
    life.lasts(60, step_every=10)
    rounds(life.connection, life.clock.advance(HOUR))
    assert told_of(life.connection) == [LOST]
    life.beat()
    rounds(life.connection, life.clock())
    assert open_of(life.connection) == {}
    life.lasts(LIMIT - 20)
    assert told_of(life.connection) == [LOST]
    life.lasts(40)
    assert told_of(life.connection) == [LOST, STALLED]


def test_silence_of_a_stalled_run_is_lost_and_not_stalled_once_more(life):
    life.lasts(60, step_every=10)
    life.lasts(LIMIT + 20)
    rounds(life.connection, life.clock.advance(61))
    assert told_of(life.connection) == [STALLED, LOST]
    life.beat()
    rounds(life.connection, life.clock.advance(1))
    assert set(open_of(life.connection)) == {STALLED}
    life.steps()
    assert open_of(life.connection) == {}


@pytest.mark.parametrize(
    ("reason", "severity"), [(EndReason.FAILED, [ENDED]), (EndReason.FINISHED, []), (EndReason.STOPPED_BY_COMMAND, [])]
)
def test_an_end_is_neither_lost_nor_stalled(life, reason, severity):
    life.lasts(60, step_every=10)
    life.trainer.record(RunEnded(reason, 0.0, life.step, "why")).send()
    for _ in range(20):
        rounds(life.connection, life.clock.advance(HOUR))
    assert told_of(life.connection) == severity
    assert open_of(life.connection) == {}


def test_none_of_them_resolves_an_alert_on_a_metric(life):
    life.lasts(60, step_every=10)
    life.steps(1, loss=float("nan"))
    life.lasts(LIMIT + 20)
    rounds(life.connection, life.clock.advance(61))
    life.beat()
    assert open_of(life.connection)["loss-not-finite"].state is AlertState.FIRING
    assert [each["rule_id"] for each in data_of(life.connection, "alert.resolved")] == [LOST]


def test_none_of_them_speaks_against_a_checkpoint(life):
    life.lasts(60, step_every=10)
    life.trainer.save(life.step).send()
    life.lasts(LIMIT + 20)
    life.trainer.save(life.step, checkpoint_id="saved in a stall").send()
    assert STALLED in open_of(life.connection)
    saved = checkpoints_store.read_checkpoints(life.connection, "run")
    assert [each.judged.state for each in saved] == [CheckpointState.SOUND] * 2
    assert checkpoints.propose(life.connection, "run").first_sign_step is None


def lived(connection, clock, name, shift, jump):
    """A life with a stall, a silence and an end, under a clock that is off, and by `jump` more from the middle on."""
    life = Life(connection, clock, run_id=name, shift=shift)
    life.lasts(100, step_every=10)
    life.lasts(LIMIT + 30)
    life.shift += jump
    life.lasts(60, step_every=10)
    rounds(connection, clock.advance(61))
    life.lasts(60, step_every=10)
    return life


def transitions_of(connection, name, begun):
    """Every alert of absence with its times, from the beginning of the life."""
    alerts = [each for each in alerts_store.read_alerts(connection, name) if each.series.startswith("run/")]
    times = [(each.onset_at, each.firing_at, each.resolved_at) for each in alerts]
    since = [[None if time is None else (time - begun).total_seconds() for time in each] for each in times]
    what = [(each.rule_id, each.state, each.onset_step, each.resolved_step, each.value, each.limit) for each in alerts]
    return sorted(zip(what, since, strict=True), key=repr)


def test_r10_the_clock_of_the_training_changes_nothing(connection, clock, figure):
    use_rules(connection, *ABSENCE_RULES)
    clocks = {"right": (0, 0), "a day ahead": (DAY, 0), "a day behind": (-DAY, 0), "an hour back": (0, -HOUR), "on": (0, HOUR)}
    found = {}
    for name, (shift, jump) in clocks.items():
        begun = clock()
        lived(connection, clock, name.replace(" ", "-"), shift, jump)
        found[name] = transitions_of(connection, name.replace(" ", "-"), begun)
        store.update(connection, name.replace(" ", "-"), {"state": RunState.FINISHED, "deadline_at": None})
    right = found.pop("right")
    assert [each[0][0] for each in right] == [LOST, STALLED]
    for name, each in found.items():
        differing = sum(one != other for one, other in itertools.zip_longest(right, each))
        figure("R10", f"transitions of absence that differ: clock {name}", differing, at_most=0)


def test_f28_a_server_that_was_away_calls_no_living_run_lost_and_the_dead_one_soon(connection, clock, figure):
    use_default_rules(connection)
    lives = [Life(connection, clock, run_id=f"run-{number}") for number in range(50)]
    for life in lives:
        life.steps(3)
    alive, dead = lives[1:], lives[0]
    clock.advance(600)
    runs.give_grace(connection, clock())
    back = clock()
    rounds(connection, clock())
    for _ in range(4):
        for life in alive:
            life.beat()
        rounds(connection, clock.advance(35))
    told = [life.run_id for life in alive if told_of(connection, life.run_id)]
    figure("F28", "false alerts after the server was away for 10 minutes, of 49 living runs", len(told), at_most=0)
    alert = open_of(connection, dead.run_id)[LOST]
    seconds = (alert.firing_at - back).total_seconds()
    figure("F28", "seconds until the dead one is told", seconds, at_most=LOST_AFTER.total_seconds() + 35, unit="s")


def test_a_restart_of_the_server_gives_a_full_limit_and_tells_a_known_stall_not_twice(life):
    life.lasts(60, step_every=10)
    life.clock.advance(LIMIT - 20)
    runs.give_grace(life.connection, life.clock())
    life.lasts(LIMIT - 10)
    assert told_of(life.connection) == []
    life.lasts(20)
    assert told_of(life.connection) == [STALLED]
    runs.give_grace(life.connection, life.clock())
    life.lasts(3 * LIMIT)
    assert told_of(life.connection) == [STALLED]
    assert STALLED in open_of(life.connection)


def test_a_new_process_of_a_lost_run_has_the_budget_of_a_start(life):
    life.lasts(60, step_every=10)
    rounds(life.connection, life.clock.advance(HOUR))
    again = Trainer(life.connection, life.clock, incarnation="life-2", segment=2)
    again.start(from_step=life.step).send()
    assert open_of(life.connection) == {}
    life.trainer, life.clock = again, life.clock
    life.lasts(1700, Phase.STARTING)
    assert told_of(life.connection) == [LOST]


def change(connection, clock, rule_id, **changes):
    return rules.change(connection, rule_id, changes, "ann", clock())


def test_a_rule_that_is_off_or_of_another_run_tells_nothing(life):
    change(life.connection, life.clock, STALLED, enabled=False)
    change(life.connection, life.clock, LOST, scope={"kind": "project", "name": "another"})
    life.lasts(60, step_every=10)
    life.lasts(600)
    rounds(life.connection, life.clock.advance(HOUR))
    assert told_of(life.connection) == []
    assert store.get(life.connection, "run").state is RunState.LOST, "the state is no rule's"


def test_a_changed_limit_holds_within_a_minute_and_tells_afresh(life):
    life.lasts(60, step_every=10)
    life.lasts(LIMIT + 20)
    change(life.connection, life.clock, STALLED, settings={"floor_seconds": 100_000.0 / 2})
    life.lasts(100)
    assert open_of(life.connection) == {}
    change(life.connection, life.clock, STALLED, settings={"floor_seconds": 30.0})
    life.lasts(70)
    assert told_of(life.connection) == [STALLED, STALLED]


def test_a_rule_on_trial_shows_its_alert_and_no_stall(connection, clock):
    stalls = next(rule for rule in ABSENCE_RULES if rule.rule_id == STALLED)
    use_rules(connection, replace(stalls, trial=True, scope=Scope(ScopeKind.PROJECT, "project")))
    life = Life(connection, clock).lasts(60, step_every=10).lasts(LIMIT + 20)
    assert open_of(connection)[STALLED].trial
    assert alerts_store.stalls(connection, [life.run_id]) == {}


def test_the_page_is_told_since_when_and_by_how_much_it_stalls(life):
    life.lasts(60, step_every=10)
    since = store.get(life.connection, "run").stepped_at
    life.lasts(LIMIT + 20)
    stall = alerts_store.stalls(life.connection, ["run"])["run"]
    assert (stall.onset_at, stall.limit) == (since, LIMIT)
    assert "no new step for 2 min" in stall.text


def test_points_of_the_names_of_absence_do_nothing(life):
    for step in range(1, 5):
        life.trainer.records.append((1, step, {"run/step": float("nan"), "run/heartbeat": 1.0, "train/loss": 1.0}))
    life.trainer.send()
    assert told_of(life.connection) == []


def test_a_heartbeat_of_another_rank_or_of_an_earlier_process_keeps_nothing_alive(life):
    life.lasts(60, step_every=10)
    other = Trainer(life.connection, life.clock, rank=1)
    other.start().send()
    for step in range(1, 30):
        other.log(step, loss=1.0).send()
        life.beat()
        rounds(life.connection, life.clock.advance(10))
    assert told_of(life.connection) == [STALLED]
