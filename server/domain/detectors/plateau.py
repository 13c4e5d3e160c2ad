"""A run that learns nothing: long after its start its loss has not once been below its first values by more than a few per cent.

A slow start and a task that is hard look the same for a while, so the rule asks for a second sign, where `erratic` is not 0: a
gradient norm whose logarithm has that robust standard deviation or more. A norm that leaps between 0.1 and 10,000 belongs to a
model that is broken, not to one that is slow.

Once the loss has been lower the run has learnt something, and nothing more is said.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire import series

from .base import CLEAR, Setting, Settings, Verdict
from .windows import Floats, median, pushed, spread

FIRST: Final = 10
"""Points whose median is where the run began."""
NORMS: Final = 64
FEWEST_NORMS: Final = 32

COMPANIONS: Final = (series.GRAD_NORM,)

SETTINGS: Final = {
    "after": Setting(128, FIRST, 1e9, whole=True, meaning="points from the start on that are not judged"),
    "fall": Setting(0.05, 0.0, 1.0, meaning="part of the first values that the loss must have fallen by"),
    "erratic": Setting(1.0, 0.0, 1e3, meaning="spread of log gradient norm that is asked for beside it (0: none)"),
}


@frozen
class PlateauState:
    """Points so far, the first values; the logarithms of the last gradient norms, as they came and in rising order."""

    count: int = 0
    first: Floats = ()
    lowest: float = math.inf
    learns: bool = False
    """The loss has been lower, or is none that a ratio speaks of."""
    norms: Floats = ()
    ranked_norms: Floats = ()


_LEARNS: Final = PlateauState(learns=True)


def observe(state: PlateauState, point: Point, settings: Settings) -> PlateauState:  # noqa: ARG001  one signature
    """Remember a gradient norm."""
    if state.learns or not math.isfinite(point.value) or point.value <= 0:
        return state
    norms, ranked_norms = pushed(state.norms, state.ranked_norms, math.log(point.value), NORMS)
    return PlateauState(state.count, state.first, state.lowest, state.learns, norms, ranked_norms)


def step(state: PlateauState, point: Point, settings: Settings) -> tuple[PlateauState, Verdict]:
    """Judge the lowest value against the first ones."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    if state.learns or value <= 0:
        return _LEARNS, Verdict(CLEAR, value)
    first = (*state.first, value) if state.count < FIRST else state.first
    count, lowest = state.count + 1, min(value, state.lowest)
    following = PlateauState(count, first, lowest, state.learns, state.norms, state.ranked_norms)
    if count < FIRST:
        return following, Verdict(None, value)
    begun = median(sorted(first))
    limit = (1 - settings["fall"]) * begun
    if lowest <= limit:
        return _LEARNS, Verdict(CLEAR, value, limit)
    if count < settings["after"]:
        return following, Verdict(None, value, limit)
    evidence = (("first", begun), ("lowest", lowest), ("points", float(count)))
    return following, Verdict(_is_erratic(state.ranked_norms, settings["erratic"]), value, limit, evidence)


def _is_erratic(ranked_norms: Floats, least: float) -> bool:
    if not least:
        return True
    return len(ranked_norms) >= FEWEST_NORMS and spread(ranked_norms, median(ranked_norms)) > least
