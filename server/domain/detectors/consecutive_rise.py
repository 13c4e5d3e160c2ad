"""A value that rises several times in a row, each above the last. A non-finite value starts the count afresh.

Where every step is logged, the points are single batches and rise five times running by chance: there means of `mean_of` steps
are compared, and points within a mean neither advance nor end anything.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import Setting, Settings, Verdict

SETTINGS: Final = {
    "rises": Setting(5, 1, 1000, whole=True, meaning="rises in a row"),
    "mean_of": Setting(1, 1, 10_000, whole=True, meaning="steps whose mean is compared where every step is logged"),
}


@frozen
class RiseState:
    """The last value compared (None before the first), the rises up to it, the value they began from; the mean in the making."""

    last: float | None = None
    rises: int = 0
    start: float | None = None
    step: int | None = None
    total: float = 0.0
    count: int = 0


def step(state: RiseState, point: Point, settings: Settings) -> tuple[RiseState, Verdict]:
    """Count a rise or begin again. Holds for as long as the count is at least `rises`."""
    value = point.value
    if not math.isfinite(value):
        return RiseState(step=point.step), Verdict(None, value)
    if settings["mean_of"] > 1 and (state.step is None or point.step - state.step == 1):
        total, count = state.total + value, state.count + 1
        if count < settings["mean_of"]:
            return RiseState(state.last, state.rises, state.start, point.step, total, count), Verdict(None, value)
        value = total / count
    elif state.last is None and state.count:  # the first point of all waited for a mean, and the run logs coarsely
        state = RiseState(state.total / state.count)
    rises, start = _counted(state, value)
    evidence = (("rises", float(rises)), ("start", start)) if rises else ()
    return RiseState(value, rises, start, point.step), Verdict(rises >= settings["rises"], value, None, evidence)


def _counted(state: RiseState, value: float) -> tuple[int, float]:
    """The rises with this value, and the value they began from."""
    if state.last is None or value <= state.last:
        return 0, value
    return state.rises + 1, state.last if state.start is None else state.start
