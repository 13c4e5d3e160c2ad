"""A value past a fixed limit.

Non-finite values are left to `nonfinite`: a gradient norm is inf at each step that a loss scaler skips, which is normal. They
neither advance nor end anything here.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import Setting, Settings, Verdict

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
        return state, Verdict(holds=None, value=point.value)
    above, below = settings.get("above"), settings.get("below")
    if above is not None and point.value > above:
        return state, Verdict(holds=True, value=point.value, limit=above, evidence=(("above", above),))
    if below is not None and point.value < below:
        return state, Verdict(holds=True, value=point.value, limit=below, evidence=(("below", below),))
    return state, Verdict(holds=False, value=point.value, limit=above if above is not None else below)
