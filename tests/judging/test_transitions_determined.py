"""However a stream is cut, doubled, delayed or mixed with others, it gives one list of transitions; a rewind leaves what the kept
points alone would have given.

Random logs on SQLite and PostgreSQL, 500 of them under `make soak`, all through the real service that takes batches.
"""

import json
import math
import os
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from judging_kit import Trainer, use_default_rules, use_rules

from server.domain import judging, watching
from server.domain.default_rules import DEFAULT_RULES
from server.domain.points import Point
from server.domain.rules import AlertRule, DetectorKind
from server.services import rewinding
from server.services.errors import OutOfOrder
from server.store import alerts as alerts_store
from server.store import events as events_store
from server.store import rules as rules_store
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import SegmentCause, Severity

NAN, INF = math.nan, math.inf
RULES = (
    AlertRule(
        "high", "High", "High", "train/loss", DetectorKind.THRESHOLD, {"above": 10.0}, for_points=2, keep_firing_for_points=2
    ),
    AlertRule("rises", "Rises", "Rises", "train/*", DetectorKind.CONSECUTIVE_RISE, {"rises": 2.0}, keep_firing_for_points=1),
    AlertRule("eval", "Eval", "Eval", "eval/loss", DetectorKind.NONFINITE, for_points=2, keep_firing_for_points=0),
)
NAMES = (series.LOSS, series.GRAD_NORM, series.OVERFLOW, series.LOSS_SCALE, "eval/loss")
IS_WHOLE = bool(os.environ.get("LOSSGUARD_SOAK"))
LOGS = {"sqlite": 500 if IS_WHOLE else 60, "postgresql": 60 if IS_WHOLE else 6}
REWOUND = 100 if IS_WHOLE else 15
SNAPSHOT_RECORDS = 3


def a_log(chance, trainer):
    """Records of some segments, each going on from a step that an earlier one has reached; steps are repeated and left out."""
    trainer.open_segment(1, 0, SegmentCause.START)
    segment, step = 1, 0
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 16)):
            step += chance.choice((0, 1, 1, 1, 1, 7)) if step else 1
            values = {name: a_value(chance, name) for name in NAMES if chance.random() < 0.7}
            if values:
                trainer.records.append((segment, step, values))
        segment, step = segment + 1, chance.randrange(step + 1)
        trainer.open_segment(segment, step, chance.choice((SegmentCause.ROLLBACK, SegmentCause.RESTART)))
    return trainer


def a_value(chance, name):
    if name == series.OVERFLOW:
        return float(chance.random() < 0.4)
    return chance.choice((1 + chance.random(), 1 + chance.random(), 20.0, 20.0, 30.0, 0.0, NAN, INF, -INF))


def deliver(chance, trainer):
    """All records, in batches that overlap, come twice or come late; the server refuses what lies past its next record."""
    sent, last = 0, len(trainer.records)
    while sent < last:
        end = min(last, sent + chance.randrange(1, 25))
        first = max(1, sent + 1 - chance.randrange(6))
        if chance.random() < 0.2 and end < last:
            assert is_refused(trainer, end + 2, last)
        trainer.clock.advance(chance.random() * 3)
        for _ in range(chance.choice((1, 1, 2))):
            trainer.take(first, end)
        sent = end


def is_refused(trainer, first, last):
    if first > last:
        return True
    try:
        trainer.take(first, last)
    except OutOfOrder:
        return True
    return False


def outcome(connection, run_id="run"):
    """Every transition in its order, every episode and where every rule stands; as bytes."""
    told = reversed(events_store.newest(connection, run_id, limit=2000))
    alerts = [
        replace(each, onset_at=None, firing_at=None, resolved_at=None, incident_id=None, told=None)
        for each in alerts_store.read_alerts(connection, run_id, limit=2000)
    ]
    transitions = [
        (each.event.type, each.event.step, each.event.segment, {**each.event.data, "incident_id": None})
        for each in told
        if each.event.type.startswith("alert.")
    ]
    states = [(each.rule_id, each.series, each.segment, each.state) for each in rules_store.read_states(connection, run_id)]
    return json.dumps([transitions, sorted(map(repr, alerts)), states], default=str).encode()


