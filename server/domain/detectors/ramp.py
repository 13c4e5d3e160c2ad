"""A value that climbs stretch by stretch: the medians of successive stretches of points rise several times, `times` in all.

It is for the slow form of a divergence, whose every step is too small for a spike and whose sum is not: a gradient norm of 2.3,
3.1, 5.8 before 12.5 and 156.

Medians of a noisy series rise several times by chance. So log(last / first) must also be `spreads` standard deviations of such a
median, read off the differences within the last stretches: sigma = 1.4826 median |difference of log(value)| / sqrt 2.

K: `stretch`.
"""

import math
from itertools import pairwise
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import Setting, Settings, Verdict
from .windows import TO_SIGMA, Floats

STRETCHES: Final = 16
"""Stretches that the noise is read off."""

SETTINGS: Final = {
    "rises": Setting(3, 1, 100, whole=True, meaning="successive rises of the median"),
    "stretch": Setting(5, 2, 1000, whole=True, meaning="points that a median is taken of"),
    "times": Setting(2.0, 1.0, 1e6, meaning="times from the first median of the climb to the last"),
    "spreads": Setting(6.0, 0.0, 1e6, meaning="standard deviations of a median from the first to the last"),
}


@frozen
class RampState:
    """The values of the stretch that is not full; the medians of the climb so far; what the last stretches differed by within."""

    values: Floats = ()
    climb: Floats = ()
    noises: Floats = ()


def step(state: RampState, point: Point, settings: Settings) -> tuple[RampState, Verdict]:
    """Judge at the end of each stretch; the points within one, and values not above zero, neither advance nor end anything."""
    value = point.value
    if not math.isfinite(value) or value <= 0:
        return state, Verdict(None, value)
    values = (*state.values, value)
    if len(values) < settings["stretch"]:
        return RampState(values, state.climb, state.noises), Verdict(None, value)
    level, kept = sorted(values)[len(values) // 2], int(settings["rises"])
    climb = (*state.climb[-kept:], level) if state.climb and level > state.climb[-1] else (level,)
    noises = (*state.noises[1 - STRETCHES :], _differences(values))
    limit = climb[0] * _least_times(noises, settings)
    evidence = (("rises", float(len(climb) - 1)), ("start", climb[0]), ("level", level))
    return RampState((), climb, noises), Verdict(len(climb) > kept and level > limit, value, limit, evidence)


def _differences(values: Floats) -> float:
    """The median distance between the logarithms of successive values."""
    distances = sorted(abs(math.log(after) - math.log(before)) for before, after in pairwise(values))
    return distances[len(distances) // 2]


def _least_times(noises: Floats, settings: Settings) -> float:
    sigma = TO_SIGMA * sorted(noises)[len(noises) // 2] / math.sqrt(2)
    of_median = sigma * math.sqrt(math.pi / 2 / settings["stretch"])
    return max(settings["times"], math.exp(min(settings["spreads"] * of_median, 700.0)))
