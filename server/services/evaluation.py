"""Judging: every point against every rule of its series, in the transaction that stores it.

Where each rule stands is kept by rule, series and rank, so a restart of the server forgets nothing. A new segment takes each
rule back to where it stood on the effective curve; a changed rule starts afresh.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import checkpoints as checkpoints_domain
from server.domain import watching
from server.domain.alerts import Alert, AlertStatus, CloseReason, describe
from server.domain.points import Point
from server.domain.rules import DEFAULT_RULES, AlertRule
from server.domain.watching import Judgement, Watch
from server.store import alerts as alerts_store
from server.store import points as points_store
from server.store import rules as rules_store
from server.store import standing as standings
from server.store.rules import StoredState
from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.vocabulary import AlertState

from . import checkpoints, countdowns, reports, transitions

_Key = tuple[str, str, int]
"""Rule, series, rank."""


def ensure_rules(connection: Connection) -> None:
    """Put the default rules in place that are not there yet. What people have changed stays as it is."""
    rules_store.add_missing(connection, DEFAULT_RULES)


def judge_points(connection: Connection, run_id: str, points: Sequence[Point], now: datetime) -> None:
    """Judge points of one rank of a run that has not ended, given in `seq` order."""
    rules: dict[str, list[AlertRule]] = {}
    for rule in rules_store.read_rules(connection, enabled_only=True):
        rules.setdefault(rule.series, []).append(rule)
    watched = sorted((each for each in points if each.series in rules), key=lambda each: (each.seq, each.series))
    if not watched:
        return
    post = _Post(connection, run_id, watched[0].rank, now)
    for point in watched:
        for rule in rules[point.series]:
            post.judge(rule, point)
    post.save()


class _Post:
    """The watches of one rank while its points are judged: read once, written once."""

    def __init__(self, connection: Connection, run_id: str, rank: int, now: datetime) -> None:
        self.connection, self.run_id, self.rank, self.now = connection, run_id, rank, now
        self._stored = {(each.rule_id, each.series): each for each in rules_store.read_states(connection, run_id, rank)}
        self._watches: dict[tuple[str, str], tuple[AlertRule, Watch]] = {}

    def judge(self, rule: AlertRule, point: Point) -> None:
        """Feed one point to one rule, and do what follows from it."""
        watch = self._watch(rule, point)
        if point.segment < watch.segment:  # spooled by a life that the run has left behind
            return
        judgement = watching.judge(rule, watch, point, self.run_id)
        self._watches[rule.rule_id, point.series] = (rule, judgement.watch)
        if judgement.outcome.changed:
            self._follow(rule, point, watch.status, judgement)

    def _watch(self, rule: AlertRule, point: Point) -> Watch:
        key = (rule.rule_id, point.series)
        watch = self._watches[key][1] if key in self._watches else self._read(rule, point)
        if point.segment > watch.segment:  # the rank went on without announcing the segment
            from_step = standings.read_from_steps(self.connection, self.run_id).get(point.segment, point.step - 1)
            close_rewound(self.connection, self.run_id, point.segment, from_step, self.now)
            watch = rewound(self.connection, self.run_id, (*key, self.rank), rule, segment=point.segment, from_step=from_step)
        return watch

    def _read(self, rule: AlertRule, point: Point) -> Watch:
        stored = self._stored.get((rule.rule_id, point.series))
        if stored is None or stored.rule_version != rule.version:
            return watching.fresh(rule, point.segment)
        return watching.from_parsed(rule, stored.state, stored.segment)

    def _follow(self, rule: AlertRule, point: Point, before: AlertStatus, judgement: Judgement) -> None:
        """Write down what became of the episode."""
        after = judgement.outcome.after
        if before.state is None:
            self._begin(rule, point, judgement)
            return
        alert = alerts_store.read_alert(self.connection, self.run_id, before.alert_id)
        if alert is None or not alert.is_open:  # cut off while this rank still had points of its segment to send
            return
        if after is None:
            alerts_store.remove_alert(self.connection, self.run_id, alert.alert_id)
        elif after is AlertState.RESOLVED:
            self._resolve(alert, point)
        elif before.state is AlertState.PENDING:
            self._fire(rule, self._as_of(rule, alert, point, judgement), is_new=False)
        else:
            alerts_store.save_alert(self.connection, replace(alert, state=after), alert.state)

    def _begin(self, rule: AlertRule, point: Point, judgement: Judgement) -> None:
        verdict, status = judgement.verdict, judgement.watch.status
        alert = Alert(
            run_id=self.run_id,
            alert_id=status.alert_id,
            rule_id=rule.rule_id,
            rule_version=rule.version,
            rule_name=rule.name,
            title=rule.title,
            severity=rule.severity,
            series=point.series,
            rank=point.rank,
            segment=point.segment,
            state=AlertState.PENDING,
            onset_step=status.onset_step,
            onset_at=watching.time_of(point, self.now),
            value=verdict.value,
            limit=verdict.limit,
            evidence=dict(verdict.evidence),
            text=describe(rule, verdict, status.onset_step, point.rank),
        )
        if status.state is AlertState.PENDING:
            alerts_store.add_alert(self.connection, alert)
        else:
            self._fire(rule, self._as_of(rule, alert, point, judgement), is_new=True)

    def _as_of(self, rule: AlertRule, alert: Alert, point: Point, judgement: Judgement) -> Alert:
        """The alert as it fires at `point`, in the figures of that point."""
        verdict = judgement.verdict
        return replace(
            alert,
            state=AlertState.FIRING,
            firing_step=point.step,
            firing_at=watching.time_of(point, self.now),
            value=verdict.value,
            limit=verdict.limit,
            evidence=dict(verdict.evidence),
            text=describe(rule, verdict, alert.onset_step, point.rank),
        )

    def _fire(self, rule: AlertRule, alert: Alert, *, is_new: bool) -> None:
        """An onset has come to light: 1 people are told, 2 verdicts on checkpoints fall, 3 the rule acts on what is left."""
        transitions.fire(self.connection, alert, self.now, is_new=is_new)
        if checkpoints_domain.is_sign(alert):
            checkpoints.rejudge(self.connection, self.run_id, self.now)
        countdowns.start(self.connection, rule, alert, self.now)

    def _resolve(self, alert: Alert, point: Point) -> None:
        at = watching.time_of(point, self.now)
        over = replace(
            alert,
            state=AlertState.RESOLVED,
            resolved_step=point.step,
            resolved_at=at,
            closed_because=CloseReason.RECOVERED,
        )
        transitions.resolve(self.connection, over, alert.state, self.now)
        countdowns.settle(self.connection, over, self.now)

    def save(self) -> None:
        """Write down where the rules stand now, where that is not what is written there already."""
        states = [_stored(key, self.rank, rule, watch) for key, (rule, watch) in self._watches.items()]
        changed = [each for each in states if each != self._stored.get((each.rule_id, each.series))]
        rules_store.save_states(self.connection, self.run_id, changed)


def _stored(key: tuple[str, str], rank: int, rule: AlertRule, watch: Watch) -> StoredState:
    return StoredState(key[0], key[1], rank, watch.rule_version, watch.segment, watching.to_parsed(rule, watch))


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
        watch = rewound(connection, run_id, key, rule, segment=started.segment, from_step=started.from_step)
        states.append(_stored(key[:2], rank, rule, watch))
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


def rewound(connection: Connection, run_id: str, key: _Key, rule: AlertRule, *, segment: int, from_step: int) -> Watch:
    """The rule as it stands at the start of `segment`, from the last points of the effective curve up to `from_step`."""
    rule_id, series, rank = key
    points = points_store.recent_effective(
        connection, run_id, series, rank=rank, before_segment=segment, up_to_step=from_step, limit=watching.REPLAYED_POINTS
    )
    still_open = _still_open(alerts_store.open_alerts(connection, run_id, rule_id), series, rank)
    watch = watching.replay(rule, points, segment, still_open)
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
            states.append(_stored((stored.rule_id, stored.series), stored.rank, rule, watch))
    rules_store.save_states(connection, run_id, states)
    countdowns.withdraw(connection, run_id, "the run has ended", now)
    reports.end_with_run(connection, run_id, now)
