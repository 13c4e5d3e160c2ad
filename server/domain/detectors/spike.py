"""A value far above its own recent past: past `times` the median of the last points and `spreads` robust deviations above it.

    x > max(times * median, median + spreads * 1.4826 * MAD, median + share * (first - lowest))        over the last W points

Median and MAD do not move for one wild value, so a spike does not widen the band for the next. Every judged value joins the
window, a firing one too: a level that stays becomes the new normal after W / 2 points, and until then the rule holds.

A single batch may be an outlier, so `need` of the last `of` points must be past the limit; one alone is enough where it is past
`alone_times` the median and twice the spreads. `start_times` counts a point too that stands that far above the very first value
of a run that has come down from it: worse than untrained. `young_times` judges a run that has not `history` points yet, against
the larger of its first value and its median. A window that is not full yet is worth less, and the spreads are wider for it.

The rule speaks of magnitudes (losses, gradient norms). A series that goes below zero is judged by its spreads alone, and only
where `times` is 1. A zero is not judged (see `zero`).

W: length of the window, at most `WINDOW`.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import CLEAR, MOST_BITS, Setting, Settings, Verdict
from .past import NOTHING, Past, see
from .windows import Floats, median, pushed, spread

WINDOW: Final = 128
ALONE_SPREADS: Final = 2.0
"""How many times the spreads a point that counts alone must reach."""
YOUNG_SPREADS: Final = 5.0
"""Deviations above the reference while there are fewer points than `history`: with so few, the MAD itself is a guess."""
YOUNG_ALONE: Final = 1.1
"""How many times higher than later what counts alone must be while there is too little history."""
FEWEST: Final = 3
"""Points of a run that are not judged, however it begins."""
SCARCE: Final = 8
"""Points short of which a window is worth half: the spreads are widened by `SCARCE` / n as long as it is not full."""

SETTINGS: Final = {
    "times": Setting(3.0, 1.0, 1e6, meaning="times the median"),
    "spreads": Setting(6.0, 0.0, 1e6, meaning="robust standard deviations above the median"),
    "history": Setting(32, 2, WINDOW, whole=True, meaning="points needed before anything is judged"),
    "window": Setting(WINDOW, 2, WINDOW, whole=True, meaning="points that make up the recent past"),
    "need": Setting(1, 1, MOST_BITS, whole=True, meaning="points past the limit that are needed"),
    "of": Setting(1, 1, MOST_BITS, whole=True, meaning="among the last so many"),
    "alone_times": Setting(0.0, 0.0, 1e6, meaning="times the median at which one point is enough (0: never)"),
    "start_times": Setting(0.0, 0.0, 1e6, meaning="times the first value at which a point counts too (0: never)"),
    "share": Setting(0.0, 0.0, 1.0, meaning="part of the fall so far that the excess must reach"),
    "young_times": Setting(0.0, 0.0, 1e6, meaning="times the first values, while there is too little history (0: not judged)"),
}


@frozen
class SpikeState:
    """The last W values, oldest first, and the same in rising order; `hits`: the last points past the limit, a bit each."""

    past: Past = NOTHING
    values: Floats = ()
    ranked: Floats = ()
    hits: int = 0


def step(state: SpikeState, point: Point, settings: Settings) -> tuple[SpikeState, Verdict]:
    """Judge one point against the window before it, then let it into the window.

    A non-finite point is not judged here (see `nonfinite`, `skip_streak`) and leaves the state as it was.
    """
    value = point.value
    if not math.isfinite(value) or (value == 0 and state.past.count):
        return state, Verdict(None, value)
    past, anew = see(state.past, value, point.step)
    if (past.signed and settings["times"] > 1) or not (past.settled or past.count == 1 or not settings["young_times"]):
        return SpikeState(past, state.values, state.ranked, state.hits), Verdict(None, value)
    values, ranked = ((), ()) if anew else (state.values, state.ranked)
    length, scarce = settings["window"], len(ranked) < settings["history"]
    judged = _young(ranked, past, settings) if scarce else _limit(ranked, value, past, settings)
    if judged is None:
        return SpikeState(past, *pushed(values, ranked, value, length), state.hits), Verdict(None, value)
    limit, middle, alone = judged
    hit = value > limit
    if not hit and not state.hits:  # nearly all points
        values, ranked = pushed(values, ranked, value, length)
        return SpikeState(past, values, ranked), Verdict(CLEAR, value, limit)
    hits = (state.hits << 1 | hit) & (1 << int(settings["of"])) - 1
    if not (hit and past.young and scarce):  # too few to outvote it: it would become the past
        values, ranked = pushed(values, ranked, value, length)
    holds = hits > 0 and (hits.bit_count() >= settings["need"] or value > alone)
    evidence = (("median", middle), ("points", float(len(state.ranked))), ("times", settings["times"])) if hits else ()
    return SpikeState(past, values, ranked, hits), Verdict(holds, value, limit, evidence)


def _limit(ranked: Floats, value: float, past: Past, settings: Settings) -> tuple[float, float, float]:
    """By the window: the limit, the median, and the limit at which a point counts alone.

    Most points lie below the first two terms, and the others can only raise the limit.
    """
    middle = median(ranked)
    limit = middle if past.signed else settings["times"] * middle
    start = settings["start_times"] * past.first or math.inf
    if value <= limit and value <= start:
        return limit, middle, math.inf
    scarce = 1 + SCARCE * (1 / len(ranked) - 1 / settings["window"])
    wide = settings["spreads"] * scarce * spread(ranked, middle)
    if middle + wide < past.first:  # the run has come down from there, beyond its noise
        limit = min(limit, start)
    limit = max(limit, middle + wide, middle + settings["share"] * (past.first - past.lowest))
    alone = max(limit, settings["alone_times"] * middle, middle + ALONE_SPREADS * wide) if settings["alone_times"] else math.inf
    return limit, middle, alone


def _young(ranked: Floats, past: Past, settings: Settings) -> tuple[float, float, float] | None:
    """The same by the first values; None where these are not judged."""
    times = settings["young_times"]
    if not times or len(ranked) < 2 or past.count <= FEWEST or past.signed:
        return None
    middle = median(ranked)
    reference = max(past.first, middle)
    limit = max(times * reference, reference + YOUNG_SPREADS * spread(ranked, middle))
    alone = settings["alone_times"]
    return limit, reference, max(limit, YOUNG_ALONE * alone * reference) if alone else math.inf
