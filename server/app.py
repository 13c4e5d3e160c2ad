"""Builds the server and starts its parts: everything that is chosen is chosen here.

settings -> database (migrated, with the default rules) -> bus <- writer's hints
                                                        -> worker (deadlines, deliveries, watchdog), backtesting -> routes
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from .api import (
    agent,
    alerts,
    backtests,
    checkpoints,
    clauses,
    commands,
    health,
    holds,
    incidents,
    live,
    pages,
    points,
    problems,
    rules,
    runs,
    samples,
    session,
    silences,
    webhooks,
)
from .api.deps import Context
from .api.headers import HostCheck, StrictHeaders
from .backtesting import Backtesting
from .clock import utc_now
from .outbound.addresses import Policy
from .outbound.wakeups import Bus
from .outbound.watchdog import Watchdog
from .services import rules as rules_service
from .services import runs as run_service
from .settings import Settings
from .store.database import Database
from .worker import EXPECTED, Worker

ROUTERS = (
    health.router,
    session.open_router,
    session.router,
    agent.router,
    live.router,
    runs.router,
    points.router,
    samples.router,
    commands.router,
    holds.router,
    checkpoints.router,
    alerts.router,
    incidents.router,
    silences.router,
    rules.router,
    clauses.router,
    backtests.router,
    webhooks.router,
    pages.router,
)


def create_app(settings: Settings, now: Callable[[], datetime] = utc_now) -> FastAPI:
    """The server as an ASGI application. It opens its database when it starts and closes it when it stops."""
    app = FastAPI(
        title="LossGuard",
        version=health.server_version(),
        description="docs/api.md says it in words.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        responses=problems.RESPONSES,
        lifespan=_lifespan,
    )
    app.state.settings, app.state.now, app.state.own_port, app.state.bus = settings, now, settings.port, Bus()
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.add_middleware(HostCheck, settings=settings)
    app.add_middleware(StrictHeaders)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would write the addresses of webhooks into the log
    _build_routes(app)
    return app


def _build_routes(app: FastAPI) -> None:
    """Build what FastAPI else builds at the first request.

    That request would wait for it, and warnings are turned off for the whole process meanwhile, which two servers in one
    process do not survive.
    """
    nowhere = {"type": "http", "method": "GET", "path": "/no-such-path", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(nowhere)


def open_database(settings: Settings, bus: Bus, now: Callable[[], datetime]) -> Database:
    """The database, at this code's version and with the default rules, ringing the bus after each commit."""
    database = Database.open(settings.database, on_commit=bus.ring)
    try:
        database.migrate()
        database.writer.submit(lambda connection: rules_service.ensure_rules(connection, now()))
        database.writer.submit(lambda connection: run_service.give_grace(connection, now()))
    except BaseException:
        database.close()
        raise
    return database


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings, bus, now = app.state.settings, app.state.bus, app.state.now
    database = await run_in_threadpool(open_database, settings, bus, now)

    def policy() -> Policy:
        return replace(Policy.parse(settings.allow_private_webhooks), own_port=app.state.own_port)

    watchdog = Watchdog(settings.watchdog_url, EXPECTED, lambda: replace(policy(), everything_inside=True))
    worker = Worker(database.writer, bus, settings, policy, now, watchdog=watchdog)
    backtesting = Backtesting(database, settings.database, now)
    app.state.context = Context(settings, database, bus, policy, now, worker.wake, backtesting.wake, watchdog)
    worker.start()
    backtesting.start()
    try:
        yield
    finally:
        bus.close()
        await run_in_threadpool(backtesting.stop)
        await run_in_threadpool(worker.stop)
        await run_in_threadpool(database.close)
