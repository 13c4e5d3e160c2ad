"""Each detector on tables of values, on the recorded runs, and against a plain restatement of its rule."""

import json
import math
import statistics
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from recorded_runs import make_points, points_of

from server.domain.detectors import DETECTORS, DetectorKind, with_defaults
from server.domain.detectors.spike import WINDOW, SpikeState
from server.domain.detectors.windows import median, median_distance
from trainer_agent.wire import series
from trainer_agent.wire.codec import MAX_STEP

NAN, INF = math.nan, math.inf
ANY_NUMBER = st.floats(allow_nan=True, allow_infinity=True)


def verdicts(kind, points, **settings):
    detector = DETECTORS[kind]
    state, out = detector.start(), []
    for point in points:
        state, verdict = detector.step(state, point, with_defaults(kind, settings))
        out.append(verdict)
    return out


def holds(kind, values, **settings):
    return [verdict.holds for verdict in verdicts(kind, make_points(values), **settings)]


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([9.9, 10, 10.1], {"above": 10}, [False, False, True]),
        ([NAN, INF, -INF], {"above": 10}, [None, None, None]),
        ([1.0, 0.5, 0.0, -1], {"below": 1}, [False, True, True, True]),
        ([0, 5, 20], {"below": 1, "above": 10}, [True, False, True]),
        ([1e308, -1e308], {"above": 0}, [True, False]),
    ],
)
def test_threshold_holds_past_its_limit_and_leaves_non_finite_values_alone(values, settings, expected):
    assert holds(DetectorKind.THRESHOLD, values, **settings) == expected


def test_nonfinite_holds_at_nan_and_both_infinities_only():
    assert holds(DetectorKind.NONFINITE, [1, NAN, INF, -INF, 0.0, 1e308]) == [False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], [False] * 5 + [True]),
        ([1, 2, 3, 4, 5, 5], [False] * 6),
        ([1, 2, 3, 4, 5, 6, 7, 6], [False] * 5 + [True, True, False]),
        ([1, 2, 3, NAN, 4, 5, 6, 7, 8, 9], [False] * 3 + [None] + [False] * 5 + [True]),
        ([1, 2, 3, INF, INF, 4], [False] * 3 + [None, None, False]),
        ([NAN], [None]),
    ],
)
def test_five_rises_in_a_row_are_counted_and_a_non_finite_value_begins_again(values, expected):
    assert holds(DetectorKind.CONSECUTIVE_RISE, values) == expected


def test_a_rise_names_where_it_began():
    evidence = dict(verdicts(DetectorKind.CONSECUTIVE_RISE, make_points([3, 1, 2, 3, 4, 5, 6, 7]))[-1].evidence)
    assert evidence == {"rises": 6.0, "start": 1.0}


@pytest.mark.parametrize(
    ("first_step", "values", "fires_at"),
    [
        (5000, [1, 1, 1, 1], 4),
        (5000, [1, 0, 1, 0, 1, 1, 1, 0], None),
        (5000, [0, 1, 1, 1, 1, 1], 5),
        (1, [1] * 16 + [0], None),
        (1, [1] * 17, 17),
        (90, [1] * 17, 17),  # a streak that begins in the search for the scale is allowed its length
        (101, [1] * 4, 4),
        (5000, [1, 1, NAN, 1, 1], 5),  # an unknown point neither ends nor advances the streak
    ],
)
def test_four_skipped_steps_in_a_row_hold_but_not_while_the_scale_is_searched_for(first_step, values, fires_at):
    points = make_points(values, series.OVERFLOW, first_step)
    found = [n for n, verdict in enumerate(verdicts(DetectorKind.SKIP_STREAK, points), 1) if verdict.holds]
    assert (found[0] if found else None) == fires_at


def test_a_skip_in_two_thousand_steps_is_never_an_alert():
    values = [1.0 if n % 2000 == 0 else 0.0 for n in range(1, 20_001)]
    assert not any(holds(DetectorKind.SKIP_STREAK, values))


def test_an_isolated_infinite_gradient_norm_is_judged_by_no_rule_on_gradient_norms():
    values = [1.0] * 100 + [INF] + [1.0] * 100
    assert not any(holds(DetectorKind.SPIKE, values))
    assert not any(holds(DetectorKind.THRESHOLD, values, above=10))


def test_a_spike_needs_32_points_of_history():
    assert holds(DetectorKind.SPIKE, [1.0] * 31 + [100.0])[-1] is None
    assert holds(DetectorKind.SPIKE, [1.0] * 32 + [100.0])[-1] is True


def plain_rule(values):
    """The rule in the words in which it was measured: sorts at each point, keeps the last 128 finite values."""
    window, out = [], []
    for value in values:
        if not math.isfinite(value) or value == 0:
            out.append(None)
            continue
        if len(window) < 32:
            out.append(None)
        else:
            middle = statistics.median(window)
            spread = 1.4826 * statistics.median(abs(x - middle) for x in window)
            scarce = 1 + 8 * (1 / len(window) - 1 / 128)
            out.append(value > max(3 * middle, middle + 6 * scarce * spread))
        window = [*window, value][-128:]
    return out


