"""Judging points as they come in, on both databases."""

import json
import math
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from judging_kit import LOSS_HIGH, Trainer, alerts_of, data_of, told, use_default_rules, use_rules

from server.domain.alerts import CloseReason
from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors import DETECTORS
from server.domain.rules import Action, ActionKind
from server.services import evaluation, rules
from server.services.errors import Invalid, NotFound
from server.store import alerts as alerts_store
from server.store import checkpoints as checkpoints_store
from server.store import commands as commands_store
from server.store import countdowns as countdowns_store
from server.store import rules as rules_store
from trainer_agent.wire.vocabulary import AlertState, CheckpointState, SegmentCause, Severity

NAN, INF = math.nan, math.inf
HIGH = replace(
    LOSS_HIGH,
    for_points=2,
    keep_firing_for_points=2,
)
C = CheckpointState


@pytest.fixture
def trainer(connection, clock):
    return Trainer(connection, clock).start()


def logged(trainer, values, first_step=1):
    for step, value in enumerate(values, first_step):
        trainer.log(step, loss=value)
    return trainer


def test_one_nan_loss_in_a_batch_of_good_ones_fires_at_its_very_step(connection, trainer):
    use_default_rules(connection)
    logged(trainer, [2.0] * 6 + [NAN] + [2.0] * 3).send()
    alert = alerts_of(connection)["loss-not-finite"]
    assert (alert.onset_step, alert.firing_step, alert.severity) == (7, 7, Severity.CRITICAL)
    assert math.isnan(alert.value)
    assert alert.text == "train/loss is NaN, since step 7"
    assert ("alert.firing", 7) in told(connection)
    assert data_of(connection, "alert.firing")[0]["value"] == "NaN"


def test_an_isolated_infinite_gradient_norm_tells_nobody_anything(connection, trainer):
    use_default_rules(connection)
    for step in range(1, 300):
        skipped = step == 200
        trainer.log(step, loss=2.0, grad_norm=INF if skipped else 1.0, overflow=float(skipped), scale=32768.0)
    trainer.send()
    assert alerts_store.read_alerts(connection) == ()


def test_an_alert_waits_for_its_points_recovers_and_is_told_once_each_way(connection, trainer):
    use_rules(connection, HIGH)
    logged(trainer, [1, 20]).send()
    assert alerts_of(connection)["high"].state is AlertState.PENDING
    assert told(connection, prefix="alert") == []
    logged(trainer, [20, 1], 3).send()
    assert alerts_of(connection)["high"].state is AlertState.RECOVERING
    logged(trainer, [20, 1, 1], 5).send()
    alert = alerts_of(connection)["high"]
    assert (alert.onset_step, alert.firing_step, alert.resolved_step) == (2, 3, 7)
    assert (alert.state, alert.closed_because) == (AlertState.RESOLVED, CloseReason.RECOVERED)
    assert told(connection, prefix="alert") == [("alert.firing", 3), ("alert.resolved", 7)]


def test_a_pending_episode_that_clears_early_leaves_no_trace(connection, trainer):
    use_rules(connection, HIGH)
    logged(trainer, [1, 20, 1, 20, 1]).send()
    assert alerts_store.read_alerts(connection) == ()
    assert told(connection, prefix="alert") == []


def a_long_story(trainer):
    """Trouble that heals, trouble that stays, checkpoints, a rollback, and trouble again."""
    logged(trainer, [1, 20, 20, 1, 1, 1])
    trainer.save(6)
    logged(trainer, [20], 7).save(7)
    logged(trainer, [20, NAN, 20], 8).save(10)
    trainer.open_segment(2, 6, checkpoint_id="c1-6")
    logged(trainer, [1, 20, 20, 1], 7).save(10)
    return trainer


def everything(connection):
    """The end state, times left out."""
    alerts = [
        replace(each, onset_at=None, firing_at=None, resolved_at=None) for each in alerts_store.read_alerts(connection, "run")
    ]
    verdicts = [(each.facts, each.judged) for each in checkpoints_store.read_checkpoints(connection, "run")]
    return repr(
        (sorted(alerts, key=lambda a: a.alert_id), rules_store.read_states(connection, "run"), verdicts, told(connection))
    )


def cuts():
    yield ()
    yield range(1, 100)
    yield range(3, 100, 5)
    yield (1, 9, 10, 11, 17)


