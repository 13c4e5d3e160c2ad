"""One attempt to bring one message to one endpoint, signed."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from server.domain.webhooks import Attempt

from . import exchange, signing
from .addresses import Policy, Unresolved, parse_target, resolve
from .exchange import LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent, and where."""

    delivery_id: str
    url: str
    secret: str
    body: str


def attempt(message: Message, policy: Policy, now: datetime, limits: Limits = LIMITS) -> Attempt:
    """What became of one try. Never raises for anything the other side or the network does."""
    headers = {"Content-Type": "application/json", "User-Agent": "LossGuard-Webhook/1"}
    signed = headers | signing.headers(message.secret, message.delivery_id, now, message.body)
    return exchange.attempt(exchange.Sending(message.url, signed, message.body.encode()), policy, now, limits)


async def check(url: str, policy: Policy, timeout_seconds: float = 5.0) -> None:
    """That `url` may be kept as an endpoint's. A name that has no address now may have one later, and is let pass.

    Raises:
        Forbidden: it may not; the text says why.
    """
    target = parse_target(url)
    try:
        async with asyncio.timeout(timeout_seconds):
            await resolve(target, policy)
    except (Unresolved, TimeoutError):
        return
