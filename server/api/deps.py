"""What every route gets at: the parts of the running server, and who is calling."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict

from server.domain.access import Caller
from server.domain.commands import Hand
from server.outbound.addresses import Policy
from server.outbound.wakeups import Bus
from server.outbound.watchdog import Watchdog
from server.settings import Settings
from server.store.database import Database

MAX_INTEGER = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Context:
    """The running server, as the routes see it."""

    settings: Settings
    database: Database
    bus: Bus
    policy: Callable[[], Policy]
    """Where webhooks may go, by the settings and by the port the server really has."""
    now: Callable[[], datetime]
    wake: Callable[[], None]
    """Have the worker look at once."""
    wake_backtests: Callable[[], None]
    """The same of the thread that works on backtests."""
    watchdog: Watchdog
    """Is told of what the routes do for it."""


def context(request: Request) -> Context:
    """The running server."""
    found: Context = request.app.state.context
    return found


def caller(request: Request) -> Caller:
    """Who is calling; the door has let them in already."""
    found: Caller = request.state.caller
    return found


def hand(request: Request) -> Hand:
    """Who is calling, and from where: what the audit trail says of a change."""
    by = caller(request)
    host = request.client.host if request.client is not None else "unknown"
    return Hand(by.name, f"{host}, by {'the page' if by.token_id is None else 'token'}")


In = Annotated[Context, Depends(context)]
By = Annotated[Caller, Depends(caller)]
Whose = Annotated[Hand, Depends(hand)]

ID_PATTERN = r"^[A-Za-z0-9_.:\-]{1,64}$"
RunId = Annotated[str, Path(pattern=ID_PATTERN)]
Id = Annotated[str, Path(pattern=ID_PATTERN)]


class Out(BaseModel):
    """What all answers here have in common: numbers that are not finite are the strings of docs/api.md."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
