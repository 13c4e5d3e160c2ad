"""A value that is NaN or infinite. The one condition that is a statement about the number itself, so no history is kept."""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict

SETTINGS: Final[dict[str, Setting]] = {}


@dataclass(frozen=True, slots=True)
class NonfiniteState:
    """Nothing needs remembering."""


def step(state: NonfiniteState, point: Point, settings: Settings) -> tuple[NonfiniteState, Verdict]:  # noqa: ARG001  one signature
    """Holds at NaN, inf and -inf."""
    return state, Verdict(not math.isfinite(point.value), point.value)
