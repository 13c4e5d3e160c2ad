"""Several optimizer steps in a row that the loss scaler skipped: a run that learns nothing any more.

One skipped step is normal in fp16 (about one in 2,000: the scale halves and the next step is applied). At the start the scaler
searches for its scale from above and may halve up to 16 times in a row, so a streak that begins there is allowed as many.

The series is 1.0 at a skipped step and 0.0 at an applied one.
"""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict

SETTINGS: Final = {
    "streak": Setting(4, 1, 10_000, whole=True, meaning="skipped steps in a row"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
    "startup_streak": Setting(17, 1, 10_000, whole=True, meaning="skipped steps in a row for a streak that begins there"),
}


@dataclass(frozen=True, slots=True)
class StreakState:
    """Skipped steps in a row up to the last point, and the step of the first of them."""

    length: int = 0
    first_step: int = 0


def step(state: StreakState, point: Point, settings: Settings) -> tuple[StreakState, Verdict]:
    """Count the streak. Holds from its `streak`th step on."""
    if not math.isfinite(point.value):
        return state, Verdict(holds=None, value=point.value)
    if point.value <= 0:
        return StreakState(), Verdict(holds=False, value=point.value)
    following = StreakState(state.length + 1, state.first_step if state.length else point.step)
    limit = settings["startup_streak" if following.first_step <= settings["startup_steps"] else "streak"]
    evidence = (("streak", float(following.length)), ("first_step", float(following.first_step)))
    return following, Verdict(following.length >= limit, point.value, limit, evidence)
