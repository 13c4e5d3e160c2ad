"""The three kinds of absence as pure reducers: who holds when, limits, and that none is ever another."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.detectors import DETECTORS, with_defaults
from server.domain.detectors.absence import (
    ABSENCES,
    FEW_GAPS,
    JUDGES,
    AbsenceState,
    Pulse,
    ended,
    lost,
    stall_due_at,
    stall_limit,
    stalled,
)
from server.domain.detectors.base import DetectorKind
from server.domain.liveness import MOST_GAPS, Pace, from_parsed, stepped, to_parsed, told
from server.domain.points import Point
from trainer_agent.wire.vocabulary import Phase, RunState

T0 = datetime(2026, 3, 1, tzinfo=UTC)
STALL = with_defaults(DetectorKind.STALLED, {})
ENDS = with_defaults(DetectorKind.ENDED, {"stopped": 1.0, "finished": 1.0})


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def pulse(state=RunState.RUNNING, phase=Phase.TRAINING, stepped_at=T0, since=T0, gaps=(1.0,) * 5, heard=0.0):
    return Pulse(state, phase, at(heard), stepped_at, since, gaps)


@pytest.mark.parametrize(("state", "phase"), list(product(RunState, [*Phase, None])))
def test_at_most_one_kind_holds_whatever_the_run_is_and_does(state, phase):
    for seconds in (0, 59, 61, 121, 10_000, 10**7):
        run, now = pulse(state, phase), at(seconds)
        verdicts = lost(run, {}, now), stalled(run, STALL, now), ended(run, ENDS, now)
        assert sum(verdict.holds is True for verdict in verdicts) <= 1
        assert verdicts[0].holds is (
            state is RunState.LOST if state in (RunState.LOST, RunState.RUNNING, RunState.PAUSED) else None
        )
        if state in (RunState.LOST, RunState.CREATED, RunState.FINISHED, RunState.FAILED, RunState.STOPPED):
            assert verdicts[1].holds is None, "nobody knows, or nothing is left to step"


@pytest.mark.parametrize(
    ("phase", "gaps", "limit"),
    [
        (Phase.TRAINING, (0.1,) * 5, 120),
        (Phase.TRAINING, (30.0,) * 5, 300),
        (Phase.TRAINING, (300.0,) * 5, 3000),
        (Phase.TRAINING, (1.0, 1.0, 1.0, 5000.0, 1.0), 120),
        (Phase.TRAINING, (300.0,) * (FEW_GAPS - 1), 1800),
        (Phase.STARTING, (), 1800),
        (Phase.STARTING, (300.0,) * 5, 3000),
        (Phase.EVALUATING, (1.0,) * 5, 3600),
        (Phase.EVALUATING, (600.0,) * 5, 6000),
        (Phase.SAVING, (1.0,) * 5, 1800),
        (Phase.ROLLING_BACK, (1.0,) * 5, 1800),
        (Phase.ENDING, (1.0,) * 5, 1800),
        (Phase.PAUSED, (1.0,) * 5, None),
        (Phase.HOLDING, (1.0,) * 5, None),
        (None, (1.0,) * 5, 120),
    ],
)
def test_the_limit_follows_the_pace_and_what_is_being_done(phase, gaps, limit):
    run = pulse(phase=phase, gaps=gaps)
    assert stall_limit(run, STALL) == limit
    if limit is not None:
        assert stall_due_at(run, STALL) == at(limit)
        heard = replace(run, heard_at=at(limit))
        assert [stalled(heard, STALL, at(limit + late)).holds for late in (-1, 0, 1)] == [False, True, True]


def test_it_counts_from_the_newest_step_or_from_what_it_began_since():
    assert pulse(stepped_at=at(5), since=T0).still_since == at(5)
    assert pulse(stepped_at=T0, since=at(7)).still_since == at(7)
    assert pulse(stepped_at=None, since=at(7)).still_since == at(7)


def test_of_a_silent_run_nobody_knows_whether_it_steps():
    """It is lost a little later; a rule with a short limit does not call it stalled before."""
    quick = STALL | {"floor_seconds": 30.0}
    assert stalled(pulse(heard=20), quick, at(31)).holds is True
    assert stalled(pulse(heard=0), quick, at(31)).holds is None


def test_the_evidence_says_the_pace_and_what_it_does():
    verdict = stalled(pulse(phase=Phase.EVALUATING, gaps=(2.0, 4.0, 3.0), heard=4000), STALL, at(4000))
    assert (verdict.value, verdict.limit, dict(verdict.evidence)) == (4000, 3600, {"median": 3.0, "evaluating": 1.0})


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.STOPPED, RunState.FINISHED])
def test_an_end_is_told_where_the_rule_says_so(state):
    assert ended(pulse(state), with_defaults(DetectorKind.ENDED, {state.value: 1.0}), T0).holds is True
    assert ended(pulse(state), with_defaults(DetectorKind.ENDED, {state.value: 0.0}), T0).holds is False


@pytest.mark.parametrize("value", [1.0, float("nan"), float("inf"), float("-inf")])
def test_a_point_is_never_judged(value):
    for kind in ABSENCES:
        state, verdict = DETECTORS[kind].step(AbsenceState(), Point("run/step", 1, 0, 1, 1, 0.0, value), {})
        assert (state, verdict.holds) == (AbsenceState(), None)
        assert kind in JUDGES


def walk(pace, moments, segment=1):
    """Steps 1, 2, 3 ... that come at these moments."""
    since, stored = None, (segment, 0)
    for step, seconds in enumerate(moments, 1):
        pace = stepped(pace, stored, (segment, step), since, at(seconds)).pace
        since, stored = at(seconds), (segment, step)
    return pace


def test_gaps_are_those_between_steps_and_at_most_so_many():
    assert walk(Pace(), [0, 30, 60, 95]).gaps == (30.0, 30.0, 35.0)
    assert len(walk(Pace(), range(0, 500, 5)).gaps) == MOST_GAPS


def test_quick_steps_give_one_gap_a_second():
    gaps = walk(Pace(), [each / 10 for each in range(101)]).gaps
    assert len(gaps) == 10
    assert set(gaps) == {0.1}


def test_a_backlog_counts_as_steps_and_says_nothing_of_the_pace():
    pace = told(walk(Pace(), [0, 300, 600, 900]), 1, 50)
    for step in range(5, 51):
        stride = stepped(pace, (1, step - 1), (1, step), at(900), at(1000 + step))
        assert stride.is_step
        pace = stride.pace
    assert pace.gaps == (300.0,) * 3
    assert stepped(pace, (1, 50), (1, 51), at(1050), at(1350)).pace.gaps[-1] == 300.0


def test_the_same_step_and_an_older_one_are_no_steps():
    assert not stepped(Pace(), (1, 5), (1, 5), T0, at(9)).is_step
    assert not stepped(Pace(), (2, 5), (1, 900), T0, at(9)).is_step
    assert stepped(Pace(), (1, 900), (2, 401), T0, at(9)).is_step


@given(st.lists(st.floats(0, 1e6), max_size=40), st.booleans())
def test_a_pace_comes_back_as_it_was_stored(moments, is_stalled):
    pace = walk(Pace(is_stalled=is_stalled), sorted(moments))
    assert from_parsed(to_parsed(pace)) == pace
    assert from_parsed(None) == Pace()
