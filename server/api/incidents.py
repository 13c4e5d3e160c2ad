"""Incidents, for people: read, and taken on."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from server.domain.alerts import Alert
from server.domain.incidents import MAX_NOTE, Incident, gravest_first
from server.domain.silences import Silence, silenced_until
from server.services import incidents as service
from server.services.errors import NotFound
from server.store import events, runs, silences
from server.store import incidents as store

from .alerts import AlertOut, Tellers, alert_out
from .deps import By, Id, In, Out, RunId
from .door import PeopleRoute
from .events import EventOut, event_out

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["incidents"])

MOST_EVENTS = 500
MOST_ALERTS = 200


class IncidentOut(Out):
    """An incident as the page shows it. `silenced_until`: by when its last open alert is heard of again, where none is now."""

    run_id: str
    run_name: str
    incident_id: str
    number: int
    state: str
    severity: str
    title: str
    first_step: int
    segment: int
    opened_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str
    note: str
    resolved_at: datetime | None
    closed_because: str | None
    silenced_until: datetime | None
    alerts: list[AlertOut]


class IncidentDetail(IncidentOut):
    """With all that happened to its run meanwhile, the oldest first."""

    timeline: list[EventOut]


class Incidents(Out):
    """Incidents of all runs, the newest first."""

    incidents: list[IncidentOut]


class Acknowledgement(BaseModel):
    """A word for the others."""

    model_config = ConfigDict(extra="forbid", strict=True)
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


class Shown:
    """Puts incidents of some runs into the shape of the API: what all of them need is read once."""

    def __init__(self, connection: Connection, run_ids: Collection[str], now: datetime) -> None:
        self._connection, self._now = connection, now
        self._tellers = Tellers(connection, run_ids, now)
        self._projects = runs.projects(connection, run_ids)
        self._silences: tuple[Silence, ...] = silences.running(connection)

    def out(self, incident: Incident) -> IncidentOut:
        """An incident with its alerts."""
        alerts = store.alerts_of(self._connection, incident.run_id, [incident.incident_id], limit=MOST_ALERTS)
        name, teller = self._tellers.of(incident.run_id)
        return IncidentOut(
            run_id=incident.run_id,
            run_name=name,
            incident_id=incident.incident_id,
            number=incident.number,
            state=incident.state.value,
            severity=incident.severity.value,
            title=incident.title,
            first_step=incident.first_step,
            segment=incident.segment,
            opened_at=incident.opened_at,
            acknowledged_at=incident.acknowledged_at,
            acknowledged_by=incident.acknowledged_by,
            note=incident.note,
            resolved_at=incident.resolved_at,
            closed_because=None if incident.closed_because is None else incident.closed_because.value,
            silenced_until=self._silenced_until(alerts),
            alerts=[alert_out(each, name, teller) for each in gravest_first(alerts)],
        )

    def _silenced_until(self, alerts: Iterable[Alert]) -> datetime | None:
        """By when one of its open alerts is heard of again; None where one is heard of now, or none is open."""
        ends = [
            silenced_until(self._silences, each, self._projects.get(each.run_id, ""), self._now)
            for each in alerts
            if each.is_open
        ]
        known = [each for each in ends if each is not None]
        return min(known) if known and len(known) == len(ends) else None

    def detail(self, incident: Incident) -> IncidentDetail:
        """An incident with its timeline."""
        until = incident.resolved_at or self._now
        told = events.between(self._connection, incident.run_id, incident.opened_at, until, limit=MOST_EVENTS)
        return IncidentDetail(**dict(self.out(incident)), timeline=[event_out(each) for each in told])


@router.get("/incidents")
def list_incidents(
    context: In,
    open_only: Annotated[bool, Query(alias="open")] = False,  # noqa: FBT002 -- a query parameter, always named
    run_id: Annotated[str | None, Query(max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Incidents:
    """Incidents of all runs or of one, the newest first; with `open=true` only those not resolved."""
    with context.database.reading() as connection:
        found = store.read_incidents(connection, run_id, open_only=open_only, limit=limit)
        shown = Shown(connection, {each.run_id for each in found}, context.now())
        return Incidents(incidents=[shown.out(each) for each in found])


@router.get("/runs/{run_id}/incidents/{incident_id}")
def read_incident(run_id: RunId, incident_id: Id, context: In) -> IncidentDetail:
    """One incident with its timeline."""
    with context.database.reading() as connection:
        incident = store.read_incident(connection, run_id, incident_id)
        if incident is None:
            raise NotFound(f"this run has no incident {incident_id}", "open the list of alerts")
        return Shown(connection, [run_id], context.now()).detail(incident)


@router.post("/runs/{run_id}/incidents/{incident_id}/acknowledge")
def acknowledge(run_id: RunId, incident_id: Id, body: Acknowledgement, context: In, caller: By) -> IncidentOut:
    """Take it on: nobody is told of it once more."""
    now = context.now()
    taken = context.database.writer.submit(
        lambda connection: service.acknowledge(connection, run_id, incident_id, now, by=caller.name, note=body.note)
    )
    with context.database.reading() as connection:
        return Shown(connection, [run_id], now).out(taken)
