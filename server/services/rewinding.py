"""Where rules stand at the start of a segment: what the points that it has left standing, and they alone, make of each.

The points of a rule's own series and of its companions are judged again together, in the order in which they came, by the same
code as the first time. Nothing is told of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from server.domain import watching
from server.domain.alerts import Alert
from server.domain.detectors import DETECTORS
from server.domain.judging import ALL_RANKS, Judging, Key, replayed
from server.domain.rules import AlertRule
from server.domain.watching import Watch
from server.store import alerts as alerts_store
from server.store import segments as segments_store
from server.store.kept_points import kept_points
from trainer_agent.wire.vocabulary import SegmentCause


@dataclass(frozen=True, slots=True)
class Rewind:
    """A segment of a run, and the step of the earlier ones that it goes on from. `cause`: None where nobody has said."""

    run_id: str
    segment: int
    from_step: int
    cause: SegmentCause | None
    ranks: int = 0
    """How many the run has; 0 where that is not known."""


def rewound(connection: Connection, to: Rewind, places: Iterable[tuple[Key, AlertRule]]) -> dict[Key, Watch]:
    """Where each rule stands at the start of the segment, at each of `places`. Episodes that it leaves open go on.

    A rule that cannot judge its points again stands at the beginning; it will fail at the next point, where that is told.
    """
    by_rank: dict[int, dict[Key, AlertRule]] = {}
    for key, rule in places:
        by_rank.setdefault(key[2], {})[key] = rule
    found: dict[Key, Watch] = {}
    open_alerts = alerts_store.open_alerts(connection, to.run_id)
    for rank, rules in by_rank.items():
        judging = _judged_again(connection, to, rank, rules)
        for key, rule in rules.items():
            found[key] = _stand(connection, to, rule, key, judging, open_alerts)
    return found


def _judged_again(connection: Connection, to: Rewind, rank: int, rules: dict[Key, AlertRule]) -> Judging:
    names = {series for _, series, _ in rules}
    companions = {name for rule in rules.values() for name in DETECTORS[rule.detector].companions}
    points = kept_points(
        connection,
        to.run_id,
        names | companions,
        rank=None if rank == ALL_RANKS else rank,
        before_segment=to.segment,
        up_to_step=to.from_step,
        limit=watching.REPLAYED_POINTS,
    )
    causes = {each.segment: each.cause for each in segments_store.read_segments(connection, to.run_id)}
    by_id = {rule.rule_id: rule for rule in rules.values()}
    return replayed(to.run_id, rank, by_id.values(), points, causes, ranks=to.ranks)


def _stand(  # noqa: PLR0917  what is known of one place
    connection: Connection, to: Rewind, rule: AlertRule, key: Key, judging: Judging, open_alerts: Iterable[Alert]
) -> Watch:
    post = judging.post(key)
    watch = watching.fresh(rule, to.segment) if post is None else watching.begun(rule, post.watch, to.segment, to.cause)
    still_open = next((each for each in open_alerts if (each.rule_id, each.series, each.rank) == key), None)
    watch = replace(watch, status=watching.kept(watch.status, still_open))
    state = watch.status.state
    if still_open is not None and state is not None and state is not still_open.state:
        alerts_store.save_alert(connection, replace(still_open, state=state), still_open.state)
    return watch