def judged(connection, clock, seed, way, monkeypatch):
    """What a log comes to, sent at once or (`way`) in pieces; the database is as before afterwards.

    Sent at once, rewinds judge from the start; in pieces, from one of many snapshots.
    """
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", 1000 if way is None else SNAPSHOT_RECORDS)
    with connection.begin_nested() as attempt:
        log = a_log(random.Random(seed), Trainer(connection, clock))
        trainer = Trainer(connection, clock).start()
        trainer.records = log.records
        if way is None:
            trainer.take(1, len(trainer.records))
        else:
            deliver(random.Random(way), trainer)
        found = outcome(connection)
        attempt.rollback()
    connection.info.clear()
    return found


def test_however_a_log_comes_it_gives_the_same_transitions_byte_for_byte(connection, backend, clock, monkeypatch):
    """All rules are information here: what is said of incidents is another test's, and takes most of the time."""
    use_rules(connection, *(replace(rule, severity=Severity.INFO) for rule in (*DEFAULT_RULES, *RULES)))
    fired = 0

    @settings(
        max_examples=LOGS[backend],
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32), st.integers(0, 2**32))
    def check(seed, way):
        nonlocal fired
        whole = judged(connection, clock, seed, None, monkeypatch)
        fired += whole.count(b"alert.firing")
        assert judged(connection, clock, seed, way, monkeypatch) == whole, f"log {seed}, delivery {way}"

    check()
    assert fired > LOGS[backend]


def kept_of(records):
    """The points that the last segment has left standing, in their order."""
    kept = []
    for seq, record in enumerate(records, 1):
        if isinstance(record, tuple):
            segment, step, values = record
            kept += [Point(name, segment, 0, seq, step, 1.7e9 + seq, value) for name, value in sorted(values.items())]
        elif record.segment > 1:
            kept = [point for point in kept if point.step <= record.from_step]
    return kept


@pytest.mark.parametrize("snapshot_records", [SNAPSHOT_RECORDS, 1000])
def test_after_rewinds_nested_ones_too_rules_stand_where_the_kept_points_alone_bring_them(
    connection, clock, figure, monkeypatch, snapshot_records
):
    monkeypatch.setattr(rewinding, "SNAPSHOT_RECORDS", snapshot_records)
    use_default_rules(connection)
    use_rules(connection, *RULES)
    differing = 0
    for seed in range(REWOUND):
        with connection.begin_nested() as attempt:
            differing += standing_elsewhere(connection, clock, seed)
            attempt.rollback()
        connection.info.clear()
    figure("F35", f"rules that stand elsewhere after the rewinds of {REWOUND} logs", differing, at_most=0)


def standing_elsewhere(connection, clock, seed):
    """How many rules do, and no alert is open that was rewound."""
    log = a_log(random.Random(seed), Trainer(connection, clock))
    trainer = Trainer(connection, clock).start()
    trainer.records = log.records
    deliver(random.Random(seed), trainer)
    begun = {record.segment: record for record in trainer.records if not isinstance(record, tuple)}
    last = begun[max(begun)]
    causes = {segment: record.cause for segment, record in begun.items()}
    rules = {rule.rule_id: rule for rule in (*DEFAULT_RULES, *RULES)}
    goes_on = _GoesOn(causes)
    fresh = goes_on.judging = judging.Judging("run", "project", 0, rules.values(), goes_on)
    for point in kept_of(trainer.records):
        for _ in fresh.judge(point):
            pass
    stored = {(each.rule_id, each.series, each.rank): each for each in rules_store.read_states(connection, "run")}
    differing = 0
    for post in fresh.posts:
        watch = watching.begun(post.rule, post.watch, last.segment, last.cause)
        differing += stored[post.key].state["detector"] != watching.to_parsed(post.rule, watch)["detector"]
    assert all(alert.onset_step <= last.from_step for alert in alerts_store.open_alerts(connection, "run"))
    return differing


class _GoesOn:
    """A stand that carries a rule from segment to segment, without a database."""

    def __init__(self, causes):
        self._causes, self.judging = causes, None

    def __call__(self, rule, key, point):
        post = self.judging.post(key)
        if post is None:
            return watching.fresh(rule, point.segment)
        return watching.begun(rule, post.watch, point.segment, self._causes.get(point.segment))
