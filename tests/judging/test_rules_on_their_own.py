"""What becomes of a rule: it fails, its series does not come, it matches too much, its pack is replaced, it is on trial."""

import json
import math
import time
from dataclasses import replace

import pytest
from figures import patience
from judging_kit import OWNER, Trainer, alerts_of, data_of, told, use_default_rules, use_rules

from server.domain import judging
from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors import DETECTORS
from server.domain.detectors.base import Verdict
from server.domain.points import Point
from server.domain.rule_notes import RuleNote
from server.domain.rules import Action, ActionKind, AlertRule, DetectorKind, Scope, ScopeKind
from server.services import ingest, rules
from server.store import checkpoints as checkpoints_store
from server.store import countdowns as countdowns_store
from server.store import rules as rules_store
from trainer_agent.wire.vocabulary import CheckpointState, Severity

HIGH = AlertRule("high", "High", "High", "train/loss", DetectorKind.THRESHOLD, {"above": 10.0})
BROKEN = replace(HIGH, rule_id="broken", name="Broken", detector=DetectorKind.FROZEN, settings={})
"""Whose detector the tests break: nobody else here uses it."""


def with_step(monkeypatch, step):
    broken = {**DETECTORS, DetectorKind.FROZEN: replace(DETECTORS[DetectorKind.FROZEN], step=step)}
    monkeypatch.setattr(judging, "DETECTORS", broken)


def raises(_state, point, _settings):
    if point.step == 3:
        raise ZeroDivisionError("by zero")
    return _state, Verdict(holds=False, value=point.value)


@pytest.fixture
def trainer(connection, clock):
    return Trainer(connection, clock).start()


def test_a_rule_that_raises_is_judged_no_more_and_neither_batch_nor_other_rules_suffer(connection, clock, trainer, monkeypatch):
    with_step(monkeypatch, raises)
    use_rules(connection, HIGH, BROKEN)
    for step in range(1, 6):
        trainer.log(step, loss=20.0)
    trainer.send(3)
    assert alerts_of(connection)["high"].firing_step == 1
    (failed,) = data_of(connection, "rule.failed")
    assert failed["text"] == (
        "The rule Broken is judged no more until it is changed: its detector raised ZeroDivisionError: by zero"
    )
    assert rules_store.read_failures(connection)["broken"]["step"] == 3
    trainer.log(6, loss=20.0).send()
    assert len(data_of(connection, "rule.failed")) == 1
    monkeypatch.undo()
    rules.change(connection, "broken", {"for_points": 2}, "ann", clock())
    assert rules_store.read_failures(connection) == {}


def test_a_hundred_rules_of_which_one_raises_and_one_sleeps_are_on_time(connection, clock, trainer, monkeypatch, figure):
    """F34. The one that sleeps is measured once more, since a machine may stand still; from then on nobody waits for it."""

    naps = []

    def breaks(state, point, settings):
        if point.series == "train/loss":
            return raises(state, replace(point, step=3), settings)
        naps.append(point.step)
        time.sleep(2.0)
        return state, Verdict(holds=False, value=point.value)

    with_step(monkeypatch, breaks)
    fine = [replace(HIGH, rule_id=f"fine-{number}", severity=Severity.INFO) for number in range(98)]
    use_rules(connection, *fine, BROKEN, replace(BROKEN, rule_id="sleepy", name="Sleepy", series="train/grad_norm"))
    trainer.log(1, loss=1.0, grad_norm=1.0)
    ingest.take_batch(connection, trainer.batch(1, 2), OWNER, clock(), uptime=time.monotonic)
    assert {each["rule_id"] for each in data_of(connection, "rule.failed")} == {"broken", "sleepy"}
    trainer.log(2, loss=1.0, grad_norm=1.0).log(3, loss=20.0, grad_norm=1.0)
    began = time.monotonic()
    ingest.take_batch(connection, trainer.batch(3, 3), OWNER, clock(), uptime=time.monotonic)
    took = time.monotonic() - began
    assert set(naps) == {1}, "it is left out"
    trainer.take(4, 4)
    assert sum(kind == "alert.firing" for kind, _ in told(connection)) == 98
    figure("F34", "seconds of the batch after one in which a rule of 100 has slept 2 s", took, at_most=patience(1.0))


