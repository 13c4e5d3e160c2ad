"""A loss of exactly zero that cannot be real: without a gradient, or far below anything the run has reached.

Trainers that leave non-finite losses out of their mean log 0.0 for a stretch of them, and a dip for a stretch that holds a few:
"the loss got better" is then the symptom of NaN. A point is suspicious

- when it is zero while the lowest value before it was above `REACHED` of the median of the last W points, or
- when it is below that median by `DIP_SPREADS` robust deviations and the gradient norm of the step was not finite.

It holds at `need` suspicious points among the last `of`, and at `streak` zeros in a row whose gradient norms were zero or not
finite: nothing is being learnt. A loss that may be zero (rewards without a spread, labels that are all masked) has gradients.

W: `WINDOW`.
"""

import math
from dataclasses import dataclass
from typing import Final

from server.domain.points import Point
from trainer_agent.wire import series

from .base import Setting, Settings, Verdict
from .windows import Floats, median, spread

WINDOW: Final = 32
HISTORY: Final = 10
REACHED: Final = 0.01
DIP_SPREADS: Final = 5.0

COMPANIONS: Final = (series.GRAD_NORM,)

SETTINGS: Final = {
    "need": Setting(3, 1, 60, whole=True, meaning="suspicious points that are needed"),
    "of": Setting(10, 1, 60, whole=True, meaning="among the last so many"),
    "streak": Setting(10, 1, 100_000, whole=True, meaning="zeros in a row without a gradient"),
}


@dataclass(frozen=True, slots=True)
class ZeroState:
    """The last W values other than zero, oldest first, and the lowest ever; suspicious points, a bit each; zeros in a row."""

    values: Floats = ()
    lowest: float | None = None
    hits: int = 0
    zeros: int = 0
    no_gradient_at: int | None = None
    """The last step whose gradient norm was zero."""
    bad_gradient_at: int | None = None
    """The last step whose gradient norm was not finite."""


def observe(state: ZeroState, point: Point, settings: Settings) -> ZeroState:  # noqa: ARG001  one signature
    """Remember a gradient norm that says something."""
    if point.value == 0:
        return ZeroState(state.values, state.lowest, state.hits, state.zeros, point.step, state.bad_gradient_at)
    if not math.isfinite(point.value):
        return ZeroState(state.values, state.lowest, state.hits, state.zeros, state.no_gradient_at, point.step)
    return state


def step(state: ZeroState, point: Point, settings: Settings) -> tuple[ZeroState, Verdict]:
    """Judge one loss. A non-finite one is not judged here and leaves the state as it was."""
    value = point.value
    if not math.isfinite(value):
        return state, Verdict(None, value)
    bad = state.bad_gradient_at == point.step
    suspicious = (value == 0 or bad) and _is_suspicious(state, value)
    hits = (state.hits << 1 | suspicious) & (1 << int(settings["of"])) - 1
    zeros = state.zeros + 1 if value == 0 and (bad or state.no_gradient_at == point.step) else 0
    values, lowest = state.values, state.lowest
    if value != 0:
        values = (*values[1 - WINDOW :], value)
        lowest = value if lowest is None else min(value, lowest)
    found = hits.bit_count()
    following = ZeroState(values, lowest, hits, zeros, state.no_gradient_at, state.bad_gradient_at)
    if not found and not zeros:
        return following, Verdict(holds=False, value=value)
    evidence = (("found", float(found)), ("of", settings["of"]), ("zeros", float(zeros)))
    return following, Verdict(found >= settings["need"] or zeros >= settings["streak"], value, None, evidence)


def _is_suspicious(state: ZeroState, value: float) -> bool:
    """Whether a zero, or a value without a sound gradient, is lower than it can be."""
    if len(state.values) < HISTORY or state.lowest is None:
        return False
    ranked = sorted(state.values)  # few points come this far
    middle = median(ranked)
    return state.lowest > REACHED * middle if value == 0 else value < middle - DIP_SPREADS * spread(ranked, middle)