@how(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine, not the rule
@given(st.lists(st.one_of(st.floats(1e-3, 1e3), st.sampled_from([0.5, 0.5, 1.0, NAN, INF])), min_size=120, max_size=300))
def test_the_window_kept_in_order_says_what_sorting_at_each_point_would(values):
    """At one pace, so steps are counted at finite values only: several others in a row would change it, and drop the past."""
    steps = accumulate(math.isfinite(value) for value in values)
    points = [replace(point, step=step) for point, step in zip(make_points(values), steps, strict=True)]
    assert [verdict.holds for verdict in verdicts(DetectorKind.SPIKE, points)] == plain_rule(values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=WINDOW))
def test_the_walk_outwards_finds_the_median_distance(values):
    ranked = sorted(values)
    middle = median(ranked)
    assert middle == statistics.median(values)
    assert median_distance(ranked, middle) == statistics.median(abs(x - middle) for x in values)


@given(st.sampled_from(list(DetectorKind)), st.lists(ANY_NUMBER, max_size=200), st.integers(0, 200))
def test_a_detector_taken_out_of_the_database_goes_on_as_if_it_had_stayed(kind, values, cut):
    detector, settings = DETECTORS[kind], with_defaults(kind, {"above": 1.0} if kind is DetectorKind.THRESHOLD else {})
    kept = restored = detector.start()
    for n, point in enumerate(make_points(values)):
        if n == cut:
            restored = detector.restore(json.loads(json.dumps(detector.stored(restored), allow_nan=False)))
        kept, said = detector.step(kept, point, settings)
        restored, said_after = detector.step(restored, point, settings)
        assert (said.holds, said.evidence) == (said_after.holds, said_after.evidence)
    assert kept == restored


def test_the_stored_spike_window_stays_within_its_length():
    detector = DETECTORS[DetectorKind.SPIKE]
    state = detector.start()
    for point in make_points(range(1, 1001)):
        state, _ = detector.step(state, point, with_defaults(DetectorKind.SPIKE, {}))
    assert isinstance(state, SpikeState)
    assert state.values == tuple(map(float, range(1001 - WINDOW, 1001)))


@pytest.mark.parametrize(
    ("kind", "column", "settings", "first_alert"),
    [
        (DetectorKind.SPIKE, "grad_norm", {}, 214),
        (DetectorKind.THRESHOLD, "grad_norm", {"above": 10}, 225),
        (DetectorKind.CONSECUTIVE_RISE, "loss", {}, 220),
        (DetectorKind.NONFINITE, "loss", {}, 235),
        (DetectorKind.SKIP_STREAK, "skipped", {}, 238),
    ],
)
def test_the_recorded_death_is_announced_at_the_measured_step_and_its_healthy_twin_never(kind, column, settings, first_alert):
    def alerts(run):
        points = points_of(run, column)
        return [point.step for point, said in zip(points, verdicts(kind, points, **settings), strict=True) if said.holds]

    assert alerts("dies")[0] == first_alert
    assert alerts("healthy") == []


@pytest.mark.parametrize("kind", [kind for kind, detector in DETECTORS.items() if "of" in detector.settings])
def test_what_is_remembered_of_the_most_points_that_a_rule_may_ask_for_comes_back_from_the_database(kind):
    detector, most = DETECTORS[kind], DETECTORS[kind].settings["of"].maximum
    settings, state = with_defaults(kind, {"need": most, "of": most}), detector.start()
    bad = {DetectorKind.NONFINITE: NAN, DetectorKind.ZERO: 0.0}.get(kind, 1e3)
    for point in make_points([1.0 + 0.001 * (n % 3) for n in range(140)] + [bad] * int(most)):
        state, _ = detector.step(detector.restore(json.loads(json.dumps(detector.stored(state)))), point, settings)
    assert state.hits == 2**most - 1


def test_a_scale_first_seen_at_the_highest_step_comes_back_from_the_database():
    detector = DETECTORS[DetectorKind.LOSS_SCALE]
    (point,) = make_points([65536.0], first_step=MAX_STEP)
    state, _ = detector.step(detector.start(), point, with_defaults(DetectorKind.LOSS_SCALE, {}))
    assert detector.restore(json.loads(json.dumps(detector.stored(state)))) == state


def test_the_median_of_a_rank_past_the_largest_number_is_stored():
    detector, state = DETECTORS[DetectorKind.STRAGGLER], DETECTORS[DetectorKind.STRAGGLER].start()
    for point in make_points([1.7e308] * 45):
        state, _ = detector.step(state, point, with_defaults(DetectorKind.STRAGGLER, {"ranks": 2.0}))
    assert state.ranks[0].done[1] == (1, INF)
    assert detector.restore(json.loads(json.dumps(detector.stored(state), allow_nan=False))) == state
