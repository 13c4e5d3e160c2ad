"""Who may come in. Every route of the API is of one of three classes here, and says by that who may call it.

The door stands before the body is read: nobody without a way in makes the server parse anything.

    AgentRoute      a live agent token
    PeopleRoute     a live operator token, or the session cookie with the checks against cross-site requests
    OpenRoute       anybody (health, signing in)

Source: OWASP cross-site request forgery sheet (own header, Origin, fetch metadata).
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar
from urllib.parse import urlsplit

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from server.domain.access import Caller, Role
from server.services import access
from trainer_agent.wire.messages import MAX_BATCH_BYTES

from .deps import Context
from .problems import Problem, invalid

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_BODY_BYTES = MAX_BATCH_BYTES
MAX_DEPTH = 32
BODY_SECONDS = 30.0
GZIP = "gzip"

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")

_AS_AGENT = (
    "give the agent token: it lies in agent.token in the server's data directory, or make one with: "
    "python -m server token create --role agent --name NAME"
)
_SIGN_IN = "open the sign-in link the server printed, or make a new one with: python -m server signin"


class StrictRequest(Request):
    """A request whose body is bounded in size and time, and whose JSON is strict."""

    most_bytes = MAX_BODY_BYTES

    async def body(self) -> bytes:
        """The body, read once.

        Raises:
            Problem: it is too large (413), too slow (408), or the server ends before it is there (503).
        """
        if not hasattr(self, "_body"):
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    self._body = await self._read()
            except TimeoutError:
                raise Problem(408, "the body did not arrive in time", "send it again") from None
            except asyncio.CancelledError:
                if not self.app.state.bus.is_closed:
                    raise
                raise Problem(503, "the server is shutting down", "send the same again when it is back") from None
        return self._body

    @property
    def is_compressed(self) -> bool:
        """Whether the body came in gzip; the door has refused every other encoding."""
        return encoding_of(self) == GZIP

    async def _read(self) -> bytes:
        too_large = Problem(413, f"the body is larger than {self.most_bytes} bytes", "send less at once")
        announced = self.headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > self.most_bytes:
            raise too_large
        chunks, size = [], 0
        try:
            async for chunk in self.stream():
                size += len(chunk)
                if size > self.most_bytes:
                    raise too_large
                chunks.append(chunk)
        except ClientDisconnect:
            raise Problem(400, "the request broke off", "send it again") from None
        return b"".join(chunks)

    async def json(self) -> Any:
        """The body as strict JSON.

        Raises:
            Problem: it is not (422).
        """
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


def parse_json(text: bytes) -> Any:
    """Strict JSON: UTF-8, no bare NaN, no number beyond float64, no lone surrogate, no NUL, at most 32 deep.

    Raises:
        Problem: it is not.
    """
    try:
        parsed = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise invalid("", "the body is not JSON in UTF-8", "send strict JSON") from None
    _check(parsed, "", 0)
    return parsed


def _refuse_constant(name: str) -> float:
    raise invalid("", f"holds a bare {name}, which is not JSON", f'write the string "{name}"')


def _check(value: Any, where: str, depth: int) -> None:
    """That nothing in `value` is what a database, a browser or a float would choke on."""
    if depth > MAX_DEPTH:
        raise invalid(where[:80], f"is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str) and _UNSTORABLE.search(value):
        raise invalid(where, "must be text without NUL and lone surrogates")
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        raise invalid(where, "is larger than a float64 can hold")
    if isinstance(value, dict):
        for key, item in value.items():
            _check(key, where, depth)
            _check(item, f"{where}.{key[:80]}" if where else key[:80], depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)


class _DoorRoute(APIRoute):
    """A route that asks who is calling before anything else happens."""

    allowed: ClassVar[frozenset[Role] | None] = frozenset()
    """The roles let in; None lets in anybody. Empty here: a route that names nobody lets in nobody."""
    encodings: ClassVar[frozenset[str]] = frozenset({"identity"})
    """What its bodies may be encoded in."""
    most_bytes: ClassVar[int] = MAX_BODY_BYTES
    """How large its bodies may be."""

    def get_route_handler(self) -> Handler:
        """The handler behind the door."""
        handler = super().get_route_handler()

        async def behind_the_door(request: Request) -> Response:
            if self.allowed is not None:
                request.state.caller = await _let_in(request, self.allowed)
            _check_body(request, self.encodings)
            strict = StrictRequest(request.scope, request.receive)
            strict.most_bytes = self.most_bytes
            return await handler(strict)

        return behind_the_door


class AgentRoute(_DoorRoute):
    """For trainer agents."""

    allowed = frozenset({Role.AGENT})
    encodings = frozenset({"identity", GZIP})


class PeopleRoute(_DoorRoute):
    """For the page and for people's scripts."""

    allowed = frozenset({Role.OPERATOR})


