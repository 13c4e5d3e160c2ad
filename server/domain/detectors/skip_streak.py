"""Several optimizer steps in a row that the loss scaler skipped: a run that learns nothing any more.

One skipped step is normal in fp16 (about one in 2,000: the scale halves and the next step is applied). At the start the scaler
searches for its scale from above and may halve up to 16 times in a row, so a streak that begins there is allowed as many; so is
one that begins at the very first steps of a later segment, where a scaler that was not restored searches again (which the
agent's own check of a resume tells).

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

RESUMED_STEPS: Final = 2
"""A search after a resume begins with the first steps of it."""


@dataclass(frozen=True, slots=True)
class StreakState:
    """Skipped steps in a row up to the last point, and the step of the first of them.

    `segment` is that of the last point (None before the first), `resumed_step` the first step of it where it was a later one.
    """

    length: int = 0
    first_step: int = 0
    segment: int | None = None
    resumed_step: int | None = None


def step(state: StreakState, point: Point, settings: Settings) -> tuple[StreakState, Verdict]:
    """Count the streak. Holds from its `streak`th step on."""
    if not math.isfinite(point.value):
        return state, Verdict(holds=None, value=point.value)
    resumed = state.resumed_step
    if point.segment != state.segment and state.segment is not None:
        resumed = point.step
    if point.value <= 0:
        return StreakState(0, 0, point.segment, resumed), Verdict(holds=False, value=point.value)
    first_step = state.first_step if state.length else point.step
    following = StreakState(state.length + 1, first_step, point.segment, resumed)
    limit = settings["startup_streak" if is_search(first_step, resumed, settings) else "streak"]
    evidence = (("streak", float(following.length)), ("first_step", float(first_step)))
    return following, Verdict(following.length >= limit, point.value, limit, evidence)


def is_search(first_step: int, resumed_step: int | None, settings: Settings) -> bool:
    """Whether a streak that begins at `first_step` is that of a scaler that looks for its scale."""
    is_after_resume = resumed_step is not None and 0 <= first_step - resumed_step < RESUMED_STEPS
    return first_step <= settings["startup_steps"] or is_after_resume
