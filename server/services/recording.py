"""Telling what happened: the one way by which an event comes into being.

The event row, the run's revision and the outgoing deliveries are written in the caller's unit of work, so a message is never
sent for something that was not stored, and nothing stored goes untold.
"""

import secrets

from sqlalchemy import Connection

from server.domain import webhooks as domain
from server.domain.events import Event
from server.store import events, touched
from server.store import webhooks as store


def record(connection: Connection, event: Event) -> int:
    """The id of the event, now stored, and queued for each endpoint that wants it."""
    event_id = events.append(connection, event)
    if event.run_id is not None:
        touched.touch(connection, event.run_id)
    if domain.severity_of(event) is not None:
        _queue(connection, event_id, event)
    return event_id


def _queue(connection: Connection, event_id: int, event: Event) -> None:
    label = store.run_label(connection, event.run_id) if event.run_id is not None else None
    run_name, project = label or (None, None)
    for endpoint in store.endpoints(connection):
        if domain.wants(endpoint, event, project):
            store.queue(
                connection,
                f"msg_{secrets.token_hex(16)}",
                endpoint.webhook_id,
                event_id=event_id,
                event_type=event.type.value,
                run_id=event.run_id,
                body=domain.body(event_id, event, run_name, project),
                now=event.at,
            )
