"""Judging once more what was judged before: nothing of it is told."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from trainer_agent.wire.vocabulary import SegmentCause

from . import watching
from .judging import Judging, Key
from .points import Point
from .rules import AlertRule, Scope
from .watching import Watch

_NOWHERE: Mapping[Key, Watch] = MappingProxyType({})


def replayed(
    run_id: str,
    rank: int,
    rules: Iterable[AlertRule],
    points: Iterable[Point],
    causes: Mapping[int, SegmentCause],
    *,
    ranks: int,
    stood: Mapping[Key, Watch] = _NOWHERE,
) -> Judging:
    """The rules where the points of an effective curve bring them; what they would tell is not told.

    Args:
        run_id: the run.
        rank: whose points they are; `ALL_RANKS` for those of all.
        rules: those to judge by, whatever their scope.
        points: all series together, in the order in which they were judged.
        causes: why each segment began, where that is known.
        ranks: how many the run has, 0 where that is not known.
        stood: where rules stood before the first of the points; a rule that is not in it has seen nothing.
    """

    def goes_on(rule: AlertRule, key: Key, point: Point) -> Watch:
        post = judging.post(key)
        if post is None:
            return stood.get(key) or watching.fresh(rule, point.segment)
        return watching.begun(rule, post.watch, point.segment, causes.get(point.segment))

    everywhere = [replace(rule, scope=Scope(), enabled=True) for rule in rules]
    judging = Judging(run_id, "", rank, everywhere, goes_on, ranks=ranks, known=stood)
    for point in points:
        judging.judge(point)
    return judging
