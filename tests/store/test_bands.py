"""The span of several ranks, as the chart draws it."""

import numpy as np

from server.store.bands import over_ranks
from server.store.points import Trace


def trace(rank: int, values: list[float], steps: list[int] | None = None, segment: int = 1, superseded: bool = False) -> Trace:
    step = np.array(steps or range(1, len(values) + 1), dtype=np.float64)
    return Trace(segment, rank, superseded, step, step, step, np.array(values, dtype=np.float64))


def test_a_band_has_the_extremes_of_each_step_and_whose_they_are():
    (band,) = over_ranks([trace(0, [1, 5, 3]), trace(1, [2, 4, 3]), trace(7, [0, 9, 3])], 100)
    assert band.ranks == 3
    assert band.low.tolist() == [0, 4, 3]
    assert band.low_rank.tolist() == [7, 1, 0]
    assert band.high.tolist() == [2, 9, 3]
    assert band.high_rank.tolist() == [1, 7, 0]


def test_a_single_rank_spans_nothing():
    assert over_ranks([trace(3, [1, 2])], 100) == []
    assert over_ranks([], 100) == []


def test_a_value_that_is_not_finite_spans_nothing_and_hides_nobody_else():
    (band,) = over_ranks([trace(0, [1, np.nan, np.inf]), trace(1, [2, 7, -np.inf])], 100)
    assert band.low.tolist()[:2] == [1, 7]
    assert band.high_rank.tolist()[:2] == [1, 1]
    assert np.isnan([band.low[2], band.high[2], band.low_rank[2], band.high_rank[2]]).all()


def test_ranks_are_matched_by_step_where_one_has_more_of_them():
    (band,) = over_ranks([trace(0, [1, 3], [2, 6]), trace(1, [9, 0, 5], [2, 4, 6])], 100)
    assert band.step.tolist() == [2, 4, 6]
    assert band.high.tolist() == [9, 0, 5]
    assert band.low_rank.tolist() == [0, 1, 0]


def test_segments_and_what_is_superseded_have_bands_of_their_own():
    parts = [(1, True), (1, False), (2, False)]
    traces = [trace(rank, [rank, rank], segment=segment, superseded=old) for segment, old in parts for rank in (0, 1)]
    assert {(band.segment, band.superseded) for band in over_ranks(traces, 100)} == set(parts)


def test_thinning_never_narrows_a_band():
    made = np.random.default_rng(1)
    values = made.normal(size=(3, 5000))
    values[2, 4321], values[1, 17] = 50.0, -40.0
    values[0, 100:200] = np.nan
    (band,) = over_ranks([trace(rank, list(values[rank])) for rank in range(3)], 200)
    assert band.step.size == 200
    assert (np.diff(band.step) > 0).all()
    assert (np.nanmax(band.high), band.high_rank[np.nanargmax(band.high)]) == (50.0, 2)
    assert (np.nanmin(band.low), band.low_rank[np.nanargmin(band.low)]) == (-40.0, 1)
    for place, begin in enumerate(band.step):
        end = band.step[place + 1] if place + 1 < band.step.size else np.inf
        inside = values[:, (np.arange(1, 5001) >= begin) & (np.arange(1, 5001) < end)]
        assert band.low[place] == np.nanmin(inside)
        assert band.high[place] == np.nanmax(inside)


def test_a_stretch_without_any_finite_value_is_a_gap_when_thinned():
    gone = [1.0] * 500 + [np.nan] * 500 + [1.0] * 500
    (band,) = over_ranks([trace(0, gone), trace(1, gone)], 30)
    assert np.isnan(band.low[11:19]).all()
    assert np.isnan(band.high_rank[11:19]).all()
