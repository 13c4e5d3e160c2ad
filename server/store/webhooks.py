"""Endpoints, deliveries and attempts."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from server.domain.webhooks import Attempt, DeliveryState, DeliveryStatus, Endpoint
from trainer_agent.wire.vocabulary import Severity

from .tables import deliveries, delivery_attempts, runs, webhooks


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event on its way to one endpoint, with the attempts made so far, the first one first."""

    delivery_id: str
    webhook_id: str
    event_type: str
    run_id: str | None
    status: DeliveryStatus
    body: dict[str, Any]
    created_at: datetime
    attempts: tuple[Attempt, ...] = ()


def _endpoint(row: sa.Row[Any]) -> Endpoint:
    columns = dict(row._mapping)  # noqa: SLF001 -- the documented way to a row's columns by name
    return Endpoint(**{**columns, "minimum_severity": Severity(columns["minimum_severity"])})


def endpoints(connection: Connection) -> tuple[Endpoint, ...]:
    """All endpoints, the oldest first."""
    return tuple(_endpoint(row) for row in connection.execute(sa.select(webhooks).order_by(webhooks.c.created_at)))


def endpoint(connection: Connection, webhook_id: str) -> Endpoint | None:
    """One endpoint; None when there is none of that id."""
    row = connection.execute(sa.select(webhooks).where(webhooks.c.webhook_id == webhook_id)).one_or_none()
    return None if row is None else _endpoint(row)


def add_endpoint(connection: Connection, new: Endpoint) -> None:
    """Keep a new endpoint."""
    connection.execute(
        sa.insert(webhooks).values(
            webhook_id=new.webhook_id,
            name=new.name,
            url=new.url,
            secret=new.secret,
            minimum_severity=new.minimum_severity.value,
            project=new.project,
            enabled=new.enabled,
            disabled_because=new.disabled_because,
            created_at=new.created_at,
            language=new.language,
        )
    )


def change_endpoint(connection: Connection, webhook_id: str, changes: Mapping[str, Any]) -> None:
    """Write the given columns of one endpoint."""
    connection.execute(sa.update(webhooks).where(webhooks.c.webhook_id == webhook_id).values(**changes))


def remove_endpoint(connection: Connection, webhook_id: str) -> bool:
    """Whether there was an endpoint to remove. Its deliveries and attempts go with it."""
    mine = sa.select(deliveries.c.delivery_id).where(deliveries.c.webhook_id == webhook_id)
    connection.execute(sa.delete(delivery_attempts).where(delivery_attempts.c.delivery_id.in_(mine)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.webhook_id == webhook_id))
    return connection.execute(sa.delete(webhooks).where(webhooks.c.webhook_id == webhook_id)).rowcount > 0


def run_label(connection: Connection, run_id: str) -> tuple[str, str] | None:
    """Name and project of a run, for the message about it."""
    row = connection.execute(sa.select(runs.c.name, runs.c.project).where(runs.c.run_id == run_id)).one_or_none()
    return None if row is None else (row.name, row.project)


def queue(
    connection: Connection,
    delivery_id: str,
    webhook_id: str,
    *,
    event_id: int,
    event_type: str,
    run_id: str | None,
    body: Mapping[str, Any],
    now: datetime,
) -> None:
    """Put a delivery in line, due at once."""
    connection.execute(
        sa.insert(deliveries).values(
            delivery_id=delivery_id,
            webhook_id=webhook_id,
            event_id=event_id,
            event_type=event_type,
            run_id=run_id,
            state=DeliveryState.WAITING.value,
            body=json.dumps(body, allow_nan=False, separators=(",", ":")),
            created_at=now,
            next_attempt_at=now,
            attempt_count=0,
        )
    )


def endpoints_with_due(connection: Connection, now: datetime) -> list[str]:
    """Ids of the endpoints that have a delivery to attempt now."""
    waiting = deliveries.c.state == DeliveryState.WAITING.value
    query = sa.select(deliveries.c.webhook_id).where(waiting, deliveries.c.next_attempt_at <= now).distinct()
    return list(connection.execute(query).scalars())


