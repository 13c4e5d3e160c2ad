"""A value far above its own recent past: x > max(times * median, median + spreads * 1.4826 * MAD) over the last W points.

Median and MAD do not move for one wild value, so a spike does not widen the band for the next. Every finite value joins the
window, a firing one too: a level that stays becomes the new normal after W / 2 points, and until then the rule holds. That is
the rule as it was measured; leaving firing points out would make an alert that never ends on a run whose level has changed.

The rule speaks of magnitudes (gradient norms): on a series around or below zero the first term says nothing.

W: length of the window, at most `WINDOW`.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict

WINDOW: Final = 128
TO_SIGMA: Final = 1.4826
"""MAD times this is the standard deviation, for normal data. Source: Iglewicz & Hoaglin 1993."""

SETTINGS: Final = {
    "times": Setting(3.0, 1.0, 1e6, meaning="times the median"),
    "spreads": Setting(6.0, 0.0, 1e6, meaning="robust standard deviations above the median"),
    "history": Setting(32, 2, WINDOW, whole=True, meaning="points needed before anything is judged"),
}


@dataclass(frozen=True, slots=True)
class SpikeState:
    """The last W finite values, oldest first, and the same in rising order; shape (W,) each."""

    values: tuple[float, ...] = ()
    ranked: tuple[float, ...] = ()


def step(state: SpikeState, point: Point, settings: Settings) -> tuple[SpikeState, Verdict]:
    """Judge one point against the window before it, then let it into the window.

    A non-finite point is not judged here (see `nonfinite`, `skip_streak`) and leaves the state as it was.
    """
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(holds=None, value=value)
    verdict = _judge(state.ranked, value, settings)
    return _remember(state, value), verdict


def _judge(ranked: Sequence[float], value: float, settings: Settings) -> Verdict:
    if len(ranked) < settings["history"]:
        return Verdict(holds=None, value=value)
    middle = median(ranked)
    limit = settings["times"] * middle
    if value <= limit:  # the second term can only raise the limit, and most points end here
        return Verdict(holds=False, value=value, limit=limit)
    limit = max(limit, middle + settings["spreads"] * TO_SIGMA * median_distance(ranked, middle))
    evidence = (("median", middle), ("points", float(len(ranked))), ("times", settings["times"]))
    return Verdict(value > limit, value, limit, evidence)


def _remember(state: SpikeState, value: float) -> SpikeState:
    ranked = list(state.ranked)
    values = (*state.values, value)
    if len(values) > WINDOW:
        del ranked[bisect_left(ranked, values[0])]
        values = values[1:]
    insort(ranked, value)
    return SpikeState(values, tuple(ranked))


def restore(values: tuple[float, ...]) -> SpikeState:
    """The state whose window holds `values`, oldest first. The rising order is derived, so it is not stored."""
    return SpikeState(values, tuple(sorted(values)))


def median(ranked: Sequence[float]) -> float:
    """The median of values in rising order, shape (W,), W >= 1."""
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


def median_distance(ranked: Sequence[float], middle: float) -> float:
    """The MAD: the median of the distances from `middle` of values in rising order, without sorting them.

    The nearest values lie around the middle, so the distances come in rising order by walking outwards from there.
    """
    right = bisect_left(ranked, middle)
    left, wanted = right - 1, len(ranked) // 2
    before = last = 0.0
    for _ in range(wanted + 1):
        before = last
        if right == len(ranked) or (left >= 0 and middle - ranked[left] <= ranked[right] - middle):
            last, left = middle - ranked[left], left - 1
        else:
            last, right = ranked[right] - middle, right + 1
    return last if len(ranked) % 2 else (before + last) / 2
