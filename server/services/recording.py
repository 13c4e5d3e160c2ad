"""Telling what happened: the one way by which an event comes into being.

The event row, the run's revision and the outgoing deliveries are written in the caller's unit of work, so a message is never
sent for something that was not stored, and nothing stored goes untold.
"""

import hashlib
import json
import secrets

from sqlalchemy import Connection

from server.domain import webhooks as domain
from server.domain.events import Event, EventType
from server.store import events, silences, touched
from server.store import webhooks as store

_SILENCED = frozenset({EventType.COUNTDOWN_STARTED})
"""Messages beside those about incidents that a silence stops: they are about an alert that nobody wants to hear of."""


def record(connection: Connection, event: Event) -> int:
    """The id of the event, now stored, and queued for each endpoint that wants it."""
    event_id = _store(connection, event)
    if domain.severity_of(event) is not None:
        _queue(connection, event_id, event)
    return event_id


def record_once(connection: Connection, event: Event, key: tuple[str, ...]) -> bool:
    """The same for a message of which there must be one: whether any endpoint wants it.

    The delivery's id is made of `key` and the endpoint, and is the primary key of its row: whoever else would queue the same
    message fails, and all that he did with it is rolled back.
    """
    return _queue(connection, _store(connection, event), event, key) > 0


def _store(connection: Connection, event: Event) -> int:
    event_id = events.append(connection, event)
    if event.run_id is not None:
        touched.touch(connection, event.run_id)
    return event_id


def _queue(connection: Connection, event_id: int, event: Event, key: tuple[str, ...] | None = None) -> int:
    """How many endpoints are to be told."""
    label = store.run_label(connection, event.run_id) if event.run_id is not None else None
    run_name, project = label or (None, None)
    if event.type in _SILENCED and _is_silenced(connection, event, project or ""):
        return 0
    wanting = [each for each in store.endpoints(connection) if domain.wants(each, event, project)]
    for endpoint in wanting:
        store.queue(
            connection,
            f"msg_{secrets.token_hex(16) if key is None else _digest(*key, endpoint.webhook_id)}",
            endpoint.webhook_id,
            event_id=event_id,
            event_type=event.type.value,
            run_id=event.run_id,
            body=domain.body(event_id, event, run_name, project, endpoint.language),
            now=event.at,
        )
    return len(wanting)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _is_silenced(connection: Connection, event: Event, project: str) -> bool:
    rule_id = event.data.get("rule_id")
    return any(
        each.is_active(event.at) and each.covers_run(event.run_id or "", project) and each.rule_id in (None, rule_id)
        for each in silences.running(connection)
    )
