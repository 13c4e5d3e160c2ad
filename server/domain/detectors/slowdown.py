"""Steps that have become slower, or throughput that has fallen, and stay so: against the series' own past.

Points are taken ten at a time by their median, so that a single long step (an evaluation, a checkpoint, an epoch's end) is
nothing. It holds once `stretch` points in a row, so taken, are `times` slower than the median of the last 320 before. Slow points
join that past: a level that stays becomes the new normal after some hundred points, and the alert ends.

A series whose unit is per second is judged downwards, any other upwards. Between two tens the last verdict stands.
"""

import math
import statistics
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import HOLDS, Setting, Settings, Verdict

SETTINGS: Final = {
    "times": Setting(1.5, 1.0, 1e6, meaning="times slower than the past"),
    "stretch": Setting(50, 10, 10_000, whole=True, meaning="points in a row that must be slow, counted in tens"),
    "history": Setting(200, 20, 320, whole=True, meaning="points needed before anything is judged, counted in tens"),
}

TOGETHER: Final = 10
PAST: Final = 32
"""Tens of points that make the past."""


@frozen
class SlowState:
    """The points since the last full ten, the medians of the tens before (oldest first), and how it stood at the last one."""

    values: tuple[float, ...] = ()
    past: tuple[float, ...] = ()
    slow: int = 0
    """Tens in a row that were slow."""
    holds: bool | None = None
    now: float = 0.0
    usual: float = 0.0
    limit: float | None = None


def step(state: SlowState, point: Point, settings: Settings) -> tuple[SlowState, Verdict]:
    """Take a point in; judge with each tenth. Values that are not finite and above 0 are passed over."""
    value = point.value
    if not (math.isfinite(value) and value > 0):
        return state, Verdict(None, value)
    s, values = state, (*state.values, value)
    if len(values) < TOGETHER:
        following = SlowState(values, s.past, s.slow, s.holds, s.now, s.usual, s.limit)
    else:
        following = _judged(state, statistics.median(values), settings, falls=point.series.endswith("_per_second"))
    return following, _verdict(following, value)


def _judged(state: SlowState, now: float, settings: Settings, *, falls: bool) -> SlowState:
    past = (*state.past, now)[-PAST:]
    if len(state.past) * TOGETHER < settings["history"]:
        return SlowState(past=past)
    usual = statistics.median(state.past)
    limit = usual / settings["times"] if falls else usual * settings["times"]
    slow = state.slow + 1 if (now < limit if falls else now > limit) else 0
    return SlowState((), past, slow, slow * TOGETHER >= settings["stretch"], now, usual, limit)


def _verdict(state: SlowState, value: float) -> Verdict:
    if not state.holds:
        return Verdict(state.holds, value, state.limit)
    evidence = (("level", state.now), ("usual", state.usual), ("points", float(state.slow * TOGETHER)))
    return Verdict(HOLDS, value, state.limit, evidence)