def due(connection: Connection, webhook_id: str, now: datetime, at_most: int) -> list[str]:
    """Ids of an endpoint's deliveries to attempt now, the longest due first."""
    query = (
        sa.select(deliveries.c.delivery_id)
        .where(deliveries.c.webhook_id == webhook_id, deliveries.c.state == DeliveryState.WAITING.value)
        .where(deliveries.c.next_attempt_at <= now)
        .order_by(deliveries.c.next_attempt_at, deliveries.c.event_id)
        .limit(at_most)
    )
    return list(connection.execute(query).scalars())


def lease(connection: Connection, delivery_id: str, now: datetime, until: datetime) -> bool:
    """Take a due delivery for one attempt; False when another process was faster."""
    taken = connection.execute(
        sa.update(deliveries)
        .where(deliveries.c.delivery_id == delivery_id, deliveries.c.state == DeliveryState.WAITING.value)
        .where(deliveries.c.next_attempt_at <= now)
        .values(next_attempt_at=until)
    )
    return taken.rowcount == 1


def give_up(connection: Connection, delivery_id: str) -> None:
    """End a delivery that nobody is to get any more."""
    query = sa.update(deliveries).where(deliveries.c.delivery_id == delivery_id)
    connection.execute(query.values(state=DeliveryState.FAILED.value, next_attempt_at=None))


def add_attempt(connection: Connection, delivery_id: str, status: DeliveryStatus, attempt: Attempt) -> None:
    """Write down an attempt and where it leaves the delivery."""
    connection.execute(
        sa.insert(delivery_attempts).values(
            delivery_id=delivery_id,
            number=status.attempt_count,
            at=attempt.at,
            status=attempt.status,
            error=attempt.error,
            seconds=attempt.seconds,
        )
    )
    connection.execute(
        sa.update(deliveries)
        .where(deliveries.c.delivery_id == delivery_id)
        .values(state=status.state.value, attempt_count=status.attempt_count, next_attempt_at=status.next_attempt_at)
    )


def delivery(connection: Connection, delivery_id: str) -> Delivery | None:
    """One delivery with its attempts."""
    found = _deliveries(connection, sa.select(deliveries).where(deliveries.c.delivery_id == delivery_id))
    return found[0] if found else None


def delivery_of(connection: Connection, webhook_id: str, event_id: int) -> Delivery | None:
    """The delivery of one event to one endpoint."""
    query = sa.select(deliveries).where(deliveries.c.webhook_id == webhook_id, deliveries.c.event_id == event_id)
    found = _deliveries(connection, query)
    return found[0] if found else None


def deliveries_of(connection: Connection, webhook_id: str, limit: int) -> list[Delivery]:
    """The newest deliveries of one endpoint, the newest first."""
    query = sa.select(deliveries).where(deliveries.c.webhook_id == webhook_id)
    return _deliveries(connection, query.order_by(deliveries.c.event_id.desc()).limit(limit))


def last_deliveries(connection: Connection) -> dict[str, Delivery]:
    """The newest delivery of each endpoint that has one."""
    newest = sa.select(sa.func.max(deliveries.c.event_id)).group_by(deliveries.c.webhook_id)
    query = sa.select(deliveries).where(deliveries.c.event_id.in_(newest)).order_by(deliveries.c.event_id)
    return {found.webhook_id: found for found in _deliveries(connection, query)}


def _deliveries(connection: Connection, query: sa.Select[Any]) -> list[Delivery]:
    rows = connection.execute(query).all()
    attempts = _attempts(connection, [row.delivery_id for row in rows])
    return [
        Delivery(
            delivery_id=row.delivery_id,
            webhook_id=row.webhook_id,
            event_type=row.event_type,
            run_id=row.run_id,
            status=DeliveryStatus(DeliveryState(row.state), row.attempt_count, row.next_attempt_at),
            body=json.loads(row.body),
            created_at=row.created_at,
            attempts=tuple(attempts[row.delivery_id]),
        )
        for row in rows
    ]


def _attempts(connection: Connection, delivery_ids: Sequence[str]) -> Mapping[str, list[Attempt]]:
    found: defaultdict[str, list[Attempt]] = defaultdict(list)
    query = sa.select(delivery_attempts).where(delivery_attempts.c.delivery_id.in_(delivery_ids))
    for row in connection.execute(query.order_by(delivery_attempts.c.number)):
        found[row.delivery_id].append(Attempt(row.at, row.status, row.error, row.seconds))
    return found
