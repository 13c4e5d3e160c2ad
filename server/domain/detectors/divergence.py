"""A level that has left its best and does not come back: the median of the last K points against the lowest such median so far.

    level > best * times     and     log(level / best) > spreads * S     for `points` points in a row

S is the standard deviation of a median of K points. It is read off the successive differences of log(value), which a trend and a
slow swing hardly touch: sigma = 1.4826 median |difference| / sqrt 2, S = sigma sqrt(pi / 2K).
Where most differences are zero and some are not (a log rounded to 0.01, of a loss of 0.02), the smallest of these stands for the
median: rounding hides the noise.

What is too slow or too noisy for that is judged by a slow level as well: the median of the last `SLOW` levels, one taken every K
points, against the lowest of those, with the S of K * SLOW points, at `SLOW_HIGH` such levels in a row.

In the first points of a run there is no noise to go by yet. There `give_back` judges: a run that had fallen to `FALLEN` of its
first value or lower, and stands with the median of its last three points, twice running, at `YOUNG_TIMES` its best, having given
back that part of its fall.

The lowest level of thousands of noisy points lies below all others by chance alone, which is what `spreads` must be wide for.

K: `window`.
"""

import math
from typing import Final

from server.domain.points import Point
from server.domain.values import frozen

from .base import Setting, Settings, Verdict
from .past import NOTHING, YOUNG, Past, see
from .windows import TO_SIGMA, Floats, median, pushed

MOVES: Final = 64
"""Differences that the noise is read off."""
FEWEST_MOVES: Final = 4
LEAST_SIGMA: Final = 1e-4
"""Noise that a level has at least: a series of equal numbers has none, and any change would be a divergence."""
SLOW: Final = 5
SLOW_HIGH: Final = 3
YOUNG_TIMES: Final = 1.8
FALLEN: Final = 0.4

SETTINGS: Final = {
    "window": Setting(5, 3, 128, whole=True, meaning="points whose median is the level"),
    "times": Setting(1.15, 1.0, 1e6, meaning="times the best level so far"),
    "spreads": Setting(16.0, 0.0, 1e6, meaning="standard deviations of a level above the best one"),
    "points": Setting(5, 1, 10_000, whole=True, meaning="points in a row at which it must be that high"),
    "give_back": Setting(0.0, 0.0, 1.0, meaning="part of its fall that a young run may give back (0: not judged)"),
}


@frozen
class SlowLevel:
    """The last `SLOW` levels, one every K points, the lowest median of as many, and for how many it was past its limit."""

    levels: Floats = ()
    best: float | None = None
    high: int = 0


NO_LEVEL: Final = SlowLevel()


@frozen
class DivergenceState:
    """The last K values; the last distances between logarithms of successive ones, as they came and in rising order.

    The few values are sorted where their median is asked for: up to some thirty that is less work than to keep them in order.
    """

    past: Past = NOTHING
    values: Floats = ()
    moves: Floats = ()
    ranked_moves: Floats = ()
    log: float = 0.0
    """Of the last value."""
    best: float | None = None
    """The lowest level up to the last point; None before there was one."""
    high: int = 0
    """Points in a row, up to the last, at which the level was past its limit."""
    slow: SlowLevel = NO_LEVEL


def step(state: DivergenceState, point: Point, settings: Settings) -> tuple[DivergenceState, Verdict]:
    """Judge the level with this point in it. Values that are not above zero say nothing and leave the state as it was."""
    value = point.value
    if not math.isfinite(value) or (value == 0 and state.past.count):
        return state, Verdict(None, value)
    past, anew = see(state.past, value, point.step)
    if past.signed:
        return DivergenceState(past), Verdict(None, value)
    window, best, slow, log = settings["window"], state.best, state.slow, math.log(value)
    values = (*(state.values if len(state.values) < window else state.values[1:]), value)
    moves, ranked_moves = ((), ()) if anew else (state.moves, state.ranked_moves)
    if past.count > 1 and not anew:
        moves, ranked_moves = pushed(moves, ranked_moves, abs(log - state.log), MOVES)
    if best is None:
        best = median(sorted(values)) if len(values) == window else None
        return DivergenceState(past, values, moves, ranked_moves, log, best), Verdict(None, value)
    level = median(sorted(values))
    limit = _limit(level, best, ranked_moves, window, settings)
    high = state.high + 1 if level > limit else 0
    if past.count % window == 0:
        slow = _slowly(slow, level, ranked_moves, settings)
    following = DivergenceState(past, values, moves, ranked_moves, log, min(level, best), high, slow)
    holds = high >= settings["points"] or slow.high >= SLOW_HIGH
    if not holds and past.count <= YOUNG and _has_relapsed(past.first, best, values, settings["give_back"]):
        holds, limit = True, YOUNG_TIMES * best
    evidence = (("level", level), ("best", best), ("points", window)) if holds or high else ()
    return following, Verdict(holds, value, limit if math.isfinite(limit) else None, evidence)


def _limit(level: float, best: float, ranked_moves: Floats, points: float, settings: Settings) -> float:
    """Above which the median of `points` points is too high. Most are within the ratio, and the noise can only raise it."""
    limit = best * settings["times"]
    if level <= limit:
        return limit
    if len(ranked_moves) < FEWEST_MOVES:
        return math.inf
    sigma = TO_SIGMA * _move(ranked_moves) / math.sqrt(2)
    of_level = max(sigma * math.sqrt(math.pi / 2 / points), LEAST_SIGMA)
    return max(limit, best * math.exp(min(settings["spreads"] * of_level, 700.0)))


def _move(ranked_moves: Floats) -> float:
    """The usual difference. Of a log whose values are rounded the smallest, where it moves now and then and mostly does not."""
    usual = median(ranked_moves)
    return usual if usual or not ranked_moves[-FEWEST_MOVES] else next(each for each in ranked_moves if each)


def _slowly(slow: SlowLevel, level: float, ranked_moves: Floats, settings: Settings) -> SlowLevel:
    """The slow level with one more level in it."""
    levels = (*slow.levels[-(SLOW - 1) :], level)
    if len(levels) < SLOW:
        return SlowLevel(levels)
    now = sorted(levels)[SLOW // 2]
    if slow.best is None or now <= slow.best:
        return SlowLevel(levels, now)
    limit = _limit(now, slow.best, ranked_moves, settings["window"] * SLOW, settings)
    return SlowLevel(levels, slow.best, slow.high + 1 if now > limit else 0)


def _has_relapsed(first: float, best: float, values: Floats, give_back: float) -> bool:
    if not give_back or best > FALLEN * first:
        return False
    level = min(sorted(values[-3:])[1], sorted(values[-4:-1])[1])
    return level > YOUNG_TIMES * best and level - best > give_back * (first - best)
