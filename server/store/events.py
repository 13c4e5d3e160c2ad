"""The append-only event table."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.events import ENDS, Event, EventType
from trainer_agent.wire.codec import to_json

from .tables import events

LIVES = EventType.RUN_LIVES


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its number, which rises in the order of appending."""

    event_id: int
    event: Event


def append(connection: sa.Connection, event: Event) -> int:
    """Write `event` down. Gives its number."""
    row = {
        "run_id": event.run_id,
        "type": event.type.value,
        "at": event.at,
        "step": event.step,
        "segment": event.segment,
        "data": json.dumps(to_json(event.data), allow_nan=False),
    }
    number: int = connection.execute(sa.insert(events).returning(events.c.event_id), row).scalar_one()
    return number


def newest(
    connection: sa.Connection, run_id: str, types: Collection[EventType] | None = None, limit: int = 100
) -> list[StoredEvent]:
    """The last events of a run, newest first; only of `types` where given."""
    query = sa.select(events).where(events.c.run_id == run_id)
    if types is not None:
        query = query.where(events.c.type.in_([each.value for each in types]))
    rows = connection.execute(query.order_by(events.c.event_id.desc()).limit(limit))
    return [_event(row) for row in rows]


def between(connection: sa.Connection, run_id: str, since: datetime, until: datetime, limit: int) -> list[StoredEvent]:
    """The events of a run from one moment to another, both included, the oldest first."""
    mine = (events.c.run_id == run_id, events.c.at >= since, events.c.at <= until)
    return [_event(row) for row in connection.execute(sa.select(events).where(*mine).order_by(events.c.event_id).limit(limit))]


def end_told_of(connection: sa.Connection, run_id: str, incarnation: str) -> Event | None:
    """The event that told how this incarnation ended; None where none did, or where it was taken back."""
    told = sa.select(events).where(events.c.run_id == run_id, events.c.type.in_([each.value for each in (*ENDS, LIVES)]))
    for row in connection.execute(told.order_by(events.c.event_id.desc())):
        event = _event(row).event
        if event.data.get("incarnation") == incarnation:
            return None if event.type is LIVES else event
    return None


def _event(row: sa.Row[Any]) -> StoredEvent:
    event = Event(EventType(row.type), row.at, row.run_id, row.step, row.segment, json.loads(row.data))
    return StoredEvent(row.event_id, event)
