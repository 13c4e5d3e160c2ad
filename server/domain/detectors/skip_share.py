"""Optimizer steps skipped too often, though not in a row.

A healthy scaler skips about one step in 2,000. Three in 50 points say that the scale it needs is one that the gradients will not
bear; a twenty-fifth of the last 200 says the same of a slower kind. Steps of the search for the scale do not count (see
`skip_streak`). The series is 1.0 at a skipped step and 0.0 at an applied one; windows are in points of it.
"""

import math
from collections.abc import Iterator
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.vocabulary import SegmentCause

from .base import CLEAR, Setting, Settings, Verdict
from .skip_streak import counted, is_search

SETTINGS: Final = {
    "skips": Setting(3, 1, 1000, whole=True, meaning="skipped steps within the window"),
    "window": Setting(50, 2, 1000, whole=True, meaning="points in the window"),
    "share": Setting(0.04, 0.001, 1.0, meaning="share of skipped steps in the long window"),
    "share_window": Setting(200, 10, 1000, whole=True, meaning="points in the long window"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
}


@frozen
class ShareState:
    """Where the skips of the last points lie: `gaps` are the points from each to the one after it, newest first.

    The first gap is that from the newest skip to the last point, so it grows; empty where there was no skip. `is_streak`: the
    last point was a skip, `is_search`: of a search. `resumed` as in `skip_streak`.
    """

    gaps: tuple[int, ...] = ()
    is_streak: bool = False
    is_search: bool = False
    resumed: int | None = None


def begins(state: ShareState, cause: SegmentCause) -> ShareState:
    """The next point is the first of a segment."""
    return ShareState(state.gaps, resumed=0) if cause is SegmentCause.RESTART else state


def step(state: ShareState, point: Point, settings: Settings) -> tuple[ShareState, Verdict]:
    """Count the skips of the two windows that end with this point."""
    if not math.isfinite(point.value):
        return state, Verdict(None, point.value)
    if point.value <= 0 and not (state.gaps or state.is_streak) and state.resumed is None:  # as nearly always
        return state, Verdict(CLEAR, point.value)
    following = _counted(state, point, settings)
    if not following.gaps:
        return following, Verdict(CLEAR, point.value)
    return following, _judge(following, point, settings)


def _counted(state: ShareState, point: Point, settings: Settings) -> ShareState:
    is_skip, gaps, resumed = point.value > 0, state.gaps, counted(state.resumed)
    searching = is_skip and (state.is_search if state.is_streak else is_search(point.step, state.resumed, settings))
    if gaps:
        gaps = (gaps[0] + 1, *gaps[1:])
    if is_skip and not searching:
        gaps = (0, *gaps)
    if gaps and sum(gaps) >= max(settings["window"], settings["share_window"]):
        gaps = gaps[:-1]
    return ShareState(gaps, is_skip, searching, resumed)


def _judge(state: ShareState, point: Point, settings: Settings) -> Verdict:
    ages = list(_ages(state.gaps))
    recent = sum(1 for age in ages if age < settings["window"])
    share = sum(1 for age in ages if age < settings["share_window"]) / settings["share_window"]
    evidence = (("skips", float(recent)), ("window", settings["window"]), ("share", share))
    holds = recent >= settings["skips"] or share >= settings["share"]
    return Verdict(holds, point.value, settings["skips"], evidence)


def _ages(gaps: tuple[int, ...]) -> Iterator[int]:
    """How many points ago each skip was, newest first."""
    age = 0
    for gap in gaps:
        age += gap
        yield age
