"""Holds, for people: nothing is done to a run by itself meanwhile."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from server.domain.holds import MAX_HOURS, MAX_REASON, Hold, in_force
from server.services import holds as service

from .deps import In, RunId, Whose
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs/{run_id}", route_class=PeopleRoute, tags=["runs"])


class HoldIn(BaseModel):
    """For how long, and why."""

    model_config = ConfigDict(extra="forbid", strict=True)
    hours: Annotated[float, Field(gt=0, le=MAX_HOURS, allow_inf_nan=False)]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]


class HoldOut(BaseModel):
    """Who holds the automatic actions of a run, since when, until when, and why."""

    by: str
    at: datetime
    until: datetime
    reason: str


class Held(BaseModel):
    """The hold of a run; null where there is none."""

    hold: HoldOut | None


def hold_out(stored: Mapping[str, Any] | None, now: datetime) -> HoldOut | None:
    """The hold as the API shows it; None where there is none, or it is over."""
    hold = in_force(stored, now)
    return None if hold is None else _out(hold)


def _out(hold: Hold) -> HoldOut:
    return HoldOut(by=hold.by, at=hold.at, until=hold.until, reason=hold.reason)


@router.put("/hold")
def put_hold(run_id: RunId, body: HoldIn, context: In, whose: Whose) -> Held:
    """Nothing is done to the run by itself until then."""
    now = context.now()
    hold = context.database.writer.submit(lambda c: service.put(c, run_id, whose, now, hours=body.hours, reason=body.reason))
    return Held(hold=_out(hold))


@router.delete("/hold")
def lift_hold(run_id: RunId, context: In, whose: Whose) -> Held:
    """Rules act again."""
    now = context.now()
    context.database.writer.submit(lambda c: service.lift(c, run_id, whose, now))
    return Held(hold=None)
