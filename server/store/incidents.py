"""Incidents: one row each, and which alerts belong to it."""

import json
from collections.abc import Collection
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.alerts import Alert, CloseReason, Told
from server.domain.incidents import Incident, IncidentState, Talk
from trainer_agent.wire.vocabulary import Severity

from . import alerts as alerts_store
from .tables import alerts, incidents

_c = incidents.c
_OPEN = _c.state != IncidentState.RESOLVED.value
_TIMES = ("since", "not_before", "spoken_at", "urgent_at", "repeat_from")
# Made once: this one is run with every batch, and building a statement costs more than running it.
_WAITING = sa.select(incidents).where(_c.run_id == sa.bindparam("of_run"), _c.notify_at.is_not(None)).order_by(_c.number)


def _row(incident: Incident) -> dict[str, Any]:
    row = {field.name: getattr(incident, field.name) for field in fields(incident)}
    talk = row.pop("talk")
    said = {field.name: getattr(talk, field.name) for field in fields(talk)}
    said |= {name: said[name].isoformat() for name in _TIMES if said[name] is not None}
    return {
        **row,
        "state": incident.state.value,
        "severity": incident.severity.value,
        "closed_because": None if incident.closed_because is None else incident.closed_because.value,
        "told": json.dumps(said),
    }


def _talk(text: str) -> Talk:
    said = json.loads(text)
    return Talk(**said | {name: datetime.fromisoformat(said[name]) for name in _TIMES if said.get(name) is not None})


def _incident(row: sa.Row[Any]) -> Incident:
    columns = dict(row._mapping)  # noqa: SLF001  the documented way to a row's columns by name
    because = columns["closed_because"]
    said = {
        "state": IncidentState(columns["state"]),
        "severity": Severity(columns["severity"]),
        "closed_because": None if because is None else CloseReason(because),
        "talk": _talk(columns.pop("told")),
    }
    return Incident(**columns | said)


def add_incident(connection: sa.Connection, incident: Incident) -> None:
    """Keep a new incident."""
    connection.execute(sa.insert(incidents), _row(incident))


def save_incident(connection: sa.Connection, incident: Incident) -> bool:
    """Replace the incident where it still has the version given, and raise that; False when somebody was quicker."""
    mine = (_c.run_id == incident.run_id, _c.incident_id == incident.incident_id, _c.version == incident.version)
    row = _row(replace(incident, version=incident.version + 1))
    return connection.execute(sa.update(incidents).where(*mine).values(row)).rowcount == 1


def look_at(connection: sa.Connection, incident: Incident, at: datetime) -> None:
    """Have it looked at from `at` on, whatever else of it changes meanwhile."""
    mine = (_c.run_id == incident.run_id, _c.incident_id == incident.incident_id)
    connection.execute(sa.update(incidents).where(*mine).values(notify_at=at, version=_c.version + 1))


def _read(connection: sa.Connection, query: sa.Select[Any]) -> tuple[Incident, ...]:
    return tuple(_incident(row) for row in connection.execute(query))


def read_incident(connection: sa.Connection, run_id: str, incident_id: str) -> Incident | None:
    """One incident; None when there is none of that id."""
    found = _read(connection, sa.select(incidents).where(_c.run_id == run_id, _c.incident_id == incident_id))
    return found[0] if found else None


def newest(connection: sa.Connection, run_id: str) -> Incident | None:
    """The last incident of a run; None when it has none."""
    query = sa.select(incidents).where(_c.run_id == run_id).order_by(_c.number.desc()).limit(1)
    found = _read(connection, query)
    return found[0] if found else None


def open_incident(connection: sa.Connection, run_id: str) -> Incident | None:
    """The incident of the run that is not resolved; None when there is none."""
    query = sa.select(incidents).where(_c.run_id == run_id, _OPEN).order_by(_c.number.desc()).limit(1)
    found = _read(connection, query)
    return found[0] if found else None


def open_incidents(connection: sa.Connection, run_ids: Collection[str] | None = None) -> tuple[Incident, ...]:
    """Those that are not resolved, of some runs or of all."""
    query = sa.select(incidents).where(_OPEN).order_by(_c.opened_at, _c.run_id)
    return _read(connection, query if run_ids is None else query.where(_c.run_id.in_(run_ids)))


def read_incidents(
    connection: sa.Connection, run_id: str | None = None, *, open_only: bool = False, limit: int = 100
) -> tuple[Incident, ...]:
    """Incidents of one run, or of all, the newest first; only those not resolved where asked for."""
    query = sa.select(incidents).order_by(_c.opened_at.desc(), _c.number.desc(), _c.run_id).limit(limit)
    if run_id is not None:
        query = query.where(_c.run_id == run_id)
    return _read(connection, query.where(_OPEN) if open_only else query)


def waiting(connection: sa.Connection, run_id: str) -> tuple[Incident, ...]:
    """The incidents of the run of which something may still be told, the oldest first."""
    return tuple(_incident(row) for row in connection.execute(_WAITING, {"of_run": run_id}))


def runs_to_look_at(connection: sa.Connection, now: datetime, limit: int = 100) -> tuple[str, ...]:
    """The runs with an incident of which something may be told now, the longest due first."""
    due = sa.select(_c.run_id).where(_c.notify_at <= now).group_by(_c.run_id)
    return tuple(connection.execute(due.order_by(sa.func.min(_c.notify_at)).limit(limit)).scalars())


def assign(connection: sa.Connection, alert: Alert, incident_id: str) -> None:
    """The alert belongs to this incident, and no message has named it."""
    mine = (alerts.c.run_id == alert.run_id, alerts.c.alert_id == alert.alert_id)
    connection.execute(sa.update(alerts).where(*mine).values(incident_id=incident_id, told=None))


def set_told(connection: sa.Connection, run_id: str, alert_ids: Collection[str], told: Told | None) -> None:
    """Write down what has become of the messages about some alerts."""
    mine = (alerts.c.run_id == run_id, alerts.c.alert_id.in_(alert_ids))
    connection.execute(sa.update(alerts).where(*mine).values(told=None if told is None else told.value))


def alerts_of(connection: sa.Connection, run_id: str, incident_ids: Collection[str], *, limit: int = 1000) -> tuple[Alert, ...]:
    """The alerts of some incidents of a run, the latest onset first."""
    query = sa.select(alerts).where(alerts.c.run_id == run_id, alerts.c.incident_id.in_(incident_ids))
    return alerts_store.of_rows(connection, query.order_by(alerts.c.onset_step.desc(), alerts.c.alert_id).limit(limit))


def unfinished(connection: sa.Connection, run_id: str, incident_ids: Collection[str]) -> tuple[Alert, ...]:
    """The alerts of some incidents of a run that are open, or of which nothing was told yet."""
    mine = (alerts.c.run_id == run_id, alerts.c.incident_id.in_(incident_ids))
    query = sa.select(alerts).where(*mine, alerts_store.IS_OPEN | alerts.c.told.is_(None))
    return alerts_store.of_rows(connection, query.order_by(alerts.c.onset_step, alerts.c.alert_id))
