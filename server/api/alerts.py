"""Alerts, for people."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from server.domain.alerts import Alert
from server.store import alerts as store
from server.store import runs

from .deps import In
from .door import PeopleRoute

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["alerts"])


class AlertOut(BaseModel):
    """An alert as the page shows it."""

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


class Alerts(BaseModel):
    """Alerts of all runs, the newest first."""

    alerts: list[AlertOut]


def alert_out(alert: Alert, run_name: str) -> AlertOut:
    """An alert as the API shows it."""
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
        names = runs.names(connection, {alert.run_id for alert in found})
    return Alerts(alerts=[alert_out(alert, names.get(alert.run_id, "")) for alert in found])
