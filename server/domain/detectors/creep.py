"""Memory that grows and grows: a leak, seen long before it ends the run.

Points are taken 32 at a time by their median. 48 of those are the window, in six parts: it holds when each part lies above the
one before (the growth goes on), hardly any median is under the one before it (it is no coming and going), and the growth
from the first part to the last is more than `growth`; or, where `capacity` says how much there is, when at this pace it is gone
within `within` points. Growth while a run warms up (allocator, caches, workers) is over in the first few hundred points and is
not looked at.

Memory that a run has mapped from files counts as its own while it reads them for the first time: host memory grows so through
the first epoch of many healthy runs.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import HOLDS, Setting, Settings, Verdict

SETTINGS: Final = {
    "growth": Setting(0.2, 0.0, 1e6, meaning="growth over the window, as a share of where it began"),
    "capacity": Setting(None, 1.0, 1e18, meaning="how much there is in all, in the unit of the series"),
    "within": Setting(2000, 1, 1e9, whole=True, meaning="points in which it would be used up, where the capacity is given"),
    "startup_points": Setting(500, 0, 1e9, whole=True, meaning="points at the beginning that are not looked at"),
}

TOGETHER: Final = 32
WINDOW: Final = 48
PARTS: Final = 6
FALLS: Final = 0.1
"""Share of medians in the window that may lie under the one before."""


@frozen
class CreepState:
    """Points so far, those since the last full 32, the medians before them (oldest first), and how it stood at the last one."""

    points: int = 0
    values: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    holds: bool | None = None
    start: float = 0.0
    now: float = 0.0
    left: float | None = None
    """Points until the capacity is used up."""


def step(state: CreepState, point: Point, settings: Settings) -> tuple[CreepState, Verdict]:
    """Take a point in; judge with each 32nd. Values that are not finite and above 0 are passed over."""
    value = point.value
    if not (math.isfinite(value) and value > 0):
        return state, Verdict(None, value)
    s, points, values = state, state.points + 1, (*state.values, value)
    if points <= settings["startup_points"]:
        following = CreepState(points)
    elif len(values) < TOGETHER:
        following = CreepState(points, values, s.levels, s.holds, s.start, s.now, s.left)
    else:
        following = _judged(points, (*s.levels, statistics.median(values))[-WINDOW:], settings)
    return following, _verdict(following, value, settings)


def _judged(points: int, levels: tuple[float, ...], settings: Settings) -> CreepState:
    if len(levels) < WINDOW:
        return CreepState(points, (), levels)
    each = WINDOW // PARTS
    parts = [statistics.median(levels[n * each : (n + 1) * each]) for n in range(PARTS)]
    start, now = parts[0], parts[-1]
    pace = (now - start) / ((PARTS - 1) * each * TOGETHER)
    capacity = settings.get("capacity")
    left = max(0.0, capacity - levels[-1]) / pace if capacity is not None and pace > 0 else None
    is_much = now > start * (1.0 + settings["growth"]) or (left is not None and left <= settings["within"])
    return CreepState(points, (), levels, is_much and _grows(parts, levels), start, now, left)


def _grows(parts: Sequence[float], levels: Sequence[float]) -> bool:
    falls = sum(1 for a, b in pairwise(levels) if b < a)
    return all(a < b for a, b in pairwise(parts)) and falls <= FALLS * len(levels)


def _verdict(state: CreepState, value: float, settings: Settings) -> Verdict:
    if not state.holds:
        return Verdict(state.holds, value)
    evidence = [("start", state.start), ("level", state.now), ("points", float(WINDOW * TOGETHER))]
    if state.left is not None:
        evidence.append(("left", state.left))
    return Verdict(HOLDS, value, state.start * (1.0 + settings["growth"]), tuple(evidence))
