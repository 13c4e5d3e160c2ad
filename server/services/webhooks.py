"""Endpoints and deliveries: made, changed, tested, attempted.

An attempt is taken on a lease. When the process dies between sending and writing the attempt down, the lease runs out and the
same delivery goes out again under the same id: at least once, never lost.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import webhooks as domain
from server.domain.events import Event, EventType
from server.domain.webhooks import Attempt, DeliveryState, Endpoint
from server.domain.wording.event_words import told
from server.store import webhooks as store
from server.store.webhooks import Delivery
from trainer_agent.wire.vocabulary import Severity

from . import incidents
from .errors import Invalid, NotFound
from .recording import record

MAX_ENDPOINTS = 50


@dataclass(frozen=True, slots=True)
class Ready:
    """A delivery taken for one attempt, with the endpoint as it is now."""

    delivery: Delivery
    endpoint: Endpoint


def create(
    connection: Connection,
    *,
    name: str,
    url: str,
    secret: str,
    minimum_severity: Severity,
    project: str | None,
    by: str,
    now: datetime,
    language: str = "en",
) -> Endpoint:
    """A new endpoint, enabled.

    Raises:
        Invalid: there are too many already.
    """
    if len(store.endpoints(connection)) >= MAX_ENDPOINTS:
        raise Invalid(f"there are {MAX_ENDPOINTS} endpoints already", "remove one that is not needed any more")
    new = Endpoint(f"wh_{secrets.token_hex(8)}", name, url, secret, minimum_severity, project, True, "", now, language)  # noqa: FBT003
    store.add_endpoint(connection, new)
    _tell_change(connection, new.webhook_id, "created", by, now)
    return new


def change(connection: Connection, webhook_id: str, changes: dict[str, Any], by: str, now: datetime) -> Endpoint:
    """The endpoint after `changes`. Switching it on again forgets why it was off, and sends nothing by itself.

    Raises:
        NotFound: there is no such endpoint.
    """
    require(connection, webhook_id)
    if changes.get("enabled"):
        changes = {**changes, "disabled_because": ""}
    if changes:
        store.change_endpoint(connection, webhook_id, changes)
        _tell_change(connection, webhook_id, "changed", by, now)
    return require(connection, webhook_id)


def remove(connection: Connection, webhook_id: str, by: str, now: datetime) -> None:
    """Forget an endpoint and its deliveries.

    Raises:
        NotFound: there is no such endpoint.
    """
    if not store.remove_endpoint(connection, webhook_id):
        raise NotFound(_unknown(webhook_id))
    _tell_change(connection, webhook_id, "removed", by, now)


def test(connection: Connection, webhook_id: str, by: str, now: datetime) -> Delivery:
    """A delivery of a test message, in line to be sent at once.

    Raises:
        NotFound: there is no such endpoint.
    """
    endpoint = require(connection, webhook_id)
    data = {"webhook_id": webhook_id, "by": by, **told(EventType.WEBHOOK_TEST, name=endpoint.name, by=by)}
    event_id = record(connection, Event(EventType.WEBHOOK_TEST, now, data=data))
    queued = store.delivery_of(connection, webhook_id, event_id)
    if queued is None:
        raise NotFound(_unknown(webhook_id))
    return queued


def take_due(connection: Connection, now: datetime, out: Mapping[str, int], most_per_endpoint: int) -> list[Ready]:
    """Deliveries leased for one attempt each, no endpoint getting more than its share at once.

    Args:
        connection: of the unit of work.
        now: the time.
        out: attempts on their way, by endpoint.
        most_per_endpoint: how many may be on their way to one endpoint.
    """
    ready: list[Ready] = []
    for webhook_id in store.endpoints_with_due(connection, now):
        free = most_per_endpoint - out.get(webhook_id, 0)
        for delivery_id in store.due(connection, webhook_id, now, max(0, free)):
            taken = _take(connection, webhook_id, delivery_id, now)
            ready.extend([taken] if taken is not None else [])
    return ready


def take_next(connection: Connection, webhook_id: str, now: datetime) -> Ready | None:
    """The delivery of an endpoint that has been due longest, leased for one attempt; None where nothing is due."""
    due = store.due(connection, webhook_id, now, 1)
    return _take(connection, webhook_id, due[0], now) if due else None


def _take(connection: Connection, webhook_id: str, delivery_id: str, now: datetime) -> Ready | None:
    """One delivery, unless another process has it. One of an endpoint that is gone or switched off is given up."""
    if not store.lease(connection, delivery_id, now, now + domain.LEASE):
        return None
    delivery, endpoint = store.delivery(connection, delivery_id), store.endpoint(connection, webhook_id)
    if delivery is None or endpoint is None or not _may_go(endpoint, delivery):
        if delivery is not None:
            _settle(connection, delivery, DeliveryState.FAILED, now)
        store.give_up(connection, delivery_id)
        return None
    return Ready(delivery, endpoint)


def _may_go(endpoint: Endpoint, delivery: Delivery) -> bool:
    return endpoint.enabled or delivery.event_type == EventType.WEBHOOK_TEST


def finish_attempt(
    connection: Connection, delivery_id: str, attempt: Attempt, now: datetime, *, jitter: float, scale: float
) -> None:
    """Write down what became of an attempt; `scale` shortens the waits between attempts.

    An attempt of a delivery that was removed or ended meanwhile changes nothing.
    """
    delivery = store.delivery(connection, delivery_id)
    if delivery is None or delivery.status.state is not DeliveryState.WAITING:
        return
    outcome = domain.step(delivery.status, attempt, now, jitter, scale)
    _settle(connection, delivery, outcome.status.state, now)
    store.add_attempt(connection, delivery_id, outcome.status, attempt)
    if outcome.endpoint_gone:
        because = "the receiver answered 410: it is gone"
        store.change_endpoint(connection, delivery.webhook_id, {"enabled": False, "disabled_because": because})
        data = {"webhook_id": delivery.webhook_id, "reason": because}
        record(connection, Event(EventType.WEBHOOK_DISABLED, now, data=data))


def _settle(connection: Connection, delivery: Delivery, state: DeliveryState, now: datetime) -> None:
    """A message about an incident has got through, or will not: when it is repeated counts from here."""
    about = delivery.body["data"].get("incident")
    if delivery.event_type != EventType.INCIDENT_FIRING or about is None or delivery.run_id is None:
        return
    if state is not DeliveryState.WAITING:
        reached = state is DeliveryState.SUCCEEDED
        incidents.delivered(connection, delivery.run_id, about["id"], now, has_reached=reached)


def _tell_change(connection: Connection, webhook_id: str, what: str, by: str, now: datetime) -> None:
    record(connection, Event(EventType.WEBHOOK_CHANGED, now, data={"webhook_id": webhook_id, "what": what, "by": by}))


def require(connection: Connection, webhook_id: str) -> Endpoint:
    """The endpoint.

    Raises:
        NotFound: there is none of that id.
    """
    found = store.endpoint(connection, webhook_id)
    if found is None:
        raise NotFound(_unknown(webhook_id))
    return found


def _unknown(webhook_id: str) -> str:
    return f"there is no webhook endpoint {webhook_id}"