def test_a_machine_that_stands_still_once_makes_no_rule_fail():
    ticks = iter([0.0, 1.0, 2.0, 2.0001] + [3.0] * 100)
    made = judging.Judging("run", "p", 0, [HIGH], clock=lambda: next(ticks))
    assert list(made.judge(Point("train/loss", 1, 0, 1, 1, 0.0, 1.0))) == []
    assert made.failures == {}


def test_a_rule_that_raises_at_a_companions_point_is_judged_no_more_and_the_others_go_on(monkeypatch):
    def blind(_state, _point, _settings):
        raise ZeroDivisionError("by zero")

    broken = {**DETECTORS, DetectorKind.ZERO: replace(DETECTORS[DetectorKind.ZERO], observe=blind)}
    monkeypatch.setattr(judging, "DETECTORS", broken)
    zero = replace(HIGH, rule_id="zero", detector=DetectorKind.ZERO, settings={})
    made = judging.Judging("run", "p", 0, [zero, HIGH, replace(HIGH, rule_id="norm", series="train/grad_norm")])
    changed = [made.judge(Point(name, 1, 0, 1, 1, 0.0, 20.0)) for name in ("train/grad_norm", "train/loss")]
    assert [[each.rule.rule_id for each in changes] for changes in changed] == [["norm"], ["high"]]
    assert made.failures["zero"].text == "its detector raised ZeroDivisionError: by zero"


def test_what_a_point_changes_is_the_same_with_an_eye_on_the_clock_and_without():
    plain, timed = (judging.Judging("run", "p", 0, DEFAULT_RULES, clock=clock) for clock in (None, lambda: 1.0))
    fired = 0
    for step in range(1, 400):
        for name, usual in (("train/grad_norm", 1.0), ("train/loss", 2.0)):
            point = Point(name, 1, 0, step, step, 0.0, usual * (30.0 if step % 100 in range(60, 70) else 1 + step % 7 / 100))
            changes = plain.judge(point)
            assert changes == timed.judge(point)
            fired += len(changes)
    assert fired > 10
    assert [post.watch for post in plain.posts] == [post.watch for post in timed.posts]


def test_a_rule_whose_series_does_not_come_is_noted_once_and_taken_back_when_it_does(connection, clock, trainer):
    use_default_rules(connection)
    use_rules(connection, replace(HIGH, series="train/los"))
    for step in range(1, 251):
        trainer.log(step, grad_norm=1.0)
    trainer.send(*range(10, 250, 10))
    (note,) = data_of(connection, "rule.noted")
    assert (note["rule_id"], note["what"]) == ("high", "never_seen")
    assert [(rule, run) for rule, _, run, _ in rules_store.read_notes(connection, RuleNote.NEVER_SEEN)] == [("high", "run")]
    assert ("rule.noted", 200) in told(connection)
    trainer.records.append((1, 251, {"train/los": 1.0}))
    trainer.send()
    assert rules_store.read_notes(connection, RuleNote.NEVER_SEEN) == ()


def test_a_pattern_watches_no_more_series_than_it_may_and_says_so_once(connection, clock, trainer, monkeypatch):
    monkeypatch.setattr(judging, "MAX_SERIES", 5)
    use_rules(connection, replace(HIGH, series="*"))
    for step in range(1, 4):
        trainer.records.append((1, step, {f"train/m{number}": 20.0 for number in range(9)}))
        trainer.send()
    assert {each.series for each in rules_store.read_states(connection, "run", 0)} == {f"train/m{number}" for number in range(5)}
    assert [each["what"] for each in data_of(connection, "rule.noted")] == ["too_many_series"]