def test_however_a_stream_is_cut_doubled_or_refused_it_ends_in_the_same_state(database, clock):
    ends = set()
    for cut in cuts():
        with database.write_engine.connect() as connection, connection.begin() as transaction:
            use_default_rules(connection)
            use_rules(connection, HIGH)
            trainer = a_long_story(Trainer(connection, clock).start())
            trainer.send(*cut)
            for first, last in ((1, 5), (3, 12), (1, len(trainer.records))):  # said again, cut otherwise
                trainer.take(first, last)
            ends.add(everything(connection))
            transaction.rollback()
        clock.advance(17)
    assert len(ends) == 1
    assert "rewound" in ends.pop()


def test_a_rollback_closes_what_it_takes_back_quietly_and_the_rule_can_fire_again(connection, trainer):
    use_rules(connection, HIGH)
    logged(trainer, [1] * 5 + [20] * 3).open_segment(2, 4)
    logged(trainer, [1, 20, 20], 5).send()
    first, again = sorted(alerts_store.read_alerts(connection, "run"), key=lambda alert: alert.segment)
    assert (first.state, first.closed_because, first.onset_step) == (AlertState.RESOLVED, CloseReason.REWOUND, 6)
    assert (again.state, again.segment, again.onset_step) == (AlertState.FIRING, 2, 6)
    assert [kind for kind, _ in told(connection, prefix="alert")] == ["alert.firing", "alert.rewound", "alert.firing"]


def test_after_a_rollback_a_rule_remembers_the_kept_stretch_and_nothing_of_the_other(connection, clock):
    use_default_rules(connection)
    one = Trainer(connection, clock, run_id="rolled").start()
    for step in range(1, 61):
        one.log(step, grad_norm=1 + step / 100)
    for step in range(61, 91):
        one.log(step, grad_norm=500.0)
    one.open_segment(2, 60).log(61, grad_norm=1.7).send()
    other = Trainer(connection, clock, run_id="straight").start()
    for step in range(1, 61):
        other.log(step, grad_norm=1 + step / 100)
    other.log(61, grad_norm=1.7).send()
    states = [
        {each.rule_id: json.dumps(each.state, sort_keys=True) for each in rules_store.read_states(connection, run_id)}
        for run_id in ("rolled", "straight")
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize("seed", range(4))
def test_after_any_rewinds_nested_ones_too_the_rules_know_the_effective_curve_and_nothing_else(connection, clock, seed):
    use_default_rules(connection)
    chance = random.Random(seed)
    wild = Trainer(connection, clock, run_id="wild").start()
    curve = []
    for segment in range(1, 7):
        for _ in range(chance.randrange(5, 80)):
            value = chance.choice([1 + chance.random(), 1 + chance.random(), 30.0, NAN, INF])
            curve.append({"loss": value, "grad_norm": value, "overflow": float(not math.isfinite(value)), "scale": 1024.0})
            wild.log(len(curve), **curve[-1])
        del curve[chance.randrange(len(curve)) :]
        wild.open_segment(segment + 1, len(curve))
    wild.send(*sorted(chance.sample(range(1, len(wild.records)), 10)))
    straight = Trainer(connection, clock, run_id="straight").start()
    for step, values in enumerate(curve, 1):
        straight.log(step, **values)
    straight.send()
    begin = {rule.rule_id for rule in DEFAULT_RULES if DETECTORS[rule.detector].begins}  # they remember that a segment began
    known = [
        {each.rule_id: each.state["detector"] for each in rules_store.read_states(connection, run_id)}
        for run_id in ("wild", "straight")
    ]
    for rule_id in known[1].keys() - begin:
        assert known[0][rule_id] == known[1][rule_id], rule_id
    assert all(alert.onset_step <= len(curve) for alert in alerts_store.open_alerts(connection, "wild"))


def test_a_restart_from_inside_the_trouble_keeps_its_alert_open_and_tells_nothing_twice(connection, trainer, clock):
    use_rules(connection, HIGH)
    logged(trainer, [1, 20, 20, 20, 20]).send()
    clock.advance(5)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=4)
    logged(again, [20, 1, 1], 5).send()
    (alert,) = alerts_store.read_alerts(connection, "run")
    assert (alert.state, alert.closed_because, alert.onset_step, alert.resolved_step) == (
        AlertState.RESOLVED,
        CloseReason.RECOVERED,
        2,
        7,
    )
    assert told(connection, prefix="alert") == [("alert.firing", 3), ("alert.resolved", 7)]


