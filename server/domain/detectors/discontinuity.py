"""The curve does not go on after a resume where it was: optimizer, schedule or data were not what they had been.

    before     the last points up to the step from which the segment goes on (told by `begins`)
    expected   between the level of the last of them and what their trend, long or short, comes to by now
    after      the median of the points of the new segment, looked at from the third to the `points`th
    off        more than `level` of the expected, or more than `spreads` robust deviations

Neither of the two is enough by itself: a fifth of a noisy loss lies within its scatter, and four deviations of a smooth one are
nothing. So the first also asks for two deviations, and the second for `least` of the expected.

Only restarts are judged. A rollback has changed what it was told to change, and its curve is the one from before the trouble.

The agent's own check of a resume (`resume_check`) is the sharper one: it compares step by step with what the same steps were
before, and tells samples, vocabulary and scaler apart. This one sees a curve alone, so it also speaks of series that the agent
does not compare, and of runs whose agent keeps no ledger.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.vocabulary import SegmentCause

from .base import CLEAR, Setting, Settings, Verdict
from .windows import TO_SIGMA

SETTINGS: Final = {
    "level": Setting(0.2, 0.0, 100.0, meaning="share of the expected level that counts as off"),
    "spreads": Setting(4.0, 0.0, 1e6, meaning="robust standard deviations that count as off"),
    "least": Setting(0.05, 0.0, 100.0, meaning="share of the expected level below which nothing counts as off"),
    "points": Setting(20, 3, 200, whole=True, meaning="points after the resume that are looked at"),
    "history": Setting(10, 4, 50, whole=True, meaning="points needed before the resume"),
}

BEFORE: Final = 50
LEVEL: Final = 10
"""So many of the last points make the level."""
FEWEST: Final = 3
LEAST_SPREADS: Final = 2.0

Curve = tuple[tuple[int, float], ...]
"""Step and value, oldest first."""


@frozen
class BreakState:
    """The last points, and those since the resume as long as they are looked at (else None)."""

    before: Curve = ()
    after: Curve | None = None


def begins(state: BreakState, cause: SegmentCause) -> BreakState:
    """The next point is the first of a segment."""
    before = (state.before + (state.after or ()))[-BEFORE:]
    return BreakState(before, () if cause is SegmentCause.RESTART else None)


def step(state: BreakState, point: Point, settings: Settings) -> tuple[BreakState, Verdict]:
    """Judge the points since the resume together; outside of a resume only remember. Non-finite values are passed over."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    now = ((point.step, value),)
    if state.after is None:
        return BreakState(state.before[1 - BEFORE :] + now), Verdict(CLEAR, value)
    if len(state.before) < settings["history"]:
        return BreakState(state.before + state.after + now), Verdict(None, value)
    after = state.after + now
    verdict = _judge(state.before, after, settings)
    if len(after) >= settings["points"]:
        return BreakState((state.before + after)[-BEFORE:]), verdict
    return BreakState(state.before, after), verdict


def _judge(before: Curve, after: Curve, settings: Settings) -> Verdict:
    value = after[-1][1]
    if len(after) < FEWEST:
        return Verdict(None, value)
    now, ahead = statistics.median(v for _, v in after), statistics.median(s for s, _ in after)
    low, high = _expected(before, ahead)
    expected = min(max(now, low), high)
    scatter, size = _scatter(before), abs(expected)
    least_of_level = max(settings["level"] * size, LEAST_SPREADS * scatter)
    least_of_spreads = max(settings["spreads"] * scatter, settings["least"] * size)
    limit = min(least_of_level, least_of_spreads)
    evidence = (("expected", expected), ("level", now), ("points", float(len(after))), ("deviation", scatter))
    edge = expected + limit if now > expected else expected - limit
    return Verdict(abs(now - expected) > limit, value, edge, evidence)


def _expected(before: Curve, ahead: float) -> tuple[float, float]:
    """The lowest and the highest that the curve may have come to at step `ahead`: level from here, or on with its trend.

    Both over a long past and a short one, since a schedule bends and a noisy loss does not tell its trend in ten points.
    """
    near = before[-LEVEL:]
    levels = [statistics.median(v for _, v in part) for part in (near, near[-FEWEST:])]
    may = [*levels, _trend(before, ahead), _trend(near, ahead)]
    return min(may), max(may)


def _trend(curve: Curve, ahead: float) -> float:
    """What the line through the middles of the two halves of a curve comes to."""
    half = len(curve) // 2
    (at_first, first), (at_last, last) = _middle(curve[:half]), _middle(curve[half:])
    return last + (last - first) / max(at_last - at_first, 1.0) * (ahead - at_last)


def _middle(curve: Curve) -> tuple[float, float]:
    return statistics.median(at for at, _ in curve), statistics.median(value for _, value in curve)


def _scatter(before: Curve) -> float:
    """The robust deviation of single points, the trend taken out: from the differences of neighbours."""
    steps = [b[1] - a[1] for a, b in pairwise(before)]
    middle = statistics.median(steps)
    return TO_SIGMA * statistics.median(abs(each - middle) for each in steps) / math.sqrt(2.0)


def restore(parsed: Mapping[str, Any]) -> BreakState:
    """The state out of its JSON."""
    return BreakState(_curve(parsed["before"]), None if parsed["after"] is None else _curve(parsed["after"]))


def stored(state: BreakState) -> dict[str, Any]:
    """The state as JSON."""
    after = None if state.after is None else [list(at) for at in state.after]
    return {"before": [list(at) for at in state.before], "after": after}


def _curve(parsed: Sequence[Sequence[float]]) -> Curve:
    return tuple((int(at), float(value)) for at, value in parsed)
