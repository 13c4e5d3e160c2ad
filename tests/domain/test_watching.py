"""A rule at its post: the same points give the same place, however they came; a rewind forgets what was rewound."""

import itertools
import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import make_points, points_of

from server.domain import watching
from server.domain.alerts import AlertStatus
from server.domain.default_rules import DEFAULT_RULES
from server.domain.rules import AlertRule, DetectorKind
from trainer_agent.wire.vocabulary import AlertState

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RULE = AlertRule("r", "R", "R", "train/loss", DetectorKind.THRESHOLD, {"above": 10.0}, for_points=2, keep_firing_for_points=3)
VALUES = st.lists(st.sampled_from([1.0, 20.0, math.nan, math.inf]), max_size=60)


def walk(rule, watch, points):
    told = []
    for point in points:
        judgement = watching.judge(rule, watch, point, "run")
        watch = judgement.watch
        if judgement.outcome.changed:
            told.append((point.step, judgement.outcome.after))
    return watch, told


@given(VALUES, st.lists(st.integers(0, 60)))
def test_however_the_points_are_cut_a_rule_stands_in_the_same_place(values, cuts):
    points = make_points(values)
    whole = walk(RULE, watching.fresh(RULE, 1), points)
    watch, told = watching.fresh(RULE, 1), []
    edges = sorted({0, len(points), *(cut for cut in cuts if cut <= len(points))})
    for start, end in itertools.pairwise(edges):
        watch, more = walk(RULE, watch, points[start:end])
        watch = watching.from_parsed(RULE, json.loads(json.dumps(watching.to_parsed(RULE, watch), allow_nan=False)), 1)
        told += more
    assert (watch, told) == whole


@given(VALUES, st.integers(0, 60))
def test_after_a_rewind_a_rule_stands_where_the_kept_points_alone_would_have_brought_it(values, kept):
    points = make_points(values)[:kept]
    fresh, _ = walk(RULE, watching.fresh(RULE, 1), points)
    again = watching.replay(RULE, points, 2, None)
    assert (again.detector, again.segment) == (fresh.detector, 2)
    assert again.status == AlertStatus()


def test_the_same_episode_has_the_same_id_and_another_one_another():
    point = make_points([20.0])[0]
    first = watching.episode_id("run", RULE, point)
    assert first == watching.episode_id("run", RULE, point)
    others = [replace(point, seq=2), replace(point, segment=2), replace(point, rank=1)]
    ids = {first, watching.episode_id("run", replace(RULE, version=2), point), watching.episode_id("other", RULE, point)}
    assert len(ids | {watching.episode_id("run", RULE, other) for other in others}) == 6


@pytest.mark.parametrize("time", [math.nan, math.inf, -1e30, 0.0, 1e30])
def test_a_clock_that_cannot_be_right_is_not_believed(time):
    assert watching.time_of(replace(make_points([1.0])[0], time=time), NOW) == NOW


def test_a_point_is_never_from_the_future():
    assert watching.time_of(replace(make_points([1.0])[0], time=NOW.timestamp() + 86_400), NOW) == NOW


def test_the_default_pack_warns_of_the_recorded_death_long_before_it_and_says_nothing_of_its_twin():
    columns = {"train/loss": "loss", "train/grad_norm": "grad_norm", "amp/overflow": "skipped"}

    def first_firings(run):
        found = {}
        for rule in DEFAULT_RULES:
            if rule.series in columns:
                _, told = walk(rule, watching.fresh(rule, 1), points_of(run, columns[rule.series]))
                fired = [step for step, after in told if after is AlertState.FIRING]
                found |= {rule.rule_id: fired[0]} if fired else {}
        return found

    assert first_firings("healthy") == {}
    assert first_firings("dies") == {
        "grad-norm-spike": 217,
        "loss-spike": 219,
        "grad-norm-not-finite": 222,
        "steps-skipped-often": 222,
        "grad-norm-ramp": 223,
        "loss-diverges": 223,
        "grad-norm-over-10": 225,
        "loss-not-finite": 235,
        "steps-skipped": 238,
    }
