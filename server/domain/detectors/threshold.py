"""A value past a fixed limit.

Non-finite values are left to `nonfinite`: a gradient norm is inf at each step that a loss scaler skips, which is normal. They
neither advance nor end anything here.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import CLEAR, HOLDS, Setting, Settings, Verdict

_LARGEST: Final = 1e308

SETTINGS: Final = {
    "above": Setting(None, -_LARGEST, _LARGEST, meaning="holds above this value"),
    "below": Setting(None, -_LARGEST, _LARGEST, meaning="holds below this value"),
}


@frozen
class ThresholdState:
    """Nothing needs remembering."""


def step(state: ThresholdState, point: Point, settings: Settings) -> tuple[ThresholdState, Verdict]:
    """Judge a finite value against `above` and `below`; a value equal to its limit is still within it."""
    if not math.isfinite(point.value):
        return state, Verdict(None, point.value)
    above, below = settings.get("above"), settings.get("below")
    if above is not None and point.value > above:
        return state, Verdict(HOLDS, point.value, above, (("above", above),))
    if below is not None and point.value < below:
        return state, Verdict(HOLDS, point.value, below, (("below", below),))
    return state, Verdict(CLEAR, point.value, above if above is not None else below)
