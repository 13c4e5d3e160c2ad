"""A loss scale that collapses: far under the highest it has lately been, or at 1 and below after it was above.

The scaler halves the scale at each step that it skips and doubles it after a long calm, so a healthy scale moves by a few
doublings. 2^-8 of its running maximum, or 1, is what is left when the gradients do not fit any scale: from there on steps are
applied with underflowing gradients, or not at all.

What is no collapse: the search from above in the first steps (also after a resume, where a scaler that was not restored comes
down again: it is measured by where it stood before); a scale that somebody has fixed, however small, for it falls from nowhere;
and a level held for many thousand points, which is then the maximum that counts.
"""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point

from .base import Setting, Settings, Verdict

SETTINGS: Final = {
    "ratio": Setting(2.0**-8, 0.0, 1.0, meaning="share of its running maximum under which the scale has collapsed"),
    "floor": Setting(1.0, 0.0, 1e9, meaning="scale at which, and below, it has collapsed from wherever it was"),
    "startup_steps": Setting(100, 0, 1e9, whole=True, meaning="steps in which the scaler searches for its scale"),
}

REMEMBERED: Final = 5000
"""The running maximum is that of the last 5,000 to 10,000 points."""


@dataclass(frozen=True, slots=True)
class ScaleState:
    """What the scale has been in this segment, from `first_step` on.

    `highest`: since then. `older` and `newer`: the maxima of two stretches of up to `REMEMBERED` points after the search, of
    which the newer has `count`. `before`: where the scale stood when the segment began, None in the first one.
    """

    segment: int | None = None
    first_step: int = 0
    last: float = 0.0
    highest: float = 0.0
    older: float = 0.0
    newer: float = 0.0
    count: int = 0
    before: float | None = None


def step(state: ScaleState, point: Point, settings: Settings) -> tuple[ScaleState, Verdict]:
    """Judge the scale by its running maximum. Nothing is judged in the first search, nor a value that is not finite."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(holds=None, value=value)
    if point.segment != state.segment:
        before = None if state.segment is None else state.last
        state = ScaleState(point.segment, point.step, value, value, before=before)
    is_search = point.step - state.first_step < settings["startup_steps"]
    following = _remembered(state, value, is_search=is_search)
    maximum = state.before if is_search else max(following.older, following.newer)
    return following, _judge(following, value, maximum, settings)


def _remembered(state: ScaleState, value: float, *, is_search: bool) -> ScaleState:
    s, highest = state, max(state.highest, value)
    if is_search:
        return ScaleState(s.segment, s.first_step, value, highest, before=s.before)
    if s.count >= REMEMBERED:
        return ScaleState(s.segment, s.first_step, value, highest, s.newer, value, 1, s.before)
    return ScaleState(s.segment, s.first_step, value, highest, s.older, max(s.newer, value), s.count + 1, s.before)


def _judge(state: ScaleState, value: float, maximum: float | None, settings: Settings) -> Verdict:
    if maximum is None:
        return Verdict(holds=None, value=value)
    share, floor = settings["ratio"] * maximum, settings["floor"]
    is_low, is_exhausted = value < share, value <= floor < state.highest
    if value >= state.highest or not (is_low or is_exhausted):
        return Verdict(holds=False, value=value, limit=max(share, floor))
    evidence = (("maximum", maximum if is_low else state.highest),)
    return Verdict(holds=True, value=value, limit=share if is_low else floor, evidence=evidence)
