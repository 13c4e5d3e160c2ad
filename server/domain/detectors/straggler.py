"""One rank of several that is slower than the others, for whom they all wait.

The ranks' points are taken in rounds of `ROUND` steps, by the median of each rank. A round is judged once every rank has gone
past it, so the rounds and what is said of them are the same whatever the order in which the ranks' points arrive. A rank is slow
in a round if it is above `times` the median of the others; it is a straggler after `rounds` of them in a row. The first rounds
are not judged: ranks compile and fill their caches at different times.

A rank that is far behind (a link that was away) holds up the judging; of what the others have gone through meanwhile the last
`WAITING` rounds are kept, and older ones are never judged. Where nobody has said how many ranks there are, those seen count.

A step's whole duration shows no straggler: all wait for the slowest in the all-reduce of the gradients, and each is as slow.
The series has to be of what a rank does by itself.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.codec import to_json

from .base import RANKS, Setting, Settings, Verdict

SETTINGS: Final = {
    "times": Setting(1.5, 1.0, 1e6, meaning="times the median of the other ranks"),
    "least": Setting(0.005, 0.0, 1e6, meaning="how far above the others at least, in the unit of the series"),
    "rounds": Setting(3, 1, 1000, whole=True, meaning="rounds of 20 steps in a row that a rank must be slow"),
    "startup_rounds": Setting(2, 0, 1000, whole=True, meaning="rounds at the beginning that are not judged"),
}

ROUND: Final = 20
WAITING: Final = 32


@frozen
class RankState:
    """One rank: the round it is in with its values so far, and the rounds it has gone through, oldest first."""

    rank: int
    round: int
    values: tuple[float, ...] = ()
    done: tuple[tuple[int, float], ...] = ()
    """Round and median."""


@frozen
class StragglerState:
    """All ranks seen, in their order; rounds judged so far; and how many in a row each rank was slow, where it was."""

    ranks: tuple[RankState, ...] = ()
    judged: int = 0
    slow: Mapping[int, int] = field(default_factory=dict)


def step(state: StragglerState, point: Point, settings: Settings) -> tuple[StragglerState, Verdict]:
    """Take a point of one rank in; judge the round that it completes, if it completes one."""
    value, unknown = point.value, Verdict(None, point.value)
    if not math.isfinite(value) or settings.get(RANKS) == 1:
        return state, unknown
    number = point.step // ROUND
    place = next((n for n, each in enumerate(state.ranks) if each.rank == point.rank), None)
    if place is None:
        ranks = sorted((*state.ranks, RankState(point.rank, number, (value,))), key=lambda each: each.rank)
        return StragglerState(tuple(ranks), state.judged, state.slow), unknown
    mine = state.ranks[place]
    if number == mine.round:
        return _with(state, place, RankState(mine.rank, number, (*mine.values, value), mine.done)), unknown
    if number < mine.round:
        return state, unknown
    done = (*mine.done, (mine.round, statistics.median(mine.values)))[-WAITING:]
    return _judge(_with(state, place, RankState(mine.rank, number, (value,), done)), mine.round, value, settings)


def _with(state: StragglerState, place: int, changed: RankState) -> StragglerState:
    ranks = state.ranks
    return StragglerState((*ranks[:place], changed, *ranks[place + 1 :]), state.judged, state.slow)


def _judge(state: StragglerState, number: int, value: float, settings: Settings) -> tuple[StragglerState, Verdict]:
    """What round `number` says, which a rank has just gone past."""
    levels = {each.rank: level for each in state.ranks for done, level in each.done if done == number}
    if len(levels) < max(2, settings.get(RANKS, 0), len(state.ranks)):
        return state, Verdict(None, value)
    ranks = tuple(RankState(each.rank, each.round, each.values, _after(each.done, number)) for each in state.ranks)
    judged = state.judged + 1
    if judged <= settings["startup_rounds"]:
        return StragglerState(ranks, judged), Verdict(None, value)
    slow = {rank: state.slow.get(rank, 0) + 1 for rank in levels if _is_slow(rank, levels, settings)}
    return StragglerState(ranks, judged, slow), _verdict(number, levels, slow, settings)


def _after(done: Iterable[tuple[int, float]], number: int) -> tuple[tuple[int, float], ...]:
    """What is still to be judged: rounds come in order, so one before this will not be complete any more."""
    return tuple(each for each in done if each[0] > number)


def _is_slow(rank: int, levels: Mapping[int, float], settings: Settings) -> bool:
    others = _others(rank, levels)
    return levels[rank] > max(others * settings["times"], others + settings["least"])


def _others(rank: int, levels: Mapping[int, float]) -> float:
    return statistics.median(level for other, level in levels.items() if other != rank)


def _verdict(number: int, levels: Mapping[int, float], slow: Mapping[int, int], settings: Settings) -> Verdict:
    stragglers = [rank for rank, rounds in slow.items() if rounds >= settings["rounds"]]
    rank = max(stragglers or levels, key=lambda each: (levels[each], -each))
    others = _others(rank, levels)
    limit = max(others * settings["times"], others + settings["least"])
    last = float((number + 1) * ROUND - 1)
    evidence = (("rank", float(rank)), ("others", others), ("ranks", float(len(levels))), ("step", last))
    return Verdict(bool(stragglers), levels[rank], limit, evidence)


def stored(state: StragglerState) -> dict[str, Any]:
    """The state as JSON."""
    ranks = [[each.rank, each.round, list(each.values), [to_json(done) for done in each.done]] for each in state.ranks]
    return {"ranks": ranks, "judged": state.judged, "slow": [list(each) for each in sorted(state.slow.items())]}


def restore(parsed: Mapping[str, Any]) -> StragglerState:
    """The state out of its JSON."""
    ranks = tuple(_rank(*each) for each in parsed["ranks"])
    return StragglerState(ranks, int(parsed["judged"]), {int(rank): int(rounds) for rank, rounds in parsed["slow"]})


def _rank(rank: int, number: int, values: Sequence[float], done: Sequence[Sequence[float]]) -> RankState:
    return RankState(int(rank), int(number), tuple(map(float, values)), tuple((int(r), float(level)) for r, level in done))