def test_a_rule_on_trial_is_seen_and_nothing_follows_from_it(connection, clock, trainer):
    acts = Action(ActionKind.STOP, countdown_seconds=5.0)
    use_rules(connection, replace(HIGH, trial=True, severity=Severity.CRITICAL, action=acts))
    trainer.log(1, loss=20.0).save(1).send()
    alert = alerts_of(connection)["high"]
    assert (alert.trial, alert.incident_id) == (True, None)
    assert countdowns_store.active_countdown(connection, "run") is None
    (checkpoint,) = checkpoints_store.read_checkpoints(connection, "run")
    assert checkpoint.judged.state is CheckpointState.SOUND


@pytest.mark.parametrize(
    ("scope", "watched"),
    [
        (Scope(), {"run", "other"}),
        (Scope(ScopeKind.PROJECT, "project"), {"run", "other"}),
        (Scope(ScopeKind.PROJECT, "elsewhere"), set()),
        (Scope(ScopeKind.RUN, "other"), {"other"}),
    ],
)
def test_a_rule_watches_the_runs_of_its_scope(connection, clock, trainer, scope, watched):
    use_rules(connection, replace(HIGH, scope=scope))
    other = Trainer(connection, clock, run_id="other").start()
    for each in (trainer, other):
        each.log(1, loss=20.0).send()
    assert {run for run in ("run", "other") if alerts_of(connection, run)} == watched


def test_a_newer_pack_replaces_what_nobody_has_edited_and_leaves_the_rest(connection, clock, trainer):
    first, second, third = (replace(HIGH, rule_id=name) for name in ("kept", "edited", "gone"))
    rules.ensure_rules(connection, clock(), [first, second, third])
    rules.change(connection, "edited", {"for_points": 3}, "ann", clock())
    trainer.log(1, loss=20.0).send()
    newer = [replace(each, settings={"above": 30.0}) for each in (first, second)]
    rules.ensure_rules(connection, clock(), [replace(HIGH, rule_id="new"), *newer])
    found = {each.rule_id: each for each in rules_store.read_rules(connection)}
    assert list(found) == ["new", "kept", "edited"]
    assert (found["kept"].settings, found["kept"].version, found["kept"].edited) == ({"above": 30.0}, 2, False)
    assert (found["edited"].settings, found["edited"].for_points) == ({"above": 10.0}, 3)
    assert alerts_of(connection)["kept"].closed_because == "rule_changed"
    version = found["kept"].version
    rules.ensure_rules(connection, clock(), [replace(HIGH, rule_id="new"), *newer])
    assert rules_store.read_rule(connection, "kept").version == version


def test_a_state_that_an_earlier_server_left_and_nobody_can_read_begins_anew(connection, clock, trainer):
    use_rules(connection, HIGH)
    trainer.log(1, loss=20.0).send()
    (state,) = rules_store.read_states(connection, "run", 0)
    rules_store.save_states(connection, "run", [replace(state, state={"what": "is this"})])
    trainer.log(2, loss=20.0).log(3, loss=1.0).send()
    assert [kind for kind, _ in told(connection, prefix="alert")] == ["alert.firing"]
    assert alerts_of(connection)["high"].state == "recovering"


def test_every_default_rule_stands_the_same_after_it_was_stored_and_read(connection, clock, trainer):
    """Whatever is logged, numbers that are none among it."""
    use_default_rules(connection)
    names = sorted({rule.series for rule in DEFAULT_RULES if not rule.series.startswith("run/")})
    values = [1.0, 2.0, math.nan, 0.0, 3.0, math.inf, 1e300, -math.inf, 5.0]
    for step in range(1, 60):
        trainer.records.append((1, step, {name: values[(step + place) % 9] for place, name in enumerate(names)}))
    trainer.take(1, len(trainer.records))
    whole = {(each.rule_id, each.series): each.state for each in rules_store.read_states(connection, "run")}
    other = Trainer(connection, clock, run_id="other").start()
    other.records = trainer.records
    other.send(*range(1, 60))
    cut = {(each.rule_id, each.series): each.state for each in rules_store.read_states(connection, "other")}
    for key, state in whole.items():
        assert json.dumps(cut[key]["detector"]) == json.dumps(state["detector"]), key
