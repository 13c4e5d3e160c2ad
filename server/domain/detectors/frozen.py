"""A value that stands still at a level where much of what the run had learnt is lost: a dead model that predicts a constant.

Values count as the same within a tolerance of the first of them. A run that has converged stands still too, at its best: so
the level must give back a part of the fall from the first value to the lowest.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import CLEAR, Setting, Settings, Verdict

SETTINGS: Final = {
    "points": Setting(10, 2, 100_000, whole=True, meaning="points in a row that are the same"),
    "tolerance": Setting(5e-4, 0.0, 1.0, meaning="part of the value within which they are the same"),
    "lost": Setting(0.25, 0.0, 1.0, meaning="part of the fall so far that is given back at that level (0: at any level)"),
}


@frozen
class FrozenState:
    """The value that the last `same` points are the same as; the first value of all (None before it) and the lowest."""

    value: float = 0.0
    same: int = 0
    first: float | None = None
    lowest: float = 0.0


def step(state: FrozenState, point: Point, settings: Settings) -> tuple[FrozenState, Verdict]:
    """Count the point among the same or begin with it. A non-finite value leaves the count as it was."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    first, lowest = state.first, state.lowest
    if first is None:
        first = lowest = value
    elif value <= lowest:
        lowest = value
    if not state.same or abs(value - state.value) > settings["tolerance"] * abs(state.value):
        return FrozenState(value, 1, first, lowest), Verdict(CLEAR, value)
    same = state.same + 1
    following = FrozenState(state.value, same, first, lowest)
    if same < settings["points"]:
        return following, Verdict(CLEAR, value)
    limit = lowest + settings["lost"] * (first - lowest)
    evidence = (("points", float(same)), ("lowest", lowest), ("first", first))
    return following, Verdict(value > limit or not settings["lost"], value, limit, evidence)
