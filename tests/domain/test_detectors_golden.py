"""What every detector says of values that are not finite: declared here, one row a detector; one without a row fails."""

import json
import math

import pytest
from recorded_runs import make_points

from server.domain.detectors import DETECTORS, with_defaults
from server.domain.detectors.base import RANKS, DetectorKind

NAN, INF = math.nan, math.inf
QUIET = [1.0 + 0.01 * math.sin(n * n) for n in range(60)]
MIXED = [(NAN, INF, -INF)[n // 7 % 3] if n % 7 == 0 else value for n, value in enumerate(QUIET)]

WINDOWS = {
    "NaN first": [NAN],
    "+inf first": [INF],
    "-inf first": [-INF],
    "empty window": [1.0],
    "all-NaN window": [NAN] * 60 + [1.0],
    "mixed window": [*MIXED, 1.0],
    "NaN": [*QUIET, NAN],
    "+inf": [*QUIET, INF],
    "-inf": [*QUIET, -INF],
}
"""What came before the point that is judged, and the point itself, which is the last."""

_ = None
_UNJUDGED = (_, _, _, _, _, _, _, _, _)
_VALUES_ONLY = (_, _, _, False, False, False, _, _, _)
GOLDEN = {
    DetectorKind.THRESHOLD: _VALUES_ONLY,
    DetectorKind.NONFINITE: (True, True, True, False, False, False, True, True, True),
    DetectorKind.CONSECUTIVE_RISE: _VALUES_ONLY,
    DetectorKind.SPIKE: (_, _, _, _, _, False, _, _, _),
    DetectorKind.RAMP: _UNJUDGED,  # the point is within a stretch
    DetectorKind.DIVERGENCE: (_, _, _, _, _, False, _, _, _),
    DetectorKind.PLATEAU: _UNJUDGED,  # 60 points are too few
    DetectorKind.FROZEN: _VALUES_ONLY,
    DetectorKind.ZERO: _VALUES_ONLY,
    DetectorKind.SKIP_STREAK: (_, _, _, False, False, True, _, _, _),  # values above 0 are skipped steps
    DetectorKind.SKIP_SHARE: _VALUES_ONLY,
    DetectorKind.LOSS_SCALE: _UNJUDGED,
    DetectorKind.DISCONTINUITY: _VALUES_ONLY,
    DetectorKind.SLOWDOWN: _UNJUDGED,
    DetectorKind.CREEP: _UNJUDGED,
    DetectorKind.STRAGGLER: _UNJUDGED,
    DetectorKind.LOST: _UNJUDGED,  # no point is judged by the rules of absence
    DetectorKind.STALLED: _UNJUDGED,
    DetectorKind.ENDED: _UNJUDGED,
}
"""Whether each holds at the last point of each window above; None where it says nothing of it."""


def settings_for(kind):
    return with_defaults(kind, {"above": 1e9} if kind is DetectorKind.THRESHOLD else {}) | {RANKS: 2.0}


def last_of(kind, values):
    detector, settings = DETECTORS[kind], settings_for(kind)
    state, verdict = detector.start(), None
    for point in make_points(values):
        state, verdict = detector.step(state, point, settings)
    json.dumps(detector.stored(state), allow_nan=False)  # whatever came, the state can be kept
    return verdict


@pytest.mark.parametrize("kind", DETECTORS)
@pytest.mark.parametrize("window", WINDOWS)
def test_what_each_detector_says_of_a_value_that_is_not_finite_is_declared(kind, window):
    assert kind in GOLDEN, f"{kind} needs a row in GOLDEN: what it says of non-finite values"
    assert last_of(kind, WINDOWS[window]).holds is GOLDEN[kind][list(WINDOWS).index(window)]


@pytest.mark.parametrize("kind", [kind for kind in DETECTORS if kind is not DetectorKind.NONFINITE])
def test_a_thousand_non_finite_values_hold_nothing_but_nonfinite(kind):
    detector, settings = DETECTORS[kind], settings_for(kind)
    state = detector.start()
    for point in make_points([NAN, INF, -INF] * 333):
        state, verdict = detector.step(state, point, settings)
        assert verdict.holds is None


@pytest.mark.parametrize("kind", [kind for kind, detector in DETECTORS.items() if detector.observe is not None])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.0, -1.0, 5e-324, 1e308])
def test_a_companion_may_be_any_number(kind, value):
    detector, settings = DETECTORS[kind], settings_for(kind)
    state = detector.start()
    for loss, companion in zip(make_points(QUIET), make_points([value] * 60, detector.companions[0]), strict=True):
        state = detector.observe(state, companion, settings)
        state, verdict = detector.step(state, loss, settings)
        assert not verdict.holds
    assert detector.restore(json.loads(json.dumps(detector.stored(state), allow_nan=False))) == state


@pytest.mark.parametrize("kind", DETECTORS)
def test_numbers_of_any_size_break_nothing(kind):
    values = [1e300, 5e-324, -1e300, 0.0, -0.0, 1e300, 1e300] * 30 + [1e300] * 60
    last_of(kind, values)
    last_of(kind, [5e-324, 1e300] * 60)
