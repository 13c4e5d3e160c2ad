"""Webhook endpoints and their deliveries, for people."""

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from server.domain.webhooks import Endpoint
from server.outbound import webhooks as outbound
from server.outbound.addresses import Forbidden
from server.outbound.signing import new_secret
from server.services import webhooks as service
from server.store import webhooks as store
from server.store.webhooks import Delivery
from trainer_agent.wire.vocabulary import Severity

from .deps import By, Context, Id, In
from .door import PeopleRoute
from .problems import invalid

router = APIRouter(prefix="/api/webhooks", route_class=PeopleRoute, tags=["webhooks"])

Name = Annotated[str, Field(min_length=1, max_length=256)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
SeverityWord = Literal["info", "warning", "critical"]
Language = Literal["en", "zh"]


class NewWebhook(BaseModel):
    """An endpoint to make."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Name
    url: Url
    minimum_severity: SeverityWord = "warning"
    project: Name | None = None
    language: Language = "en"


class WebhookChange(BaseModel):
    """What of an endpoint is to be different; what is not named stays."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Name = ""
    url: Url = ""
    minimum_severity: SeverityWord = "warning"
    project: Name | None = None
    language: Language = "en"
    enabled: bool = True


class AttemptOut(BaseModel):
    """One try."""

    number: int
    at: datetime
    status: int | None
    error: str | None
    seconds: float


class DeliveryOut(BaseModel):
    """One event on its way to one endpoint."""

    delivery_id: str
    webhook_id: str
    event_type: str
    title: str
    run_id: str | None
    state: str
    created_at: datetime
    next_attempt_at: datetime | None
    attempts: list[AttemptOut]


class WebhookOut(BaseModel):
    """An endpoint, without its secret."""

    webhook_id: str
    name: str
    url: str
    minimum_severity: str
    project: str | None
    language: str
    enabled: bool
    disabled_because: str
    secret_hint: str
    created_at: datetime
    last_delivery: DeliveryOut | None


class WebhookMade(WebhookOut):
    """An endpoint just made, with its secret, this once."""

    secret: str


class Webhooks(BaseModel):
    """All endpoints."""

    webhooks: list[WebhookOut]


class Deliveries(BaseModel):
    """The newest deliveries of an endpoint."""

    deliveries: list[DeliveryOut]


def delivery_out(delivery: Delivery) -> DeliveryOut:
    """A delivery as the API shows it."""
    tries = [
        AttemptOut(number=number, at=each.at, status=each.status, error=each.error, seconds=each.seconds)
        for number, each in enumerate(delivery.attempts, start=1)
    ]
    return DeliveryOut(
        delivery_id=delivery.delivery_id,
        webhook_id=delivery.webhook_id,
        event_type=delivery.event_type,
        title=str(delivery.body["data"]["title"]),
        run_id=delivery.run_id,
        state=delivery.status.state.value,
        created_at=delivery.created_at,
        next_attempt_at=delivery.status.next_attempt_at,
        attempts=tries,
    )


def _fields(endpoint: Endpoint, last: Delivery | None) -> dict[str, Any]:
    return {
        "webhook_id": endpoint.webhook_id,
        "name": endpoint.name,
        "url": endpoint.url,
        "minimum_severity": endpoint.minimum_severity.value,
        "project": endpoint.project,
        "language": endpoint.language,
        "enabled": endpoint.enabled,
        "disabled_because": endpoint.disabled_because,
        "secret_hint": endpoint.secret[-4:],
        "created_at": endpoint.created_at,
        "last_delivery": None if last is None else delivery_out(last),
    }


def _check_url(context: Context, url: str) -> None:
    """That the URL may be an endpoint's; the very check is made again at each attempt."""
    try:
        asyncio.run(outbound.check(url, context.policy()))
    except Forbidden as refusal:
        raise invalid("url", f"{refusal}.", "Use another address, or have the one who runs the server allow it.") from None


@router.get("")
def list_webhooks(context: In) -> Webhooks:
    """All endpoints, each with its newest delivery."""
    with context.database.reading() as connection:
        last = store.last_deliveries(connection)
        found = store.endpoints(connection)
    return Webhooks(webhooks=[WebhookOut(**_fields(each, last.get(each.webhook_id))) for each in found])


@router.post("", status_code=201)
def create_webhook(body: NewWebhook, context: In, caller: By) -> WebhookMade:
    """A new endpoint, with its secret, shown this once."""
    _check_url(context, body.url)
    secret, now = new_secret(), context.now()
    made = context.database.writer.submit(
        lambda connection: service.create(
            connection,
            name=body.name,
            url=body.url,
            secret=secret,
            minimum_severity=Severity(body.minimum_severity),
            project=body.project,
            language=body.language,
            by=caller.name,
            now=now,
        )
    )
    context.bus.ring(webhooks=True)
    return WebhookMade(**_fields(made, None), secret=secret)


@router.put("/{webhook_id}")
def change_webhook(webhook_id: Id, body: WebhookChange, context: In, caller: By) -> WebhookOut:
    """The endpoint after the change."""
    changes = body.model_dump(exclude_unset=True)
    if "url" in changes:
        _check_url(context, body.url)
    now = context.now()
    changed = context.database.writer.submit(lambda c: service.change(c, webhook_id, changes, caller.name, now))
    context.bus.ring(webhooks=True)
    with context.database.reading() as connection:
        last = store.last_deliveries(connection).get(webhook_id)
    return WebhookOut(**_fields(changed, last))


@router.delete("/{webhook_id}", status_code=204, response_class=Response)
def remove_webhook(webhook_id: Id, context: In, caller: By) -> None:
    """Forget the endpoint and its deliveries."""
    now = context.now()
    context.database.writer.submit(lambda connection: service.remove(connection, webhook_id, caller.name, now))
    context.bus.ring(webhooks=True)


@router.post("/{webhook_id}/test", status_code=202)
def test_webhook(webhook_id: Id, context: In, caller: By) -> DeliveryOut:
    """Send a test message now."""
    now = context.now()
    queued = context.database.writer.submit(lambda connection: service.test(connection, webhook_id, caller.name, now))
    context.wake()
    context.bus.ring(webhooks=True)
    return delivery_out(queued)


@router.get("/{webhook_id}/deliveries")
def list_deliveries(webhook_id: Id, context: In, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Deliveries:
    """The newest deliveries of the endpoint, the newest first."""
    with context.database.reading() as connection:
        service.require(connection, webhook_id)
        found = store.deliveries_of(connection, webhook_id, limit)
    return Deliveries(deliveries=[delivery_out(each) for each in found])