def test_points_spooled_by_a_life_that_was_left_behind_are_not_judged(connection, trainer, clock):
    use_rules(connection, HIGH)
    logged(trainer, [1, 1, 1, 1, 1]).send()
    clock.advance(5)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=3)
    logged(again, [1, 1], 4).send()
    logged(trainer, [20, 20, 20], 6).send()
    assert alerts_store.read_alerts(connection, "run") == ()


def test_each_rank_is_judged_by_itself(connection, trainer, clock):
    use_rules(connection, HIGH)
    other = Trainer(connection, clock, rank=1).start()
    logged(trainer, [20, 1, 20, 1]).send()
    logged(other, [20, 20]).send()
    (alert,) = alerts_store.read_alerts(connection, "run")
    assert alert.rank == 1
    assert "on rank 1" in alert.text


def test_the_end_of_a_run_closes_what_is_open_without_saying_that_it_is_over(connection, trainer):
    use_rules(connection, HIGH, replace(HIGH, rule_id="slow", for_points=9))
    logged(trainer, [1, 20, 20, 20]).end().send()
    alerts = alerts_of(connection)
    assert alerts.keys() == {"high"}
    assert (alerts["high"].state, alerts["high"].closed_because) == (AlertState.RESOLVED, CloseReason.RUN_ENDED)
    assert told(connection, prefix="alert") == [("alert.firing", 3)]


def test_a_run_taken_up_again_after_its_end_is_judged_again(connection, trainer, clock):
    use_rules(connection, HIGH)
    logged(trainer, [1, 20, 20]).end().send()
    clock.advance(5)
    again = Trainer(connection, clock, incarnation="life-2", segment=2).start(SegmentCause.RESTART, from_step=3)
    logged(again, [20, 20], 4).send()
    assert [each.segment for each in alerts_store.open_alerts(connection, "run")] == [2]


def test_a_changed_rule_starts_afresh_and_closes_its_alerts(connection, trainer, clock):
    use_rules(connection, HIGH)
    logged(trainer, [20, 20, 20]).save(3).send()
    rules.change(connection, "high", {"settings": {"above": 15}}, "ann", clock())
    (closed,) = alerts_store.read_alerts(connection, "run")
    assert (closed.closed_because, closed.resolved_step) == (CloseReason.RULE_CHANGED, 3)
    logged(trainer, [20], 4).send()
    assert [each.state for each in alerts_store.open_alerts(connection, "run")] == [AlertState.PENDING]
    logged(trainer, [20, 12, 12], 5).save(7).send()
    assert [kind for kind, _ in told(connection, prefix="alert")] == ["alert.firing", "alert.firing", "alert.resolved"]
    verdicts = {each.facts.step: each.judged.state for each in checkpoints_store.read_checkpoints(connection, "run")}
    assert verdicts == {3: C.UNSOUND, 7: C.SOUND}


def test_a_wrong_change_of_a_rule_is_refused_in_words_and_changes_nothing(connection, clock):
    use_rules(connection, HIGH)
    with pytest.raises(Invalid, match="for_points"):
        rules.change(connection, "high", {"for_points": 0}, "ann", clock())
    with pytest.raises(NotFound):
        rules.change(connection, "low", {}, "ann", clock())
    assert rules_store.read_rule(connection, "high") == replace(HIGH, edited=True)


def test_a_switched_off_rule_judges_nothing(connection, trainer, clock):
    use_rules(connection, HIGH)
    rules.change(connection, "high", {"enabled": False}, "ann", clock())
    logged(trainer, [20] * 5).send()
    assert alerts_store.read_alerts(connection) == ()


def test_the_default_rules_are_put_in_place_once_and_changes_outlive_a_restart(connection, clock):
    use_default_rules(connection)
    before = rules_store.read_rules(connection)
    rules.change(connection, "loss-rises-5", {"severity": "warning"}, "ann", clock())
    use_default_rules(connection)
    after = rules_store.read_rules(connection)
    assert [rule.rule_id for rule in before] == [rule.rule_id for rule in after]
    assert next(rule for rule in after if rule.rule_id == "loss-rises-5").severity is Severity.WARNING


