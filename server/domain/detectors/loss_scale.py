"""A loss scale that collapses: far under the highest it has lately been, or at 1 and below after it was above.

The scaler halves the scale at each step that it skips and doubles it after a long calm, so a healthy scale moves by a few
doublings. 2^-8 of its running maximum, or 1, is what is left when the gradients do not fit any scale: from there on steps are
applied with underflowing gradients, or not at all.

What is no collapse: the search from above in the first steps (also after a restart, where a scaler that was not restored comes
down again: it is measured by where it stood before); a scale that somebody has fixed, however small, for it falls from nowhere;
and a level held for many thousand steps, which is then the maximum that counts. After a rewind only the points that are looked
at again are remembered.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.codec import MAX_STEP
from trainer_agent.wire.vocabulary import SegmentCause

from .base import CLEAR, HOLDS, Setting, Settings, Verdict

SETTINGS: Final = {
    "ratio": Setting(2.0**-8, 0.0, 1.0, meaning="share of its running maximum under which the scale has collapsed"),
    "floor": Setting(1.0, 0.0, 1e9, meaning="scale at which, and below, it has collapsed from wherever it was"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
}

REMEMBERED: Final = 5000
"""The running maximum is that of the last 5,000 to 10,000 steps."""


@frozen
class ScaleState:
    """What the scale has been since the run or the last restart began.

    `last` and `highest` are None before the first value. The search lasts up to step `until`, None where it is over or nothing is
    known of it yet. `older` and `newer`: the maxima of two stretches of `REMEMBERED` steps after it, of which the newer began
    with step `since`. `before`: where the scale stood at the last restart, None where there was none.
    """

    last: float | None = None
    highest: float | None = None
    until: int | None = None
    older: float = 0.0
    newer: float = 0.0
    since: int | None = None
    before: float | None = None


def begins(state: ScaleState, cause: SegmentCause) -> ScaleState:
    """The next point is the first of a segment. A rollback restores the scaler, so all that was stays."""
    return ScaleState(before=state.last) if cause is SegmentCause.RESTART else state


def step(state: ScaleState, point: Point, settings: Settings) -> tuple[ScaleState, Verdict]:
    """Judge the scale by its running maximum. Nothing is judged in the first search, nor a value that is not finite."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    until = min(point.step + int(settings["startup_steps"]) - 1, MAX_STEP) if state.last is None else state.until
    is_search = until is not None and point.step <= until
    following = _remembered(state, point, until if is_search else None)
    maximum = state.before if is_search else max(following.older, following.newer)
    return following, _judge(following, value, maximum, settings)


def _remembered(state: ScaleState, point: Point, until: int | None) -> ScaleState:
    """The state with one more value; the same one where it says nothing new, as most do."""
    s, value = state, point.value
    highest = value if s.highest is None else max(s.highest, value)
    if until is not None:
        return ScaleState(value, highest, until, before=s.before)
    if s.since is None:
        return ScaleState(value, highest, newer=value, since=point.step, before=s.before)
    if point.step - s.since >= REMEMBERED:
        return ScaleState(value, highest, None, s.newer, value, point.step, s.before)
    if value == s.last:
        return s
    return ScaleState(value, highest, None, s.older, max(s.newer, value), s.since, s.before)


def _judge(state: ScaleState, value: float, maximum: float | None, settings: Settings) -> Verdict:
    if maximum is None or state.highest is None:
        return Verdict(None, value)
    share, floor = settings["ratio"] * maximum, settings["floor"]
    is_low, is_exhausted = value < share, value <= floor < state.highest
    if value >= state.highest or not (is_low or is_exhausted):
        return Verdict(CLEAR, value, max(share, floor))
    evidence = (("maximum", maximum if is_low else state.highest),)
    return Verdict(HOLDS, value, share if is_low else floor, evidence)
