"""Judging: every point against every rule of its series, in the transaction that stores it.

Where each rule stands is kept by rule, series and rank, so a restart of the server forgets nothing. A new segment takes each
rule back to where it stood on the effective curve; a changed rule starts afresh.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection

from server.domain import checkpoints as checkpoints_domain
from server.domain import episodes, watching
from server.domain.alerts import Alert, AlertStatus, CloseReason
from server.domain.countdowns import is_late
from server.domain.judging import ALL_RANKS, Change, Judging, Key
from server.domain.points import Point
from server.domain.rule_notes import is_note
from server.domain.rules import AlertRule
from server.domain.watching import Watch
from server.store import alerts as alerts_store
from server.store import rules as rules_store
from server.store import segments as segments_store
from server.store import snapshots
from server.store import standing as standings
from server.store.rules import StoredState
from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.vocabulary import AlertState

from . import checkpoints, countdowns, incidents, reports, rewinding, rule_notes, transitions

_log = logging.getLogger(__name__)


def judge_points(
    connection: Connection,
    run_id: str,
    project: str,
    points: Sequence[Point],
    now: datetime,
    *,
    incarnation: str,
    ranks: int = 0,
    sent_at: float = 0.0,
    uptime: Callable[[], float] = lambda: 0.0,
) -> None:
    """Judge points of one rank of a run that has not ended, and keep now and then where the rules stand behind them.

    Args:
        connection: of the unit of work.
        run_id: the run.
        project: that it belongs to.
        points: of one rank, in the order of `seq`.
        now: the time.
        incarnation: of the process that has logged the points.
        ranks: how many the run has, 0 if unknown.
        sent_at: when the points were sent, by the clock that their times are of.
        uptime: seconds that only rise, by which a rule is found that takes too long.
    """
    if not points:
        return
    judging = _Judged(connection, run_id, project, points[0].rank, now, ranks=ranks, sent_at=sent_at, uptime=uptime)
    for _, logged_together in groupby(points, attrgetter("seq")):
        judging.take(logged_together)
    judging.save()
    judging.remember(points[0].seq, points[-1], incarnation)


def pass_over(connection: Connection, run_id: str, points: Sequence[Point], *, incarnation: str, newest_segment: int) -> None:
    """Leave points of a run that has ended to the next rewind, which counts them: it needs a snapshot older than they are.

    Args:
        connection: of the unit of work.
        run_id: the run.
        points: of one rank, in the order of `seq`, at least one.
        incarnation: of the process that has logged the points.
        newest_segment: of the run.
    """
    place = _place_of(points[-1], incarnation)
    snapshots.give_up(connection, run_id, points[-1].rank, place, max(newest_segment, place.segment))


def _place_of(point: Point, incarnation: str) -> snapshots.Place:
    return snapshots.Place(point.segment, incarnation, point.seq)


class _Judged:
    """The posts of one rank while its points are judged: read once, written once."""

    def __init__(
        self,
        connection: Connection,
        run_id: str,
        project: str,
        rank: int,
        now: datetime,
        *,
        ranks: int,
        sent_at: float,
        uptime: Callable[[], float],
    ) -> None:
        self.connection, self.run_id, self.now, self._sent_at = connection, run_id, now, sent_at
        self._rank, self._ranks = rank, ranks
        self._stored = {
            (each.rule_id, each.series, each.rank): each
            for of_rank in (rank, ALL_RANKS)
            for each in rules_store.read_states(connection, run_id, of_rank)
        }
        self._judging = Judging(
            run_id,
            project,
            rank,
            rules_store.read_rules(connection, enabled_only=True),
            self._stand,
            ranks=ranks,
            clock=uptime,
            known=self._stored,
            is_kept=self._is_kept,
        )
        self._from_steps: dict[int, int] | None = None
        self._notes = rule_notes.RuleNotes(connection, run_id, self._judging) if rank == 0 else None

    def take(self, points: Iterable[Point]) -> None:
        """Feed the points of one record to all rules, do what follows, and tell of it: one message, however many rules fire.

        Told is what stands at the end of the record, so it is the same wherever the stream was cut. What was old already when it
        was sent is told at the end of its batch: what comes after it may end it.
        """
        changed, late = False, False
        for point in points:
            late = is_late(self._sent_at, point.time)
            if self._notes is not None and point.step > self._notes.due_after:
                self._notes.look_for_unseen(self.now, point.segment)
            for change in self._judging.judge(point):
                self._follow(change)
                changed = True
        if changed and not late:
            incidents.look(self.connection, self.run_id, self.now)

    def _stand(self, rule: AlertRule, key: Key, point: Point) -> Watch:
        """Where a rule stands before the first point that concerns it, or before one of a segment nobody has announced."""
        stored, is_at_post = self._stored.get(key), self._judging.is_at_post(key)
        if not is_at_post and (stored is None or stored.rule_version != rule.version):
            return watching.fresh(rule, point.segment)
        if not is_at_post and stored is not None and point.segment <= stored.segment:
            return self._as_stored(rule, stored)
        begun = segments_store.get(self.connection, self.run_id, point.segment)
        from_step, cause = (point.step - 1, None) if begun is None else (begun.from_step, begun.cause)
        close_rewound(self.connection, self.run_id, point.segment, from_step, self.now)
        to = rewinding.Rewind(self.run_id, point.segment, from_step, cause, self._ranks)
        return rewinding.rewound(self.connection, to, [(key, rule)])[key]

    def _as_stored(self, rule: AlertRule, stored: StoredState) -> Watch:
        """The rule where it was left. What an earlier version of the server has left may not be readable: then it begins anew."""
        try:
            return watching.from_parsed(rule, stored.state, stored.segment)
        except Exception as error:
            _log.warning("the state of rule %s on run %s cannot be read, it begins anew: %r", rule.rule_id, self.run_id, error)
        alerts = alerts_store.open_alerts(self.connection, self.run_id, rule.rule_id)
        mine = next((each for each in alerts if (each.series, each.rank) == (stored.series, stored.rank)), None)
        return replace(watching.fresh(rule, stored.segment), status=watching.kept(AlertStatus(), mine))

    def _is_kept(self, point: Point) -> bool:
        """Whether a point of an earlier segment lies on the curve that the newest one goes on from."""
        if self._from_steps is None:
            self._from_steps = standings.read_from_steps(self.connection, self.run_id)
        return all(point.step <= step for segment, step in self._from_steps.items() if segment > point.segment)

    def _follow(self, change: Change) -> None:
        """Write down what became of the episode."""
        rule, point, before, after = change.rule, change.point, change.before, change.outcome.after
        if before.state is None:
            self._begin(change)
            return
        alert = alerts_store.read_alert(self.connection, self.run_id, before.alert_id)
        if alert is None or not alert.is_open:  # cut off while this rank still had points of its segment to send
            return
        if after is None:
            alerts_store.remove_alert(self.connection, self.run_id, alert.alert_id)
        elif after is AlertState.RESOLVED:
            self._resolve(alert, point)
        elif before.state is AlertState.PENDING:
            self._fire(rule, episodes.as_of(alert, change, self.now), is_new=False)
        else:
            alerts_store.save_alert(self.connection, replace(alert, state=after), alert.state)

    def _begin(self, change: Change) -> None:
        alert = episodes.begun(self.run_id, change, self.now)
        if alert.state is AlertState.PENDING:
            alerts_store.add_alert(self.connection, alert)
        else:
            self._fire(change.rule, alert, is_new=True)

    def _fire(self, rule: AlertRule, alert: Alert, *, is_new: bool) -> None:
        """An onset has come to light: 1 people are told, 2 verdicts on checkpoints fall, 3 the rule acts on what is left."""
        alert = replace(alert, again_after=self._again_after(alert))
        transitions.fire(self.connection, alert, self.now, is_new=is_new)
        if checkpoints_domain.is_sign(alert):
            checkpoints.rejudge(self.connection, self.run_id, self.now)
        countdowns.start(self.connection, rule, alert, self.now)

    def _again_after(self, alert: Alert) -> int | None:
        """The segment of the rollback after which the rule fires once more; None where it fires for the first time."""
        if alert.segment == 1:
            return None
        rollback = segments_store.last_rollback(self.connection, self.run_id, alert.segment)
        if rollback is None or not alerts_store.has_fired(self.connection, alert, before_segment=rollback):
            return None
        return rollback

    def _resolve(self, alert: Alert, point: Point) -> None:
        over = episodes.recovered(alert, point, self.now)
        transitions.resolve(self.connection, over, alert.state, self.now)
        countdowns.settle(self.connection, over, self.now)

    def save(self) -> None:
        """Write down where the rules stand now, where that is not what is written there already, and which have failed."""
        states = [_stored(post.key, post.rule, post.watch) for post in self._judging.posts]
        changed = [each for each in states if each != self._stored.get((each.rule_id, each.series, each.rank))]
        rules_store.save_states(self.connection, self.run_id, changed)
        for failure in self._judging.failures.values():
            rule_notes.failed(self.connection, self.run_id, failure, self.now)
        if self._notes is not None:
            self._notes.settle(self.now)

    def remember(self, first_seq: int, last: Point, incarnation: str) -> None:
        """Keep where the rules stand now and then, behind the points from `first_seq` to `last`."""
        known = {(rule.rule_id, rule.version) for rule in self._judging.rules}
        mine = (each for each in self._stored.values() if each.rank == last.rank and (each.rule_id, each.rule_version) in known)
        stood_in = max((each.segment for each in mine), default=None)
        place = _place_of(last, incarnation)
        rewinding.remember(self.connection, self.run_id, last.rank, place, first_seq=first_seq, stood_in=stood_in)


def _stored(key: Key, rule: AlertRule, watch: Watch) -> StoredState:
    return StoredState(*key, watch.rule_version, watch.segment, watching.to_parsed(rule, watch))


def segment_started(
    connection: Connection, run_id: str, started: SegmentStarted, now: datetime, *, rank: int, incarnation: str, ranks: int = 0
) -> None:
    """Take the rules of a rank back to where the new segment begins. Rank 0 also settles what was meant for the old one."""
    close_rewound(connection, run_id, started.segment, started.from_step, now)
    rules = {rule.rule_id: rule for rule in rules_store.read_rules(connection)}
    stored = [each for of_rank in (rank, ALL_RANKS) for each in rules_store.read_states(connection, run_id, of_rank)]
    places = [
        ((each.rule_id, each.series, each.rank), rule)
        for each in stored
        if (rule := rules.get(each.rule_id)) is not None and each.rule_version == rule.version and each.segment < started.segment
    ]
    to = rewinding.Rewind(run_id, started.segment, started.from_step, started.cause, ranks)
    watches = rewinding.rewound(connection, to, places)
    snapshots.forget_rewound(connection, run_id, rank, started.segment, started.from_step)
    rules_store.save_states(connection, run_id, [_stored(key, rule, watches[key]) for key, rule in places])
    if rank == 0:
        countdowns.withdraw_before(connection, run_id, started.segment, now)
        reports.segment_started(connection, run_id, incarnation, started, now)


def close_rewound(connection: Connection, run_id: str, segment: int, from_step: int, now: datetime) -> None:
    """Close, quietly, the open alerts of earlier segments whose onset the new segment has taken back."""
    for alert in alerts_store.open_alerts(connection, run_id):
        if alert.segment < segment and alert.onset_step > from_step:
            transitions.cut_off(connection, alert, CloseReason.REWOUND, now)
            countdowns.withdraw(connection, run_id, "the alert was rewound", now, alert_id=alert.alert_id)


def run_ended(connection: Connection, run_id: str, now: datetime) -> None:
    """Close what is open: the run is over, which does not say that the trouble is. Quietly, since its end is told."""
    standing = standings.read_standing(connection, run_id)
    for alert in alerts_store.open_alerts(connection, run_id):
        step = alert.onset_step if standing is None else max(standing.step, alert.onset_step)
        transitions.cut_off(connection, alert, CloseReason.RUN_ENDED, now, step)
    rules = {rule.rule_id: rule for rule in rules_store.read_rules(connection)}
    states = []
    for stored in rules_store.read_states(connection, run_id):
        rule = rules.get(stored.rule_id)
        if rule is not None and stored.rule_version == rule.version and not is_note(stored.rank):
            states.append(replace(stored, state=watching.without_episode(stored.state)))
    rules_store.save_states(connection, run_id, states)
    countdowns.withdraw(connection, run_id, "the run has ended", now)
    reports.end_with_run(connection, run_id, now)