def test_an_onset_that_comes_to_light_lowers_the_verdicts_after_it_and_only_those(connection, trainer):
    use_rules(connection, replace(HIGH, for_points=4))
    logged(trainer, [1, 1, 20]).save(2).save(3)
    logged(trainer, [20], 4).save(4).send()
    sound = {each.facts.step: each.judged.state for each in checkpoints_store.read_checkpoints(connection, "run")}
    assert sound == {2: C.SOUND, 3: C.SOUND, 4: C.SOUND}
    logged(trainer, [20, 20], 5).send()
    checkpoints = {each.facts.step: each.judged for each in checkpoints_store.read_checkpoints(connection, "run")}
    assert {step: judged.state for step, judged in checkpoints.items()} == {2: C.SOUND, 3: C.UNSOUND, 4: C.UNSOUND}
    assert checkpoints[4].reason == "saved 1 steps after the first sign (3)"


def test_information_says_nothing_against_a_checkpoint(connection, trainer):
    use_rules(connection, replace(HIGH, severity=Severity.INFO))
    logged(trainer, [20, 20, 20]).save(3).send()
    (checkpoint,) = checkpoints_store.read_checkpoints(connection, "run")
    assert checkpoint.judged.state is C.SOUND


ACTING = replace(HIGH, for_points=1, action=Action(ActionKind.ROLLBACK, countdown_seconds=30))


def test_a_rule_that_acts_begins_a_countdown_to_the_checkpoint_before_the_onset(connection, trainer, clock):
    use_rules(connection, ACTING)
    logged(trainer, [1, 1]).save(2)
    logged(trainer, [1, 20], 3).save(4).send()
    countdown = countdowns_store.active_countdown(connection, "run")
    assert (countdown.checkpoint_id, countdown.target_step) == ("c1-2", 2)
    assert countdown.due_at == clock() + timedelta(seconds=30)
    assert data_of(connection, "countdown.started")[0]["text"].startswith(
        "rollback to step 2 in 30 s unless cancelled: train/loss is 20"
    )


def test_an_alert_that_recovers_takes_its_countdown_along(connection, trainer):
    use_rules(connection, ACTING)
    logged(trainer, [1]).save(1)
    logged(trainer, [20, 1, 1], 2).send()
    assert countdowns_store.active_countdown(connection, "run") is None
    assert data_of(connection, "countdown.ended")[0]["outcome"] == "the alert is over"


def test_the_end_of_a_run_ends_countdown_and_command(connection, trainer, clock):
    use_rules(connection, ACTING)
    logged(trainer, [20]).end().send()
    assert countdowns_store.active_countdown(connection, "run") is None
    assert commands_store.active_command(connection, "run") is None
    assert data_of(connection, "countdown.ended")[0]["state"] == "withdrawn"


def test_points_of_an_unwatched_series_cost_no_state(connection, trainer):
    use_rules(connection, HIGH)
    trainer.log(1, grad_norm=1.0).send()
    assert rules_store.read_states(connection, "run") == ()


def test_judging_no_points_is_nothing(connection, clock):
    evaluation.judge_points(connection, "run", "", [], clock(), incarnation="i")


def test_an_alert_closed_by_the_end_says_at_which_step_and_still_speaks_against_the_last_checkpoint(connection, trainer):
    use_default_rules(connection)
    trainer.log(1, loss=1.0).log(2, loss=NAN).log(3, loss=NAN).end().save(3).send()
    alert = alerts_of(connection)["loss-not-finite"]
    assert (alert.closed_because, alert.resolved_step) == (CloseReason.RUN_ENDED, 3)
    (checkpoint,) = checkpoints_store.read_checkpoints(connection, "run")
    assert checkpoint.judged.state is CheckpointState.UNSOUND


def test_points_of_a_rank_that_come_after_another_rank_rewound_their_alert_tell_nothing(connection, clock):
    use_rules(connection, replace(HIGH, for_points=1, keep_firing_for_points=0))
    first = Trainer(connection, clock).start().log(1, loss=1.0).log(2, loss=20.0).send()
    Trainer(connection, clock, rank=1, incarnation="life-b", segment=2).start(from_step=1).send()
    assert alerts_of(connection)["high"].closed_because is CloseReason.REWOUND
    first.log(3, loss=1.0).send()
    assert alerts_of(connection)["high"].closed_because is CloseReason.REWOUND
    assert [kind for kind, _ in told(connection, prefix="alert.")] == ["alert.firing", "alert.rewound"]
