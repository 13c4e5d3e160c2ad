"""The alert machine: the table, the counting, and random lives."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain import alerts
from server.domain.alerts import OPEN, TRANSITIONS, AlertInput, AlertStatus
from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors.base import Verdict
from server.domain.rules import AlertRule, DetectorKind
from server.domain.wording import describe
from trainer_agent.wire.vocabulary import AlertState

PENDING, FIRING, RECOVERING, RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING, AlertState.RESOLVED
RULE = AlertRule("r", "R", "R", "train/loss", DetectorKind.NONFINITE, for_points=3, keep_firing_for_points=2)
HOLDS = {"h": True, ".": False, "?": None}


def life(signs, rule=RULE):
    """States after each sign: h holds, . does not, ? cannot be judged."""
    status, states = AlertStatus(), []
    for step, sign in enumerate(signs, 1):
        outcome = alerts.step(status, Verdict(HOLDS[sign], 1.0), rule, step, lambda step=step: f"a{step}")
        states.append(outcome.after)
        status = outcome.status
    return states


@pytest.mark.parametrize(
    ("signs", "states"),
    [
        ("hhh", [PENDING, PENDING, FIRING]),
        ("hh.hh.", [PENDING, PENDING, None] * 2),
        ("hh?h", [PENDING, PENDING, PENDING, FIRING]),
        ("hhh.h.", [PENDING, PENDING, FIRING, RECOVERING, FIRING, RECOVERING]),
        ("hhh..", [PENDING, PENDING, FIRING, RECOVERING, RESOLVED]),
        ("hhh.?.", [PENDING, PENDING, FIRING, RECOVERING, RECOVERING, RESOLVED]),
        ("hhh..h", [PENDING, PENDING, FIRING, RECOVERING, RESOLVED, PENDING]),
        ("?.?", [None, None, None]),
    ],
)
def test_points_carry_an_alert_through_its_life(signs, states):
    assert life(signs) == states


def test_a_rule_that_needs_one_point_fires_at_that_point():
    assert life("h", replace(RULE, for_points=1)) == [FIRING]


def test_a_rule_that_keeps_nothing_is_over_at_the_first_clear_point():
    assert life("h.", replace(RULE, for_points=1, keep_firing_for_points=0)) == [FIRING, RESOLVED]


def test_an_alternating_condition_fires_once_and_is_over_once():
    states = life("h." * 1000 + "." * 10, replace(RULE, for_points=1, keep_firing_for_points=10))
    assert states.count(RESOLVED) == 1
    begun = [after for before, after in zip([None, *states], states, strict=False) if before is None and after is FIRING]
    assert len(begun) == 1


def test_the_onset_is_the_first_point_of_the_episode():
    status = AlertStatus()
    for step, holds in ((4, False), (5, True), (6, True), (7, True)):
        status = alerts.step(status, Verdict(holds, math.nan), RULE, step, lambda step=step: f"a{step}").status
    assert (status.state, status.alert_id, status.onset_step) == (FIRING, "a5", 5)


def test_every_pair_without_an_arrow_changes_nothing():
    for state, what in product([None, *AlertState], AlertInput):
        if (state, what) not in TRANSITIONS:
            assert alerts._next(state, what) is state


def test_resolved_is_the_end_and_every_state_can_be_reached():
    assert not [pair for pair in TRANSITIONS if pair[0] is RESOLVED]
    assert {after for after in TRANSITIONS.values() if after is not None} == set(AlertState)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_whatever_is_open_can_be_cut_off_and_pending_leaves_nothing(state):
    outcome = alerts.close(AlertStatus(state, "a", 1))
    assert outcome.after is (None if state is PENDING else RESOLVED)
    assert outcome.status == AlertStatus()


@given(st.text("h.?", max_size=80), st.integers(1, 4), st.integers(0, 4))
def test_in_any_life_only_drawn_arrows_are_walked(signs, for_points, keep):
    states = life(signs, replace(RULE, for_points=for_points, keep_firing_for_points=keep))
    arrows = {(before, after) for (before, _), after in TRANSITIONS.items()}
    before = None
    for after, sign in zip(states, signs, strict=True):
        assert after is before or (before, after) in arrows
        assert sign != "?" or after is before
        before = None if after is RESOLVED else after


@given(st.text("h.?", max_size=60), st.integers(1, 4), st.integers(0, 4))
def test_an_alert_never_fires_before_its_points_in_a_row(signs, for_points, keep):
    states = life(signs, replace(RULE, for_points=for_points, keep_firing_for_points=keep))
    judged = [(sign, after) for sign, after in zip(signs, states, strict=True) if sign != "?"]
    for n, (_, after) in enumerate(judged):
        if after is FIRING and (n == 0 or judged[n - 1][1] in (None, PENDING, RESOLVED)):
            assert [sign for sign, _ in judged[max(0, n - for_points + 1) : n + 1]] == ["h"] * for_points


@pytest.mark.parametrize(
    ("rule_id", "verdict", "text"),
    [
        ("loss-not-finite", Verdict(holds=True, value=math.nan), "train/loss is NaN, since step 7"),
        ("loss-not-finite", Verdict(holds=True, value=-math.inf), "train/loss is -Inf, since step 7"),
        (
            "grad-norm-over-10",
            Verdict(holds=True, value=12.5, limit=10.0, evidence=(("above", 10.0),)),
            "train/grad_norm is 12.5, above the limit of 10, since step 7",
        ),
        (
            "grad-norm-over-10",
            Verdict(holds=True, value=0.5, limit=1.0, evidence=(("below", 1.0),)),
            "train/grad_norm is 0.5, below the limit of 1, since step 7",
        ),
        (
            "grad-norm-spike",
            Verdict(holds=True, value=12.5, limit=6.9, evidence=(("median", 2.3), ("points", 128.0), ("times", 3.0))),
            "train/grad_norm is 12.5 = 5.4x the median of the last 128 points, limit 3x, since step 7",
        ),
        (
            "steps-skipped",
            Verdict(holds=True, value=1.0, limit=4.0, evidence=(("streak", 4.0), ("first_step", 4.0))),
            "4 optimizer steps in a row were skipped by the loss scaler (amp/overflow), since step 7",
        ),
        (
            "loss-rises-5",
            Verdict(holds=True, value=12.1, evidence=(("rises", 5.0), ("start", 4.15))),
            "train/loss rose 5 times in a row, from 4.15 to 12.1, since step 7",
        ),
    ],
)
def test_an_alert_says_series_value_limit_and_since_when(rule_id, verdict, text):
    rule = next(rule for rule in DEFAULT_RULES if rule.rule_id == rule_id)
    assert describe(rule, verdict, 7) == text


def test_another_rank_is_named():
    assert (
        describe(DEFAULT_RULES[0], Verdict(holds=True, value=math.inf), 3, rank=2) == "train/loss is Inf on rank 2, since step 3"
    )


def test_a_median_of_zero_divides_nothing():
    rule = next(rule for rule in DEFAULT_RULES if rule.rule_id == "grad-norm-spike")
    said = Verdict(holds=True, value=1.0, limit=0.0, evidence=(("median", 0.0), ("points", 40.0), ("times", 3.0)))
    assert "the median of the last 40 points 0" in describe(rule, said, 1)
