"""Alerts: one row an episode, from pending to its end."""

import json
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from server.domain.alerts import OPEN, Alert, CloseReason, Told
from server.domain.detectors.base import DetectorKind
from trainer_agent.wire.codec import number_from_json, to_json
from trainer_agent.wire.vocabulary import AlertState, Severity

from .tables import alerts

IS_OPEN = alerts.c.state.in_([state.value for state in OPEN])


def _row(alert: Alert) -> dict[str, Any]:
    row: dict[str, Any] = to_json(alert)  # value, limit and evidence may be non-finite: they travel as strings
    evidence = {name: row.pop(name) for name in ("value", "limit", "evidence")}
    times = {name: getattr(alert, name) for name in ("onset_at", "firing_at", "resolved_at")}
    return {**row, **times, "evidence": json.dumps(evidence, allow_nan=False)}


def _alert(row: sa.Row[Any]) -> Alert:
    columns = dict(row._mapping)  # noqa: SLF001  the documented way to a row's columns by name
    said = json.loads(columns["evidence"])
    return Alert(
        **{
            **columns,
            "severity": Severity(columns["severity"]),
            "state": AlertState(columns["state"]),
            "closed_because": None if columns["closed_because"] is None else CloseReason(columns["closed_because"]),
            "value": number_from_json(said["value"]),
            "limit": None if said["limit"] is None else number_from_json(said["limit"]),
            "told": None if columns["told"] is None else Told(columns["told"]),
            "evidence": {name: number_from_json(value) for name, value in said["evidence"].items()},
        }
    )


def of_rows(connection: sa.Connection, query: sa.Select[Any]) -> tuple[Alert, ...]:
    """The episodes that a query over the whole table finds."""
    return tuple(_alert(row) for row in connection.execute(query))


def add_alert(connection: sa.Connection, alert: Alert) -> None:
    """Keep a new episode."""
    connection.execute(sa.insert(alerts), _row(alert))


def save_alert(connection: sa.Connection, alert: Alert, before: AlertState) -> bool:
    """Replace the row of an episode that still stands in `before`; False when it does not."""
    mine = (alerts.c.run_id == alert.run_id, alerts.c.alert_id == alert.alert_id, alerts.c.state == before.value)
    return connection.execute(sa.update(alerts).where(*mine).values(_row(alert))).rowcount == 1


def remove_alert(connection: sa.Connection, run_id: str, alert_id: str) -> None:
    """Forget an episode that came to nothing."""
    connection.execute(sa.delete(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id))


def read_alert(connection: sa.Connection, run_id: str, alert_id: str) -> Alert | None:
    """One episode; None when there is none of that id."""
    query = sa.select(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _alert(row)


def by_id(connection: sa.Connection, run_id: str, alert_ids: Collection[str]) -> dict[str, Alert]:
    """The episodes of a run that have these ids; those that are not there are left out."""
    query = sa.select(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id.in_(alert_ids))
    return {each.alert_id: each for each in of_rows(connection, query)} if alert_ids else {}


def read_alerts(
    connection: sa.Connection, run_id: str | None = None, *, open_only: bool = False, limit: int = 200
) -> tuple[Alert, ...]:
    """Episodes of one run, or of all, newest first; only those not over yet where asked for."""
    query = sa.select(alerts)
    if run_id is not None:
        query = query.where(alerts.c.run_id == run_id)
    if open_only:
        query = query.where(IS_OPEN)
    newest_first = (alerts.c.onset_at.desc(), alerts.c.onset_step.desc(), alerts.c.alert_id)
    return tuple(_alert(row) for row in connection.execute(query.order_by(*newest_first).limit(limit)))


def open_alerts(connection: sa.Connection, run_id: str | None = None, rule_id: str | None = None) -> tuple[Alert, ...]:
    """All open episodes of a run, of a rule, or of everything, oldest onset first."""
    query = sa.select(alerts).where(IS_OPEN)
    if run_id is not None:
        query = query.where(alerts.c.run_id == run_id)
    if rule_id is not None:
        query = query.where(alerts.c.rule_id == rule_id)
    return tuple(_alert(row) for row in connection.execute(query.order_by(alerts.c.onset_step, alerts.c.alert_id)))


def has_fired(connection: sa.Connection, alert: Alert, *, before_segment: int) -> bool:
    """Whether an earlier episode of the same rule on the same series has fired before a segment."""
    c = alerts.c
    same = (c.run_id == alert.run_id, c.rule_id == alert.rule_id, c.series == alert.series, c.rank == alert.rank)
    fired = (c.segment < before_segment, c.firing_step.is_not(None), c.alert_id != alert.alert_id)
    return connection.execute(sa.select(c.alert_id).where(*same, *fired).limit(1)).first() is not None


def count_open_by_rule(connection: sa.Connection) -> dict[str, int]:
    """How many episodes of each rule are open; rules without any are left out."""
    query = sa.select(alerts.c.rule_id, sa.func.count().label("open")).where(IS_OPEN).group_by(alerts.c.rule_id)
    return {row.rule_id: row.open for row in connection.execute(query)}


def stalls(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Alert]:
    """By run, the open episode that says that it makes no step; runs without one are left out, and rules on trial."""
    mine = (alerts.c.run_id.in_(run_ids), alerts.c.detector == DetectorKind.STALLED.value, ~alerts.c.trial, IS_OPEN)
    return {row.run_id: _alert(row) for row in connection.execute(sa.select(alerts).where(*mine))}


def unsettled(connection: sa.Connection) -> tuple[Alert, ...]:
    """The open episodes of all runs, and those that only a run's end has closed: it did not cure what they tell of."""
    ended = alerts.c.closed_because == CloseReason.RUN_ENDED.value
    return tuple(_alert(row) for row in connection.execute(sa.select(alerts).where(IS_OPEN | ended)))


def signs(connection: sa.Connection, run_id: str) -> tuple[Alert, ...]:
    """Every episode of the run that is more than information, oldest onset first: what checkpoints are judged by."""
    query = sa.select(alerts).where(alerts.c.run_id == run_id, alerts.c.severity != Severity.INFO.value)
    return tuple(_alert(row) for row in connection.execute(query.order_by(alerts.c.onset_step, alerts.c.alert_id)))
