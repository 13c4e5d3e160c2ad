"""Silences, for people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from server.domain.silences import LONGEST, MAX_REASON, Silence
from server.services import silences as service
from server.store import rules, runs
from server.store import silences as store

from .deps import ID_PATTERN, By, Id, In
from .door import PeopleRoute

router = APIRouter(prefix="/api/silences", route_class=PeopleRoute, tags=["silences"])

Named = Annotated[str, Field(pattern=ID_PATTERN)]


class NewSilence(BaseModel):
    """What is not to be heard of, for how long, and why. At least one of the three is given; all that are given must hold."""

    model_config = ConfigDict(extra="forbid", strict=True)
    run_id: Named | None = None
    project: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    rule_id: Named | None = None
    hours: Annotated[float, Field(gt=0, le=LONGEST.total_seconds() / 3600, allow_inf_nan=False)]
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, pattern=r"\S")]


class SilenceOut(BaseModel):
    """A silence. `ended_at` is None as long as it runs; `ended_by` is empty where its time was up."""

    silence_id: str
    run_id: str | None
    run_name: str | None
    project: str | None
    rule_id: str | None
    rule_name: str | None
    reason: str
    author: str
    starts_at: datetime
    ends_at: datetime
    ended_at: datetime | None
    ended_by: str


class Silences(BaseModel):
    """Silences, the newest first."""

    silences: list[SilenceOut]


def _shown(connection: Connection, found: Sequence[Silence]) -> list[SilenceOut]:
    names = runs.names(connection, {each.run_id for each in found if each.run_id is not None})
    rule_names = {rule.rule_id: rule.name for rule in rules.read_rules(connection)}
    return [
        SilenceOut(
            silence_id=each.silence_id,
            run_id=each.run_id,
            run_name=None if each.run_id is None else names.get(each.run_id),
            project=each.project,
            rule_id=each.rule_id,
            rule_name=None if each.rule_id is None else rule_names.get(each.rule_id),
            reason=each.reason,
            author=each.author,
            starts_at=each.starts_at,
            ends_at=each.ends_at,
            ended_at=each.ended_at,
            ended_by=each.ended_by,
        )
        for each in found
    ]


@router.get("")
def list_silences(
    context: In,
    active: bool = False,  # noqa: FBT001, FBT002 -- a query parameter, always named
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Silences:
    """Silences, the newest first; with `active=true` only those that hold now."""
    now = context.now()
    with context.database.reading() as connection:
        found = store.running(connection) if active else store.read_silences(connection, limit)
        wanted = [each for each in found if not active or each.is_active(now)]
        wanted.sort(key=lambda each: each.starts_at, reverse=True)
        return Silences(silences=_shown(connection, wanted[:limit]))


@router.post("", status_code=201)
def start_silence(body: NewSilence, context: In, caller: By) -> SilenceOut:
    """Hear nothing of it for a while. What fires is stored, shown and acted on as ever."""
    now = context.now()
    made = context.database.writer.submit(
        lambda connection: service.start(connection, **body.model_dump(), by=caller.name, now=now)
    )
    with context.database.reading() as connection:
        return _shown(connection, [made])[0]


@router.delete("/{silence_id}")
def end_silence(silence_id: Id, context: In, caller: By) -> SilenceOut:
    """Hear of it again from now on; what still fires is told once."""
    now = context.now()
    ended = context.database.writer.submit(lambda connection: service.end(connection, silence_id, caller.name, now))
    context.wake()
    with context.database.reading() as connection:
        return _shown(connection, [ended])[0]
