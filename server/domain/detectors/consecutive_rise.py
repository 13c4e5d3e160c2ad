"""A value that rises several logged points in a row, each above the last. A non-finite value starts the count afresh."""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict

SETTINGS: Final = {"rises": Setting(5, 1, 1000, whole=True, meaning="rises in a row")}


@dataclass(frozen=True, slots=True)
class RiseState:
    """The last finite value (None before the first), the rises up to it, and the value they began from."""

    last: float | None = None
    rises: int = 0
    start: float | None = None


def step(state: RiseState, point: Point, settings: Settings) -> tuple[RiseState, Verdict]:
    """Count the point as a rise or begin again. Holds for as long as the count is at least `rises`."""
    value, needed = point.value, settings["rises"]
    if not math.isfinite(value):
        return RiseState(), Verdict(holds=None, value=value)
    if state.last is None or value <= state.last:
        return RiseState(value, 0, value), Verdict(holds=False, value=value)
    start = state.last if state.start is None else state.start
    following = RiseState(value, state.rises + 1, start)
    evidence = (("rises", float(following.rises)), ("start", start))
    return following, Verdict(following.rises >= needed, value, None, evidence)
