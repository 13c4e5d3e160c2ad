"""Alerts, for people."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection

from server.domain.alerts import Alert
from server.domain.wording import texts
from server.services.alert_words import Teller
from server.store import alerts as store
from server.store import runs

from .deps import In
from .door import PeopleRoute

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["alerts"])


class InLanguages(BaseModel):
    """The same in English and in Simplified Chinese."""

    en: str
    zh: str


class AlertOut(BaseModel):
    """An alert as the page shows it. In a list of runs `done` and `next` are left to the run's own page."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
    alert_id: str
    run_id: str
    run_name: str
    rule_id: str
    rule_name: str
    title: str
    severity: str
    series: str
    rank: int
    segment: int
    state: str
    onset_step: int
    firing_step: int | None
    resolved_step: int | None
    onset_at: datetime
    firing_at: datetime | None
    resolved_at: datetime | None
    closed_because: str | None
    value: float
    limit: float | None
    text: str
    texts: InLanguages
    detector: str
    evidence: dict[str, float]
    trial: bool
    incident_id: str | None
    again_after: int | None
    done: InLanguages | None
    next: InLanguages | None


class Alerts(BaseModel):
    """Alerts of all runs, the newest first."""

    alerts: list[AlertOut]


def _both(said: tuple[str, str]) -> InLanguages:
    return InLanguages(en=said[0], zh=said[1])


def alert_out(alert: Alert, run_name: str, teller: Teller | None = None) -> AlertOut:
    """An alert as the API shows it; with a teller of its run also what was done and what to do next."""
    return AlertOut(
        alert_id=alert.alert_id,
        run_id=alert.run_id,
        run_name=run_name,
        rule_id=alert.rule_id,
        rule_name=alert.rule_name,
        title=alert.title,
        severity=alert.severity.value,
        series=alert.series,
        rank=alert.rank,
        segment=alert.segment,
        state=alert.state.value,
        onset_step=alert.onset_step,
        firing_step=alert.firing_step,
        resolved_step=alert.resolved_step,
        onset_at=alert.onset_at,
        firing_at=alert.firing_at,
        resolved_at=alert.resolved_at,
        closed_because=None if alert.closed_because is None else alert.closed_because.value,
        value=alert.value,
        limit=alert.limit,
        text=alert.text,
        texts=InLanguages(**texts(alert)),
        detector=alert.detector,
        evidence=dict(alert.evidence),
        trial=alert.trial,
        incident_id=alert.incident_id,
        again_after=alert.again_after,
        done=None if teller is None else _both(teller.done(alert)),
        next=None if teller is None else _both(teller.following(alert)),
    )


@router.get("/alerts")
def list_alerts(
    context: In,
    open_only: Annotated[bool, Query(alias="open")] = False,  # noqa: FBT002 -- a query parameter, always named
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Alerts:
    """Alerts of all runs, the newest first; with `open=true` only those not over yet."""
    with context.database.reading() as connection:
        found = store.read_alerts(connection, open_only=open_only, limit=limit)
        tellers = Tellers(connection, {alert.run_id for alert in found}, context.now())
        return Alerts(alerts=[alert_out(alert, *tellers.of(alert.run_id)) for alert in found])


class Tellers:
    """What is said of alerts of several runs: the name of each run, and its teller."""

    def __init__(self, connection: Connection, run_ids: Collection[str], now: datetime) -> None:
        self._names = runs.names(connection, run_ids)
        self._tellers = {run_id: Teller(connection, run_id, now) for run_id in run_ids}

    def of(self, run_id: str) -> tuple[str, Teller]:
        """The run's name, and its teller."""
        return self._names.get(run_id, ""), self._tellers[run_id]
