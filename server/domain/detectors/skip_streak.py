"""Several optimizer steps in a row that the loss scaler skipped: a run that learns nothing any more.

One skipped step is normal in fp16 (about one in 2,000: the scale halves and the next step is applied). At the start the scaler
searches for its scale from above and may halve up to 16 times in a row, so a streak that begins there is allowed as many; so is
one that begins with the first or second step after a restart, where a scaler that was not restored searches again (which the
agent's own check of a resume tells). A rollback restores the scaler, so nothing is allowed there.

The series is 1.0 at a skipped step and 0.0 at an applied one.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.vocabulary import SegmentCause

from .base import CLEAR, Setting, Settings, Verdict

SETTINGS: Final = {
    "streak": Setting(4, 1, 10_000, whole=True, meaning="skipped steps in a row"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
    "startup_streak": Setting(17, 1, 10_000, whole=True, meaning="skipped steps in a row for a streak that begins there"),
}

RESUMED_POINTS: Final = 2
"""A search after a restart begins with one of the first points."""


@frozen
class StreakState:
    """Skipped steps in a row up to the last point, and the step of the first of them. `is_search`: it began in a search.

    `resumed`: points since a restart, None where that is long ago.
    """

    length: int = 0
    first_step: int = 0
    is_search: bool = False
    resumed: int | None = None


def begins(state: StreakState, cause: SegmentCause) -> StreakState:
    """The next point is the first of a segment. What was skipped in a row before a restart is over with it."""
    return StreakState(resumed=0) if cause is SegmentCause.RESTART else state


def step(state: StreakState, point: Point, settings: Settings) -> tuple[StreakState, Verdict]:
    """Count the streak. Holds from its `streak`th step on."""
    if not math.isfinite(point.value):
        return state, Verdict(None, point.value)
    if point.value <= 0 and not state.length and state.resumed is None:  # as nearly always
        return state, Verdict(CLEAR, point.value)
    resumed = counted(state.resumed)
    if point.value <= 0:
        return StreakState(resumed=resumed), Verdict(CLEAR, point.value)
    first_step, searching = state.first_step, state.is_search
    if not state.length:
        first_step, searching = point.step, is_search(point.step, state.resumed, settings)
    following = StreakState(state.length + 1, first_step, searching, resumed)
    limit = settings["startup_streak" if searching else "streak"]
    evidence = (("streak", float(following.length)), ("first_step", float(first_step)))
    return following, Verdict(following.length >= limit, point.value, limit, evidence)


def counted(resumed: int | None) -> int | None:
    """The points since a restart after one more; None once a search can begin no more."""
    return None if resumed is None or resumed + 1 >= RESUMED_POINTS else resumed + 1


def is_search(first_step: int, resumed: int | None, settings: Settings) -> bool:
    """Whether a streak that begins there, so many points after a restart, is that of a scaler that looks for its scale."""
    return first_step <= settings["startup_steps"] or resumed is not None
