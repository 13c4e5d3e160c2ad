"""Verdicts on checkpoints, the choice of a target, and the window of data that a rollback passes over."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.alerts import Alert, CloseReason
from server.domain.checkpoints import (
    MARGIN_STEPS,
    Candidate,
    Judged,
    choose_target,
    first_sign,
    is_superseded,
    judge,
    sign_against,
    skip_from,
    worsened,
)
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import AlertState, CheckpointState, Severity

C = CheckpointState
NOW = datetime(2026, 3, 1, tzinfo=UTC)
FACTS = CheckpointSaved(
    "c200", 1, 200, 0.0, C.COMPLETE, parts=("model", "optimizer", "scaler"), nonfinite_weights=0, nonfinite_optimizer=0
)
ALERT = Alert(
    "run", "a", "r", 1, "R", "R", Severity.WARNING, "train/loss", 0, 1, AlertState.FIRING, 214, NOW, 1.0, None, {}, "", 214, NOW
)


@pytest.mark.parametrize(
    ("change", "sign", "state", "reason"),
    [
        ({}, None, C.SOUND, "weights and optimizer finite, scaler present"),
        ({"nonfinite_weights": 7}, None, C.UNSOUND, "7 weights are not finite"),
        ({"nonfinite_optimizer": 2}, None, C.UNSOUND, "2 optimizer values are not finite"),
        ({"nonfinite_weights": None}, None, C.COMPLETE, "weights or optimizer not checked"),
        ({"nonfinite_weights": None}, 150, C.UNSOUND, "50 steps after the first sign (150)"),
        ({"sick_because": "3 of the last 4 steps skipped"}, None, C.UNSOUND, "3 of the last 4 steps skipped"),
        ({"parts": ("model", "scaler")}, None, C.UNSOUND, "holds no optimizer"),
        ({"parts": ("model", "optimizer")}, None, C.UNSOUND, "holds no scaler"),
        ({}, 200, C.UNSOUND, "saved 0 steps after the first sign (200)"),
        ({"state": C.CORRUPT, "problem": "model.safetensors is short"}, None, C.CORRUPT, "model.safetensors is short"),
        ({"state": C.DELETED}, None, C.DELETED, "the agent says deleted"),
        ({"state": C.WRITING, "nonfinite_weights": 7}, None, C.WRITING, "the agent says writing"),
    ],
)
def test_the_verdict_follows_from_the_facts_and_the_first_sign(change, sign, state, reason):
    judged = judge(replace(FACTS, **change), sign, needs_scaler=True)
    assert judged.state is state
    assert reason in judged.reason


@pytest.mark.parametrize("before", list(C))
def test_a_verdict_only_ever_gets_worse(before):
    known = Judged(before, "as it was")
    assert worsened(known, FACTS, None, needs_scaler=False) == known
    lowered = worsened(known, FACTS, 150, needs_scaler=False)
    assert (lowered.state is C.UNSOUND) == (before in (C.SOUND, C.COMPLETE, C.UNSOUND))


@pytest.mark.parametrize(
    ("change", "segment", "step", "from_steps", "sign"),
    [
        ({}, 1, 213, {1: 0}, None),
        ({}, 1, 214, {1: 0}, 214),
        ({}, 1, 9999, {1: 0}, 214),
        ({"severity": Severity.INFO}, 1, 250, {1: 0}, None),
        ({"state": AlertState.PENDING, "firing_step": None}, 1, 250, {1: 0}, None),
        ({"closed_because": CloseReason.RECOVERED, "resolved_step": 240}, 1, 239, {1: 0}, 214),
        ({"closed_because": CloseReason.RECOVERED, "resolved_step": 240}, 1, 240, {1: 0}, None),
        ({"closed_because": CloseReason.RULE_CHANGED, "resolved_step": 240}, 1, 300, {1: 0}, None),
        ({"closed_because": CloseReason.REWOUND}, 1, 250, {1: 0, 2: 200}, 214),  # the stretch that was left is still sick
        ({"closed_because": CloseReason.REWOUND}, 2, 250, {1: 0, 2: 200}, None),  # and what went on from before it is not
        ({}, 2, 250, {1: 0, 2: 200}, None),
        ({}, 2, 250, {1: 0, 2: 220}, 214),  # a restart from inside the trouble takes the trouble along
        ({"closed_because": CloseReason.RUN_ENDED}, 2, 250, {1: 0, 2: 220}, None),
        ({"segment": 2}, 1, 250, {1: 0, 2: 230}, None),
    ],
)
def test_trouble_counts_against_what_was_saved_in_it(change, segment, step, from_steps, sign):
    assert sign_against(segment, step, [replace(ALERT, **change)], from_steps) == sign


def test_the_first_sign_is_the_earliest_open_onset_pending_included():
    pending = replace(ALERT, state=AlertState.PENDING, onset_step=190, firing_step=None)
    info = replace(ALERT, severity=Severity.INFO, onset_step=10)
    over = replace(ALERT, state=AlertState.RESOLVED, onset_step=20)
    assert first_sign([ALERT, pending, info, over]) == 190
    assert first_sign([info, over]) is None


def candidate(step, state=C.SOUND, segment=1):
    return Candidate(f"c{segment}-{step}", segment, step, Judged(state, f"is {state}"))


def test_the_target_is_the_newest_sound_one_older_than_the_first_sign_and_the_others_say_why_not():
    found = [candidate(50), candidate(200), candidate(220), candidate(150), candidate(230, C.UNSOUND), candidate(240, C.DELETED)]
    choice = choose_target(found, 214, {1: 0})
    assert choice.target == candidate(200)
    assert [(each.step, why) for each, why in choice.passed_over] == [
        (240, "is deleted"),
        (230, "is unsound"),
        (220, "not older than the first sign (214)"),
    ]


def test_a_checkpoint_just_before_the_onset_is_passed_over_while_there_is_an_older_one():
    choice = choose_target([candidate(100), candidate(210)], 214, {1: 0})
    assert choice.target == candidate(100)
    assert choice.passed_over[0][1].startswith("4 steps before the first sign (214)")
    assert choose_target([candidate(210)], 214, {1: 0}).target == candidate(210)


def test_a_checkpoint_at_the_very_onset_is_not_older_than_it():
    assert choose_target([candidate(214)], 214, {1: 0}).target is None


def test_without_trouble_the_target_is_the_newest_sound_one():
    assert choose_target([candidate(50), candidate(100)], None, {}).target == candidate(100)


def test_what_a_rollback_has_left_behind_is_no_target():
    found = [candidate(200), candidate(250), candidate(210, segment=2)]
    choice = choose_target(found, None, {1: 0, 2: 200})
    assert choice.target == candidate(210, segment=2)
    assert choice.passed_over == ()
    assert choose_target([candidate(250)], None, {1: 0, 2: 200}).target is None


@pytest.mark.parametrize(
    ("segment", "step", "superseded"), [(1, 200, False), (1, 201, True), (2, 260, True), (2, 220, False), (3, 999, False)]
)
def test_a_segment_reaches_up_to_where_a_later_one_started(segment, step, superseded):
    assert is_superseded(segment, step, {1: 0, 2: 200, 3: 220}) is superseded


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(list(C)), st.integers(1, 3)), max_size=12),
    st.one_of(st.none(), st.integers(0, 50)),
    st.integers(0, 50),
)
def test_the_target_is_always_sound_older_than_the_sign_and_on_the_curve(found, sign, cut):
    from_steps = {1: 0, 2: cut, 3: cut}
    target = choose_target([candidate(step, state, segment) for step, state, segment in found], sign, from_steps).target
    fit = [
        step
        for step, state, segment in found
        if state is C.SOUND and (sign is None or step < sign) and not is_superseded(segment, step, from_steps)
    ]
    clear = [step for step in fit if sign is None or step < sign - MARGIN_STEPS]
    assert (None if target is None else target.step) == max(clear or fit, default=None)


@pytest.mark.parametrize(("target", "onset", "first"), [(200, 214, 201), (100, 214, 189), (200, None, 201), (200, 201, 201)])
def test_the_skipped_window_begins_before_the_onset_but_never_before_the_target(target, onset, first):
    assert skip_from(target, onset) == first
