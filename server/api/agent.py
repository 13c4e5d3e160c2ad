"""The routes the trainer agent uses. They speak the messages of `trainer_agent.wire`, and a Reply answers each.

Thread: bodies are parsed and written in a pool of their own, so that many agents do not keep people's pages waiting.
"""

import asyncio
import dataclasses
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import anyio
from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection
from starlette.types import Receive, Scope, Send

from server.clock import uptime
from server.domain.access import Caller
from server.outbound.wakeups import Subscription
from server.services import ingest, runs
from server.services.errors import ServiceError
from server.store.writer import StorageUnavailable
from trainer_agent.wire import codec, crash
from trainer_agent.wire.codec import WireError
from trainer_agent.wire.messages import Batch, Heartbeat, Reply, RunStart

from .deps import ID_PATTERN, By, Context, In, RunId
from .door import AgentRoute, StrictRequest
from .inflating import inflate
from .problems import Problem

router = APIRouter(prefix="/api/agent", route_class=AgentRoute, tags=["agent"])

T = TypeVar("T", RunStart, Batch, Heartbeat)
BATCHES = "judging and storing batches"
"""What the watchdog is told of: a batch that is never taken is judged by nobody."""
AT_ONCE = 64
LOOK_AGAIN_SECONDS = 5.0
"""How often a waiting long-poll reads the tables without a hint: a hint may be lost, or made in another process."""

_pool = anyio.CapacityLimiter(AT_ONCE)
_inflating = anyio.CapacityLimiter(2)
"""A few at a time: each may hold 8 MiB, and what becomes of them."""
_ID = re.compile(ID_PATTERN)
_JSON = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


@router.post("/runs", openapi_extra=_JSON)
async def start_run(request: Request, context: In, caller: By) -> Response:
    """Takes a `RunStart`."""
    now = context.now()
    return await _take(request, RunStart, lambda c, message, owner: runs.start_run(c, message, owner, now), context, caller)


@router.post("/batches", openapi_extra=_JSON)
async def take_batch(request: Request, context: In, caller: By) -> Response:
    """Takes a `Batch`."""
    now = context.now()

    def take(connection: Connection, message: Batch, owner: str) -> Reply:
        return ingest.take_batch(connection, message, owner, now, uptime=uptime)

    try:
        reply = await _take(request, Batch, take, context, caller)
    except (Problem, ServiceError, WireError, StorageUnavailable):  # the batch was wrong; the database speaks for itself
        raise
    except Exception:
        context.watchdog.failed(BATCHES)
        raise
    context.watchdog.worked(BATCHES)
    return reply


@router.post("/heartbeats", openapi_extra=_JSON)
async def take_heartbeat(request: Request, context: In, caller: By) -> Response:
    """Takes a `Heartbeat`."""
    now = context.now()
    return await _take(request, Heartbeat, lambda c, message, owner: runs.take_heartbeat(c, message, owner, now), context, caller)


async def _take(
    request: Request, kind: type[T], act: Callable[[Connection, T, str], Reply], context: Context, caller: Caller
) -> Response:
    """Decode the body, run the use case in a unit of work, answer after its commit."""
    body = await request.body()
    if kind is RunStart:
        crash.reach("server.start_received")
    elif kind is Batch:
        crash.reach("server.batch_received")
    owner = caller.token_id or ""
    inflated: T | None = None
    if isinstance(request, StrictRequest) and request.is_compressed:
        inflated = await anyio.to_thread.run_sync(lambda: _decode(kind, inflate(body)), limiter=_inflating)

    def work() -> tuple[str, Reply]:
        message = _decode(kind, body) if inflated is None else inflated
        return message.run_id, context.database.writer.submit(lambda connection: act(connection, message, owner))

    run_id, reply = await anyio.to_thread.run_sync(work, limiter=_pool)
    return _answer(request, context, run_id, reply)


def _decode(kind: type[T], body: bytes) -> T:
    message = codec.decode(kind, body)
    for name in ("run_id", "incarnation"):  # they become parts of addresses
        if not _ID.fullmatch(getattr(message, name)) or getattr(message, name) in {".", ".."}:  # browsers walk up by those
            raise WireError(name, "must be 1 to 64 letters, digits, or _ . : -, and neither . nor ..")
    if isinstance(message, Batch):
        codec.check_batch(message)
    return message


@router.get("/runs/{run_id}/commands")
async def wait_for_commands(
    *,
    run_id: RunId,
    request: Request,
    context: In,
    caller: By,
    incarnation: Annotated[str, Query(pattern=ID_PATTERN)],
    rank: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    wait: Annotated[float, Query(ge=0, le=30, allow_inf_nan=False)] = 20,
) -> Response:
    """A Reply at once when a command waits or a verdict changes, else after `wait` seconds."""

    def read() -> Reply:
        with context.database.reading() as connection:
            owner, now = caller.token_id or "", context.now()
            return runs.reply_for(connection, run_id, incarnation, rank=rank, owner_token_id=owner, now=now)

    with context.bus.subscribe(run_id) as subscription:
        reply = await _wait(lambda: anyio.to_thread.run_sync(read, limiter=_pool), subscription, wait)
    return _answer(request, context, run_id, reply)


async def _wait(read: Callable[[], Awaitable[Reply]], subscription: Subscription, wait_seconds: float) -> Reply:
    first = reply = await read()
    clock = asyncio.get_running_loop()
    deadline = clock.time() + wait_seconds
    while not reply.commands and reply.verdicts == first.verdicts and clock.time() < deadline:
        hint = await subscription.wait(min(LOOK_AGAIN_SECONDS, deadline - clock.time()))
        if hint is not None and hint.closed:
            break
        reply = await read()
    return reply


def _answer(request: Request, context: Context, run_id: str, reply: Reply) -> Response:
    base = context.settings.public_url or str(request.base_url).rstrip("/")
    crash.reach("server.before_reply")
    return _Sent(codec.encode(dataclasses.replace(reply, page_url=f"{base}/runs/{run_id}")), media_type="application/json")


class _Sent(Response):
    """An answer whose leaving has a crash label."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, send)
        crash.reach("server.reply_sent")
