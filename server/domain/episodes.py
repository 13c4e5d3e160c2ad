"""What is written down of an episode as points move it: the alert as it begins, as it fires, and when it is over.

The server writes these rows as points arrive, a backtest makes the same ones over stored points; so both say the same.
"""

from dataclasses import replace
from datetime import datetime

from trainer_agent.wire.vocabulary import AlertState

from . import watching
from .alerts import Alert, CloseReason
from .judging import Change
from .points import Point
from .wording import describe


def begun(run_id: str, change: Change, now: datetime) -> Alert:
    """The episode that begins with `change`, pending, or firing at once where the rule asks for one point only."""
    rule, point, verdict, status = change.rule, change.point, change.verdict, change.outcome.status
    alert = Alert(
        run_id=run_id,
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
        onset_at=watching.time_of(point, now),
        value=verdict.value,
        limit=verdict.limit,
        evidence=dict(verdict.evidence),
        text=describe(rule, verdict, status.onset_step, point.rank, point.series),
        detector=rule.detector.value,
        trial=rule.trial,
    )
    return alert if status.state is AlertState.PENDING else as_of(alert, change, now)


def as_of(alert: Alert, change: Change, now: datetime) -> Alert:
    """The alert as it fires at a point, in the figures of that point."""
    rule, point, verdict = change.rule, change.point, change.verdict
    return replace(
        alert,
        state=AlertState.FIRING,
        firing_step=point.step,
        firing_at=watching.time_of(point, now),
        value=verdict.value,
        limit=verdict.limit,
        evidence=dict(verdict.evidence),
        text=describe(rule, verdict, alert.onset_step, point.rank, point.series),
    )


def recovered(alert: Alert, point: Point, now: datetime) -> Alert:
    """The alert as a point ends it."""
    return replace(
        alert,
        state=AlertState.RESOLVED,
        resolved_step=point.step,
        resolved_at=watching.time_of(point, now),
        closed_because=CloseReason.RECOVERED,
    )
