"""A loss of exactly zero that cannot be real: without a gradient, or far below anything the run has reached.

Trainers that leave non-finite losses out of their mean log 0.0 for a stretch of them, and a dip for a stretch that holds a few:
"the loss got better" is then the symptom of NaN. A point is suspicious

- when it is zero while the lowest value before it was still above `REACHED` of the first, or
- when it is below `DIP` of the lowest value before it and the gradient norm of the step was not finite.

It holds at `need` suspicious points among the last `of`, and at `streak` zeros in a row whose gradient norms were zero or not
finite: nothing is being learnt. A loss that may be zero (rewards without a spread, labels that are all masked) has gradients.
"""

import math
from dataclasses import replace
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire import series

from .base import CLEAR, MOST_BITS, Setting, Settings, Verdict

HISTORY: Final = 10
"""Values other than zero before a point can be suspicious."""
REACHED: Final = 0.01
DIP: Final = 0.95

COMPANIONS: Final = (series.GRAD_NORM,)

SETTINGS: Final = {
    "need": Setting(3, 1, MOST_BITS, whole=True, meaning="suspicious points that are needed"),
    "of": Setting(10, 1, MOST_BITS, whole=True, meaning="among the last so many"),
    "streak": Setting(10, 1, 100_000, whole=True, meaning="zeros in a row without a gradient"),
}


@frozen
class ZeroState:
    """The first value other than zero, the lowest, and how many there were; suspicious points, a bit each; zeros in a row."""

    count: int = 0
    """Counted up to `HISTORY`."""
    first: float = 0.0
    lowest: float = math.inf
    hits: int = 0
    zeros: int = 0
    no_gradient_at: int | None = None
    """The last step whose gradient norm was zero."""
    bad_gradient_at: int | None = None
    """The last step whose gradient norm was not finite."""


def observe(state: ZeroState, point: Point, settings: Settings) -> ZeroState:  # noqa: ARG001  one signature
    """Remember a gradient norm that says something."""
    if point.value == 0:
        return replace(state, no_gradient_at=point.step)
    return state if math.isfinite(point.value) else replace(state, bad_gradient_at=point.step)


def step(state: ZeroState, point: Point, settings: Settings) -> tuple[ZeroState, Verdict]:
    """Judge one loss. A non-finite one is not judged here and leaves the state as it was."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    if value >= state.lowest and value and not state.hits and not state.zeros and state.count == HISTORY:
        return state, Verdict(CLEAR, value)  # nearly all points
    bad = state.bad_gradient_at == point.step
    suspicious = _is_suspicious(state, value, bad=bad)
    hits = (state.hits << 1 | suspicious) & (1 << int(settings["of"])) - 1
    zeros = state.zeros + 1 if value == 0 and (bad or state.no_gradient_at == point.step) else 0
    counted = state if suspicious else _counted(state, value)
    following = replace(counted, hits=hits, zeros=zeros)
    found = hits.bit_count()
    evidence = (("found", float(found)), ("of", settings["of"]), ("zeros", float(zeros))) if found or zeros else ()
    return following, Verdict(found >= settings["need"] or zeros >= settings["streak"], value, None, evidence)


def _counted(state: ZeroState, value: float) -> ZeroState:
    if value == 0:
        return state
    first = value if state.count == 0 else state.first
    return replace(state, count=min(state.count + 1, HISTORY), first=first, lowest=min(value, state.lowest))


def _is_suspicious(state: ZeroState, value: float, *, bad: bool) -> bool:
    """Whether a zero, or a value without a sound gradient (`bad`), is lower than it can be."""
    if state.count < HISTORY or state.lowest <= 0:
        return False
    return state.lowest > REACHED * state.first if value == 0 else bad and value < DIP * state.lowest
