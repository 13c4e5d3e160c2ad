"""Optimizer steps skipped too often, though not in a row.

A healthy scaler skips about one step in 2,000. Three in 50 points say that the scale it needs is one that the gradients will not
bear; a twenty-fifth of the last 200 says the same of a slower kind. Steps of the search for the scale do not count (see
`skip_streak`). The series is 1.0 at a skipped step and 0.0 at an applied one; windows are in points of it.
"""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict
from .skip_streak import is_search

SETTINGS: Final = {
    "skips": Setting(3, 1, 1000, whole=True, meaning="skipped steps within the window"),
    "window": Setting(50, 2, 1000, whole=True, meaning="points in the window"),
    "share": Setting(0.04, 0.001, 1.0, meaning="share of skipped steps in the long window"),
    "share_window": Setting(200, 10, 1000, whole=True, meaning="points in the long window"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
}


@dataclass(frozen=True, slots=True)
class ShareState:
    """How many points there were, and which of the last ones were skips, by their number; oldest first.

    `is_searching`: the streak up to the last point is that of a search. The rest as in `skip_streak`.
    """

    points: int = 0
    skips: tuple[int, ...] = ()
    is_streak: bool = False
    is_searching: bool = False
    segment: int | None = None
    resumed_step: int | None = None


def step(state: ShareState, point: Point, settings: Settings) -> tuple[ShareState, Verdict]:
    """Count the skips of the two windows that end with this point."""
    if not math.isfinite(point.value):
        return state, Verdict(holds=None, value=point.value)
    following = _counted(state, point, settings)
    if not following.skips:
        return following, Verdict(holds=False, value=point.value)
    return following, _judge(following, point, settings)


def _counted(state: ShareState, point: Point, settings: Settings) -> ShareState:
    resumed = state.resumed_step
    if point.segment != state.segment and state.segment is not None:
        resumed = point.step
    number, is_skip, skips = state.points + 1, point.value > 0, state.skips
    oldest = number - max(settings["window"], settings["share_window"])
    if skips and skips[0] <= oldest:
        skips = skips[1:]
    searching = is_skip and (state.is_searching if state.is_streak else is_search(point.step, resumed, settings))
    if is_skip and not searching:
        skips = (*skips, number)
    return ShareState(number, skips, is_skip, searching, point.segment, resumed)


def _judge(state: ShareState, point: Point, settings: Settings) -> Verdict:
    recent = _within(state, settings["window"])
    share = _within(state, settings["share_window"]) / settings["share_window"]
    evidence = (("skips", float(recent)), ("window", settings["window"]), ("share", share))
    holds = recent >= settings["skips"] or share >= settings["share"]
    return Verdict(holds, point.value, settings["skips"], evidence)


def _within(state: ShareState, window: float) -> int:
    """Skips among the last `window` points."""
    return sum(1 for number in state.skips if number > state.points - window)
