"""A long curve in few points, drawn the same: MinMaxLTTB over the finite ones, gaps and marks for the others.

The algorithm is never shown a non-finite number: with NaN among the values it picks almost only those, and one infinity makes
it lose the highest finite value.

Source: Van Der Donckt et al. 2023, MinMaxLTTB (arXiv 2305.00332), as in tsdownsample.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from server.domain import reduction

Numbers = NDArray[np.float64]
Places = NDArray[np.intp]

_lttb = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]  # the package has no types
_FORCED = 4  # both ends, lowest, highest


@dataclass(frozen=True, slots=True)
class Thinned:
    """A curve for drawing, and the non-finite points beside it.

    `step`, `value`: shape (M,), M at most what was asked for; a NaN in `value` is a gap. `nonfinite_step`, `nonfinite_value`:
    shape (K,), every non-finite point while they are at most as many as points were asked for; else the ends of each stretch of
    them, evenly thinned where even those are too many. `nonfinite_count` is how many there really are.
    """

    step: Numbers
    value: Numbers
    nonfinite_step: Numbers
    nonfinite_value: Numbers
    nonfinite_count: int


def thin(step: Numbers, value: Numbers, limit: int) -> Thinned:
    """At most `limit` (but never fewer than 16) points of a curve. `step` and `value` have shape (N,); steps rise."""
    bad = ~np.isfinite(value)
    begins = np.flatnonzero(bad & ~np.concatenate(([False], bad[:-1])))
    ends = np.flatnonzero(bad & ~np.concatenate((bad[1:], [False])))
    shares = reduction.share(begins.size, limit)
    longest = np.argsort(begins - ends, kind="stable")[: shares.gaps]
    kept = np.sort(np.concatenate((_line(step, value, np.flatnonzero(~bad), shares.finite), begins[longest])))
    marked = _marks(np.flatnonzero(bad), begins, ends, max(limit, reduction.SMALLEST))
    return Thinned(
        step=step[kept],
        value=np.where(bad[kept], np.nan, value[kept]),
        nonfinite_step=step[marked],
        nonfinite_value=value[marked],
        nonfinite_count=int(bad.sum()),
    )


def _line(step: Numbers, value: Numbers, finite: Places, limit: int) -> Places:
    """Which of the `finite` places are drawn."""
    if finite.size <= limit:
        return finite
    x, y = np.ascontiguousarray(step[finite]), np.ascontiguousarray(value[finite])
    picked: Places = _lttb.downsample(x, y, n_out=limit - _FORCED).astype(np.intp)
    forced = np.array([0, int(y.argmin()), int(y.argmax()), finite.size - 1], dtype=np.intp)
    kept: Places = finite[np.union1d(picked, forced)]
    return kept


def _marks(bad: Places, begins: Places, ends: Places, limit: int) -> Places:
    if bad.size <= limit:
        return bad
    corners = np.union1d(begins, ends)
    if corners.size <= limit:
        return corners
    return corners[np.linspace(0, corners.size - 1, limit).astype(np.intp)]
