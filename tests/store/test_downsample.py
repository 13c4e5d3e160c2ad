"""Thinning keeps ends, extremes, gaps and every mark, and never more points than asked for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain import reduction
from server.store.downsample import thin

NAN, INF = math.nan, math.inf


def thinned(values, limit=16):
    return thin(np.arange(len(values), dtype=float), np.array(values, dtype=float), limit)


def test_a_short_curve_is_left_alone():
    result = thinned([1.0, 2.0, 0.5])
    assert (result.step.tolist(), result.value.tolist(), result.nonfinite_count) == ([0, 1, 2], [1.0, 2.0, 0.5], 0)


@pytest.mark.parametrize(
    ("values", "drawn", "marks"),
    [
        ([], "[]", []),
        ([3.0], "[3.0]", []),
        ([NAN], "[nan]", [0]),
        ([NAN, NAN, NAN], "[nan]", [0, 1, 2]),
        ([NAN, 1.0, 2.0, NAN, NAN], "[nan, 1.0, 2.0, nan]", [0, 3, 4]),
        ([1.0, INF, 2.0, -INF, 3.0], "[1.0, nan, 2.0, nan, 3.0]", [1, 3]),
    ],
)
def test_a_gap_is_one_nan_and_every_nonfinite_point_is_a_mark(values, drawn, marks):
    result = thinned(values)
    assert str(result.value.tolist()) == drawn
    assert result.nonfinite_step.tolist() == marks
    assert str(result.nonfinite_value.tolist()) == str([values[mark] for mark in marks])


def test_a_hundred_thousand_points_with_one_spike_one_dip_and_one_infinity():
    values = np.sin(np.arange(100_000) / 500)
    values[77_777], values[33_333], values[50_000] = 99.0, -99.0, INF
    result = thinned(values, 1000)
    assert 900 <= result.step.size <= 1000
    assert {0.0, 77_777.0, 33_333.0, 50_000.0, 99_999.0} <= set(result.step.tolist())
    assert (result.nonfinite_step.tolist(), result.nonfinite_value.tolist()) == ([50_000], [INF])


def test_a_third_of_scattered_nan_leaves_a_line():
    random = np.random.default_rng(0)
    values = np.sin(np.arange(100_000) / 5000)
    values[random.random(values.size) < 0.3] = NAN
    result = thinned(values, 1000)
    finite = np.isfinite(result.value)
    assert result.step.size <= 1000
    assert finite.sum() >= 740
    assert (finite[1:] & finite[:-1]).sum() >= 450, "most neighbours are joined"
    assert result.nonfinite_count == np.isnan(values).sum()
    assert result.nonfinite_step.size <= 1000


def test_the_longest_gaps_are_drawn_first():
    values = np.ones(10_000)
    values[100:9000:100] = NAN
    values[9500:9600] = NAN
    result = thinned(values, 100)
    gaps = result.step[np.isnan(result.value)]
    assert (gaps.size, gaps[-1]) == (25, 9500)


def test_a_run_that_is_dead_for_long_has_few_marks_but_its_ends():
    values = np.ones(50_000)
    values[20_000:] = NAN
    result = thinned(values, 500)
    assert result.nonfinite_count == 30_000
    assert result.nonfinite_step.tolist() == [20_000, 49_999]


def test_the_largest_numbers_of_all_do_no_harm():
    values = np.tile([1.7e308, -1.7e308, 5e-324], 1000)
    result = thinned(values, 100)
    assert np.isfinite(result.value).all()
    assert (result.value.max(), result.value.min()) == (1.7e308, -1.7e308)


@given(st.lists(st.floats(width=64), max_size=120), st.integers(0, 60))
def test_whatever_comes_ends_and_extremes_stay_and_the_limit_holds(values, limit):
    result = thinned(values, limit)
    finite = [value for value in values if math.isfinite(value)]
    assert result.step.size <= max(limit, reduction.SMALLEST)
    assert (np.diff(result.step) > 0).all()
    assert result.nonfinite_count == len(values) - len(finite)
    drawn = result.value[np.isfinite(result.value)].tolist()
    if finite:
        assert (drawn[0], drawn[-1], min(drawn), max(drawn)) == (finite[0], finite[-1], min(finite), max(finite))


@given(st.lists(st.tuples(st.integers(0, 50), st.floats()), max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_a_sparkline_does_not_depend_on_the_cuts(points, cuts):
    line, begin = reduction.Sparkline(), 0
    for end in [*sorted(cuts), len(points)]:
        line = reduction.extend(line, points[begin:end])
        begin = max(begin, end)
    assert str(line) == str(reduction.extend(reduction.Sparkline(), points))
    assert len(line.steps) < reduction.SPARKLINE_POINTS
    assert list(line.steps) == sorted(set(line.steps))
