"""Where rules stand at the start of a segment: what the points that it has left standing, and they alone, make of each.

The points of a rule's own series and of its companions are judged again together, in the order in which they came, by the same
code as the first time: from the newest snapshot before the segment's start on, or all of them. Nothing is told of it.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from server.domain import watching
from server.domain.alerts import Alert
from server.domain.detectors import DETECTORS
from server.domain.judging import ALL_RANKS, Key
from server.domain.replaying import replayed
from server.domain.rules import AlertRule
from server.domain.watching import Watch
from server.store import alerts as alerts_store
from server.store import segments as segments_store
from server.store import snapshots
from server.store.kept_points import kept_points
from trainer_agent.wire.vocabulary import SegmentCause

_log = logging.getLogger(__name__)
SNAPSHOT_RECORDS = 1000
"""A snapshot is kept about so many records apart: a rewind judges fewer than that again."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A segment of a run, and the step of the earlier ones that it goes on from. `cause`: None where nobody has said."""

    run_id: str
    segment: int
    from_step: int
    cause: SegmentCause | None
    ranks: int = 0
    """How many the run has; 0 where that is not known."""


_Rules = Mapping[Key, AlertRule]
_Watches = dict[Key, Watch]


@dataclass(frozen=True, slots=True)
class _Begin:
    """From where on points are judged again, and where the rules stood there."""

    place: snapshots.Place | None
    stood: _Watches


_FROM_NOTHING = _Begin(None, {})


def remember(
    connection: Connection, run_id: str, rank: int, place: snapshots.Place, *, first_seq: int, stood_in: int | None
) -> None:
    """Keep where the rules stand after a stretch of points, from `first_seq` to `place`, now and then.

    Points of an earlier segment than the newest come too late for the rules, but the next rewind counts them: what stands behind
    them is of no use to it any more. Not so where the rules `stood_in` their segment: the rank has not heard yet of the newest.
    """
    if place.segment != stood_in and place.segment < (newest := _newest_segment(connection, run_id)):
        snapshots.give_up(connection, run_id, rank, place, newest)
    elif first_seq // SNAPSHOT_RECORDS != (place.seq + 1) // SNAPSHOT_RECORDS:
        snapshots.keep(connection, run_id, rank, place)


def _newest_segment(connection: Connection, run_id: str) -> int:
    return max((segment for segment, _ in segments_store.starts_of(connection, run_id)), default=0)


def rewound(connection: Connection, to: Rewind, places: Iterable[tuple[Key, AlertRule]]) -> _Watches:
    """Where each rule stands at the start of the segment, at each of `places`. Episodes that it leaves open go on.

    A rule that cannot judge its points again stands at the beginning; it will fail at the next point, where that is told.
    """
    by_rank: dict[int, dict[Key, AlertRule]] = {}
    for key, rule in places:
        by_rank.setdefault(key[2], {})[key] = rule
    found: _Watches = {}
    open_alerts = alerts_store.open_alerts(connection, to.run_id)
    for rank, rules in by_rank.items():
        stood = _judged_again(connection, to, rank, rules)
        for key, rule in rules.items():
            found[key] = _stand(connection, to, rule, key, stood.get(key), open_alerts)
    return found


def _judged_again(connection: Connection, to: Rewind, rank: int, rules: _Rules) -> _Watches:
    """Where the points that count bring the rules: those that a snapshot knows from there on, the others from the start."""
    snapshot = None if rank == ALL_RANKS else snapshots.newest(connection, to.run_id, rank, to.segment, to.from_step)
    if snapshot is None:
        return _carried_on(connection, to, rank, rules, _FROM_NOTHING)
    stood = _readable(snapshot, {rule.rule_id: rule for rule in rules.values()})
    known = {rule_id for rule_id, _, _ in stood}
    remembered = {key: rule for key, rule in rules.items() if key[0] in known}
    others = {key: rule for key, rule in rules.items() if key[0] not in known}
    found = _carried_on(connection, to, rank, remembered, _Begin(snapshot.place, stood))
    return found | _carried_on(connection, to, rank, others, _FROM_NOTHING)


def _readable(snapshot: snapshots.Snapshot, rules: Mapping[str, AlertRule]) -> _Watches:
    """Where the rules stood, as far as they are the same rules now; nothing where that cannot be read."""
    try:
        return {
            (each.rule_id, each.series, each.rank): watching.from_parsed(rule, each.state, each.segment)
            for each in snapshot.states()
            if (rule := rules.get(each.rule_id)) is not None and rule.version == each.rule_version
        }
    except Exception as error:
        _log.warning("the snapshot at %s cannot be read, all points are judged again: %r", snapshot.place, error)
        return {}


def _carried_on(connection: Connection, to: Rewind, rank: int, rules: _Rules, begin: _Begin) -> _Watches:
    """Where the points from somewhere on bring the rules."""
    if not rules:
        return {}
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
        after=begin.place,
    )
    causes = {each.segment: each.cause for each in segments_store.read_segments(connection, to.run_id)}
    by_id = {rule.rule_id: rule for rule in rules.values()}
    judging = replayed(to.run_id, rank, by_id.values(), points, causes, ranks=to.ranks, stood=begin.stood)
    return begin.stood | {post.key: post.watch for post in judging.posts}


def _stand(  # noqa: PLR0917  what is known of one place
    connection: Connection, to: Rewind, rule: AlertRule, key: Key, stood: Watch | None, open_alerts: Iterable[Alert]
) -> Watch:
    watch = watching.fresh(rule, to.segment) if stood is None else watching.begun(rule, stood, to.segment, to.cause)
    still_open = next((each for each in open_alerts if (each.rule_id, each.series, each.rank) == key), None)
    watch = replace(watch, status=watching.kept(watch.status, still_open))
    state = watch.status.state
    if still_open is not None and state is not None and state is not still_open.state:
        alerts_store.save_alert(connection, replace(still_open, state=state), still_open.state)
    return watch