class OpenRoute(_DoorRoute):
    """For anybody."""

    allowed = None


async def _let_in(request: Request, roles: frozenset[Role]) -> Caller:
    caller = await run_in_threadpool(identify, request)
    if caller is None:
        is_agents = Role.AGENT in roles
        detail, fix = ("the agent token is missing or not known here", _AS_AGENT) if is_agents else ("no way in", _SIGN_IN)
        raise Problem(401, detail, fix, headers={"WWW-Authenticate": "Bearer"})
    if caller.role not in roles:
        fix = _AS_AGENT if Role.AGENT in roles else "use an operator token; an agent's can only write its own runs"
        raise Problem(403, f"this is not for the role {caller.role}", fix)
    if caller.token_id is None and request.method not in SAFE_METHODS:
        check_same_site(request)
    return caller


def _check_body(request: Request, encodings: frozenset[str]) -> None:
    """Refuse by its headers what is not JSON or cannot be decoded, before reading it. Undeclared is refused, too."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method not in SAFE_METHODS and has_body and kind != "application/json":
        raise Problem(415, "the body is not declared as JSON", "send the header Content-Type: application/json")
    if has_body and encoding_of(request) not in encodings:
        offered = ", ".join(sorted(encodings))
        raise Problem(415, "the body's encoding is not known here", f"send it as {offered}", headers={"Accept-Encoding": offered})


def encoding_of(request: Request) -> str:
    """What the body is encoded in, by its header or headers."""
    return ", ".join(request.headers.getlist("content-encoding")).strip().lower() or "identity"


def identify(request: Request) -> Caller | None:
    """Who is calling, by the token in the header, or else by the cookie. Blocks: reads the database."""
    context: Context = request.app.state.context
    now = context.now()
    authorization = request.headers.get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        with context.database.reading() as connection:
            return access.token_caller(connection, token.strip()) if scheme.lower() == "bearer" else None
    secret = request.cookies.get(cookie_name(request))
    if not secret:
        return None
    with context.database.reading() as connection:
        session = access.open_session(connection, secret, now)
    if session is None:
        return None
    if access.is_unseen(session, now):
        context.database.writer.submit(lambda connection: access.see_session(connection, secret, now))
    return Caller(session.role, session.name)


def cookie_name(request: Request) -> str:
    """The session cookie's name. It holds the port, because browsers share cookies between the ports of a host."""
    server = request.scope.get("server")
    return f"lossguard_{server[1] if server else 0}"


def check_same_site(request: Request) -> None:
    """That a page of this very server made the request.

    Raises:
        Problem: it cannot be told, or another did (403).
    """
    why = _foreign(request)
    if why is not None:
        raise Problem(403, f"refused as a cross-site request: {why}", "use the page itself, or an operator token")


def _foreign(request: Request) -> str | None:
    if request.headers.get("x-lossguard") != "1":
        return "the header X-LossGuard: 1 is missing"
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return "Sec-Fetch-Site is not same-origin"
    origin = urlsplit(request.headers.get("origin", "")).netloc.lower()
    context: Context = request.app.state.context
    own = {request.headers.get("host", "").lower(), urlsplit(context.settings.public_url or "").netloc.lower()} - {""}
    return None if origin in own else "Origin is not this server's"
