"""Judging: every point against every rule of its series, in the transaction that stores it.

Where each rule stands is kept by rule, series and rank, so a restart of the server forgets nothing. A new segment takes each
rule back to where it stood on the effective curve; a changed rule starts afresh.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import checkpoints as checkpoints_domain
from server.domain import episodes, watching
from server.domain.alerts import Alert, AlertStatus, CloseReason
from server.domain.judging import ALL_RANKS, Change, Judging, Key
from server.domain.points import Point
from server.domain.rules import AlertRule
from server.domain.watching import Watch
from server.store import alerts as alerts_store
from server.store import points as points_store
from server.store import rules as rules_store
from server.store import segments as segments_store
from server.store import standing as standings
from server.store.rules import StoredState
from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.vocabulary import AlertState, SegmentCause

from . import checkpoints, countdowns, reports, transitions


def judge_points(
    connection: Connection, run_id: str, project: str, points: Sequence[Point], now: datetime, *, ranks: int = 0
) -> None:
    """Judge points of one rank of a run that has not ended, given in `seq` order. `ranks`: how many the run has, 0 if unknown."""
    if not points:
        return
    judging = _Judged(connection, run_id, project, points[0].rank, now, ranks=ranks)
    for point in points:
        judging.judge(point)
    judging.save()


class _Judged:
    """The posts of one rank while its points are judged: read once, written once."""

    def __init__(self, connection: Connection, run_id: str, project: str, rank: int, now: datetime, *, ranks: int) -> None:
        self.connection, self.run_id, self.now = connection, run_id, now
        self._stored: dict[Key, StoredState] | None = None
        self._rank = rank
        rules = rules_store.read_rules(connection, enabled_only=True)
        self._judging = Judging(run_id, project, rank, rules, self._stand, ranks=ranks)

    def judge(self, point: Point) -> None:
        """Feed one point to all rules, and do what follows from it."""
        for change in self._judging.judge(point):
            self._follow(change)

    def _stand(self, rule: AlertRule, key: Key, point: Point) -> Watch:
        """Where a rule stands before the first point that concerns it, or before one of a segment nobody has announced."""
        if self._stored is None:
            ranks = (self._rank, ALL_RANKS)
            states = (each for rank in ranks for each in rules_store.read_states(self.connection, self.run_id, rank))
            self._stored = {(each.rule_id, each.series, each.rank): each for each in states}
        stored, is_at_post = self._stored.get(key), self._judging.is_at_post(key)
        if not is_at_post and (stored is None or stored.rule_version != rule.version):
            return watching.fresh(rule, point.segment)
        if not is_at_post and stored is not None and point.segment <= stored.segment:
            return watching.from_parsed(rule, stored.state, stored.segment)
        begun = segments_store.get(self.connection, self.run_id, point.segment)
        from_step, cause = (point.step - 1, None) if begun is None else (begun.from_step, begun.cause)
        close_rewound(self.connection, self.run_id, point.segment, from_step, self.now)
        return rewound(self.connection, self.run_id, key, rule, segment=point.segment, from_step=from_step, cause=cause)

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
        transitions.fire(self.connection, alert, self.now, is_new=is_new)
        if checkpoints_domain.is_sign(alert):
            checkpoints.rejudge(self.connection, self.run_id, self.now)
        countdowns.start(self.connection, rule, alert, self.now)

    def _resolve(self, alert: Alert, point: Point) -> None:
        over = episodes.recovered(alert, point, self.now)
        transitions.resolve(self.connection, over, alert.state, self.now)
        countdowns.settle(self.connection, over, self.now)

    def save(self) -> None:
        """Write down where the rules stand now, where that is not what is written there already."""
        known = self._stored or {}
        states = [_stored(post.key, post.rule, post.watch) for post in self._judging.posts]
        changed = [each for each in states if each != known.get((each.rule_id, each.series, each.rank))]
        rules_store.save_states(self.connection, self.run_id, changed)


def _stored(key: Key, rule: AlertRule, watch: Watch) -> StoredState:
    return StoredState(*key, watch.rule_version, watch.segment, watching.to_parsed(rule, watch))


def segment_started(
    connection: Connection, run_id: str, started: SegmentStarted, now: datetime, *, rank: int, incarnation: str
) -> None:
    """Take the rules of a rank back to where the new segment begins. Rank 0 also settles what was meant for the old one."""
    close_rewound(connection, run_id, started.segment, started.from_step, now)
    rules = {rule.rule_id: rule for rule in rules_store.read_rules(connection)}
    states = []
    for stored in rules_store.read_states(connection, run_id, rank):
        rule = rules.get(stored.rule_id)
        if rule is None or stored.rule_version != rule.version or stored.segment >= started.segment:
            continue
        key = (stored.rule_id, stored.series, rank)
        segment, from_step, cause = started.segment, started.from_step, started.cause
        watch = rewound(connection, run_id, key, rule, segment=segment, from_step=from_step, cause=cause)
        states.append(_stored(key, rule, watch))
    rules_store.save_states(connection, run_id, states)
    if rank == 0:
        countdowns.withdraw_before(connection, run_id, started.segment, now)
        reports.segment_started(connection, run_id, incarnation, started, now)


def close_rewound(connection: Connection, run_id: str, segment: int, from_step: int, now: datetime) -> None:
    """Close, quietly, the open alerts of earlier segments whose onset the new segment has taken back."""
    for alert in alerts_store.open_alerts(connection, run_id):
        if alert.segment < segment and alert.onset_step > from_step:
            transitions.cut_off(connection, alert, CloseReason.REWOUND, now)
            countdowns.withdraw(connection, run_id, "the alert was rewound", now, alert_id=alert.alert_id)


def rewound(
    connection: Connection,
    run_id: str,
    key: Key,
    rule: AlertRule,
    *,
    segment: int,
    from_step: int,
    cause: SegmentCause | None,
) -> Watch:
    """The rule as it stands at the start of `segment`, from the last points of the effective curve up to `from_step`."""
    rule_id, series, rank = key
    points = points_store.recent_effective(
        connection, run_id, series, rank=rank, before_segment=segment, up_to_step=from_step, limit=watching.REPLAYED_POINTS
    )
    still_open = _still_open(alerts_store.open_alerts(connection, run_id, rule_id), series, rank)
    watch = watching.replay(rule, points, segment, still_open, cause)
    state = watch.status.state
    if still_open is not None and state is not None and state is not still_open.state:
        alerts_store.save_alert(connection, replace(still_open, state=state), still_open.state)
    return watch


def _still_open(alerts: Iterable[Alert], series: str, rank: int) -> Alert | None:
    return next((each for each in alerts if (each.series, each.rank) == (series, rank)), None)


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
        if rule is not None and stored.rule_version == rule.version:
            watch = replace(watching.from_parsed(rule, stored.state, stored.segment), status=AlertStatus())
            states.append(_stored((stored.rule_id, stored.series, stored.rank), rule, watch))
    rules_store.save_states(connection, run_id, states)
    countdowns.withdraw(connection, run_id, "the run has ended", now)
    reports.end_with_run(connection, run_id, now)
