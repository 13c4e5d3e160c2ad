"""What the ranks of a run span together: the lowest and highest value at each step, and which rank it was.

Steps are matched by number. A value that is not finite spans nothing; it is listed with its rank beside the curves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from .points import Trace

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Band:
    """The span of several ranks in one segment. All arrays have shape (M,); a NaN is a step without a finite value.

    `low_rank` and `high_rank` say whose value is the lowest and the highest; of equals, the lowest rank's.
    """

    segment: int
    superseded: bool
    ranks: int
    step: Numbers
    low: Numbers
    high: Numbers
    low_rank: Numbers
    high_rank: Numbers


def over_ranks(traces: Sequence[Trace], limit: int) -> list[Band]:
    """The bands of a series, thinned to at most `limit` steps each; none where a single rank tells the series."""
    return [_thinned(band, limit) for band in _whole(traces)]


def _whole(traces: Iterable[Trace]) -> Iterator[Band]:
    def place(trace: Trace) -> tuple[bool, int]:
        return not trace.superseded, trace.segment

    for (_, segment), group in groupby(sorted(traces, key=place), key=place):
        ranks = sorted(group, key=lambda trace: trace.rank)
        if len(ranks) > 1:
            yield _band(segment, ranks)


def _band(segment: int, ranks: Sequence[Trace]) -> Band:
    step = np.unique(np.concatenate([trace.step for trace in ranks]))
    low, high = np.full(step.size, np.inf), np.full(step.size, -np.inf)
    low_rank, high_rank = np.full(step.size, np.nan), np.full(step.size, np.nan)
    for trace in ranks:
        finite = np.isfinite(trace.value)
        at, value = np.searchsorted(step, trace.step[finite]), trace.value[finite]
        lower, higher = value < low[at], value > high[at]
        low[at[lower]], low_rank[at[lower]] = value[lower], trace.rank
        high[at[higher]], high_rank[at[higher]] = value[higher], trace.rank
    empty = np.isnan(low_rank)
    low[empty] = high[empty] = np.nan
    return Band(segment, ranks[0].superseded, len(ranks), step, low, high, low_rank, high_rank)


def _thinned(band: Band, limit: int) -> Band:
    """One entry for each of `limit` stretches of steps, with the extremes of all of it: thinning never narrows a band."""
    if band.step.size <= limit:
        return band
    begins = np.linspace(0, band.step.size, limit, endpoint=False).astype(np.intp)
    lowest = _extremes(begins, np.where(np.isnan(band.low), np.inf, band.low), np.argmin)
    highest = _extremes(begins, np.where(np.isnan(band.high), -np.inf, band.high), np.argmax)
    return Band(
        band.segment,
        band.superseded,
        band.ranks,
        band.step[begins],
        band.low[lowest],
        band.high[highest],
        band.low_rank[lowest],
        band.high_rank[highest],
    )


def _extremes(begins: NDArray[np.intp], values: Numbers, pick: Callable[[Numbers], np.intp]) -> NDArray[np.intp]:
    """Where the extreme of each stretch lies."""
    parts = np.split(values, begins[1:])
    return begins + np.array([pick(part) for part in parts], dtype=np.intp)
