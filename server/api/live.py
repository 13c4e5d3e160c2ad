"""The live stream: server-sent hints that something changed, at most four a second to each listener.

An event is a run's id and its revision, so a listener that misses some loses nothing: it fetches what it shows.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from server.outbound.wakeups import Hint, Subscription
from server.store import runs

from .deps import Context, In
from .door import PeopleRoute, identify

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["live"])

PAUSE_SECONDS = 0.25
RECHECK_SECONDS = 5.0


@router.get("/live", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def live(request: Request, context: In) -> StreamingResponse:
    """`hello` with all revisions, then `changed` with those that moved."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(request, context), media_type="text/event-stream", headers=headers)


async def _events(request: Request, context: Context) -> AsyncIterator[bytes]:
    with context.bus.subscribe() as subscription:
        yield event("hello", {"revisions": await run_in_threadpool(_revisions, context)})
        async for hint in _hints(request, subscription):
            yield b": still here\n\n" if hint is None else event("changed", _told(hint))


async def _hints(request: Request, subscription: Subscription) -> AsyncIterator[Hint | None]:
    """Hints as they come, None when there was none for a while; ends when the server or the session does."""
    clock = asyncio.get_running_loop()
    checked_at = clock.time()
    while True:
        hint = await subscription.wait(RECHECK_SECONDS)
        if hint is not None and hint.closed:
            return
        if clock.time() - checked_at >= RECHECK_SECONDS:
            if await run_in_threadpool(identify, request) is None:
                return
            checked_at = clock.time()
        yield hint
        await asyncio.sleep(PAUSE_SECONDS)


def event(name: str, data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n".encode()


def _told(hint: Hint) -> dict[str, Any]:
    return {"revisions": hint.revisions, "webhooks": hint.webhooks, "rules": hint.rules}


def _revisions(context: Context) -> dict[str, int]:
    with context.database.reading() as connection:
        return runs.revisions(connection)
