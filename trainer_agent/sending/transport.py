"""Transport: one request to the server, and what its answer means. The only module that knows HTTP.

| answer | means | what to do |
|---|---|---|
| 200 and a Reply | taken | go on |
| 409 with `next_seq` | out of order | send from there |
| 413 | too large | halve |
| 400, 422 | a record in it is refused | find it, set it aside |
| 401, 403 | not allowed | a person must help; try seldom |
| 404, 410 as a problem document | the run is gone | say so once; stop |
| 415 | the encoding is not understood | send it plain from now on (done here) |
| 408, 425, 429, 5xx, a 200 that is no Reply | busy | back off |
| no connection, time-out, cut | unreachable | back off |
| anything else (a redirect, a 404 of something else) | not LossGuard | a person must help; try seldom |

Whatever comes back is data: bounded in size, checked against the contract, never a name or a path for anything. Redirects are not
followed, because the token would go along. An exchange has one deadline for all of it: a server that drips its answer byte by
byte holds a thread no longer than one that is silent.
"""

import json
import logging
import socket
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import httpx2

from trainer_agent.config import Config, is_loopback
from trainer_agent.wire import codec, crash
from trainer_agent.wire.messages import Batch, Heartbeat, Reply, RunStart

from .backoff import read_retry_after

MAX_ANSWER_BYTES = 1 << 20
TIMEOUT_SECONDS = 10.0
CONNECT_SECONDS = 5.0
EXCHANGE_SECONDS = 30.0
CHECK_SECONDS = 3.0
"""From the first byte of a request to the last of its answer."""
POLL_SECONDS = 20
COMPRESS_ABOVE_BYTES = 8 << 10
"""Measured on full batches: gzip at level 1 costs 1.3 ms where encoding costs 10, and sends a quarter. Below this size it is
not worth a header. Loopback is no exception: a tunnel looks like it."""
PLAUSIBLE_RATIO = 50
"""What shrinks more than this goes plain: beyond 100 the server takes it for a bomb."""
_KEEP_ALIVE_SECONDS = 4.0
"""Below the 5 s after which uvicorn closes an idle connection, so that no request meets one that is being closed."""


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not (record.threadName or "").startswith("lossguard-")


for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy"):
    # A user's logging must not fill with our requests, nor come back to us through a handler that logs metrics.
    logging.getLogger(_name).addFilter(_is_not_ours)


class Meaning(StrEnum):
    """What an answer means for the sender."""

    TAKEN = "taken"
    OUT_OF_ORDER = "out of order"
    TOO_LARGE = "too large"
    REFUSED_CONTENT = "refused content"
    NOT_ALLOWED = "not allowed"
    GONE = "gone"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    NOT_LOSSGUARD = "not LossGuard"
    UNKNOWN_ENCODING = "unknown encoding"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `reply` is there when it was taken, `next_seq` when it was out of order."""

    meaning: Meaning
    reply: Reply | None = None
    next_seq: int | None = None
    retry_after: float | None = None
    detail: str = ""


class Transport(Protocol):
    """What a sender needs of a way to the server. No method raises."""

    def announce(self, start: RunStart) -> Answer: ...  # noqa: D102
    def send(self, batch: Batch) -> Answer: ...  # noqa: D102
    def beat(self, heartbeat: Heartbeat) -> Answer: ...  # noqa: D102
    def poll(self, run_id: str, incarnation: str, rank: int) -> Answer: ...  # noqa: D102


class HttpTransport:
    """The HTTP way. For several threads at once. `config.url` and `config.token` are set."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._base = f"{config.url}/api/agent"
        self._token = config.token
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_cut = False
        self._takes_gzip: bool | None = None
        """None until the first compressed batch was answered."""
        self._exchange_of = threading.local()
        self._client = httpx2.Client(
            # Proxies and certificates of the environment hold for a server elsewhere; nothing may come between this machine
            # and itself.
            trust_env=not is_loopback(config.url or ""),
            # Without TLS and without a proxy there is nothing to verify, and reading all certificates takes 0.2 s at the start.
            verify=not (is_loopback(config.url or "") and (config.url or "").startswith("http:")),
            timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=6, keepalive_expiry=_KEEP_ALIVE_SECONDS),
            headers={"Accept-Encoding": "identity", "Accept": "application/json", "User-Agent": "lossguard-agent"},
        )

    def announce(self, start: RunStart) -> Answer:
        """Starts an incarnation; harmless to repeat."""
        return self._request("POST", "/runs", content=start)

    def send(self, batch: Batch) -> Answer:
        """Delivers records, compressed where it pays and the server understands it."""
        return self._request("POST", "/batches", content=batch, may_compress=True)

    def beat(self, heartbeat: Heartbeat) -> Answer:
        """Says "alive"."""
        return self._request("POST", "/heartbeats", content=heartbeat)

    def poll(self, run_id: str, incarnation: str, rank: int) -> Answer:
        """Waits at the server until there is a command or a verdict, or `POLL_SECONDS` are over."""
        params = {"incarnation": incarnation, "rank": str(rank), "wait": str(POLL_SECONDS)}
        timeout = httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS, read=POLL_SECONDS + TIMEOUT_SECONDS)
        path = f"/runs/{run_id}/commands"
        return self._request("GET", path, wait_seconds=POLL_SECONDS, params=params, timeout=timeout)

    def check(self) -> Answer:
        """Asks once, in a few seconds, whether the token is let in: then a run that nobody has is not known (`GONE`)."""
        return self._request("GET", "/runs/no-run/commands?incarnation=check&wait=0", timeout=httpx2.Timeout(CHECK_SECONDS))

    def cut(self) -> None:
        """Ends what is under way, on whatever thread; later requests fail at once."""
        self._is_cut = True
        for open_socket in list(self._sockets):
            with suppress(OSError, ValueError):
                open_socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Lets go of idle connections."""
        with suppress(Exception):
            self._client.close()

    def _request(self, method: str, path: str, content: object = None, *, may_compress: bool = False, **options: Any) -> Answer:
        if self._is_cut:
            return Answer(Meaning.UNREACHABLE, detail="the agent is ending")
        try:
            body = None if content is None else codec.encode(content)
            answer = self._ask(method, path, body, may_compress=may_compress, **options)
        except httpx2.TransportError as error:
            return Answer(Meaning.UNREACHABLE, detail=f"{type(error).__name__}: {error}"[:200])
        except Exception as error:  # a broken answer, a strange TLS stack: nothing of it may end a thread
            return Answer(Meaning.BUSY, detail=f"{type(error).__name__}: {error}"[:200])
        if answer.meaning is Meaning.NOT_ALLOWED:
            self._token = self._config.fresh_token()
        return answer

    def _ask(self, method: str, path: str, body: bytes | None, *, may_compress: bool, **options: Any) -> Answer:
        """The answer; a body that the server does not understand compressed is asked again plain.

        A server that knows nothing of compression may call the body bad JSON: before the first one was taken, that counts too.
        """
        packed = _packed(body) if body is not None and may_compress and self._takes_gzip is not False else None
        if packed is not None:
            answer = self._exchange(method, path, packed, is_packed=True, **options)
            is_odd = answer.meaning is Meaning.REFUSED_CONTENT and self._takes_gzip is None
            if answer.meaning is not Meaning.UNKNOWN_ENCODING and not is_odd:
                self._takes_gzip = self._takes_gzip or answer.meaning is Meaning.TAKEN or None
                return answer
        answer = self._exchange(method, path, body, **options)
        if packed is not None and answer.meaning is Meaning.TAKEN:
            self._takes_gzip = False
        return replace(answer, meaning=Meaning.NOT_LOSSGUARD) if answer.meaning is Meaning.UNKNOWN_ENCODING else answer

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        is_packed: bool = False,
        wait_seconds: float = 0.0,
        **options: Any,
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        self._exchange_of.deadline = time.monotonic() + wait_seconds + EXCHANGE_SECONDS
        extensions = {"trace": self._remember}
        with self._client.stream(
            method, self._base + path, content=body, headers=headers, extensions=extensions, **options
        ) as response:
            return judge(response.status_code, response.headers, _bounded(response.iter_raw()))

    def _remember(self, event: str, info: Mapping[str, Any]) -> None:
        """Keeps hold of sockets as they are connected, for `cut`, and holds them to the exchange's deadline."""
        if event == "http11.send_request_body.complete":
            crash.reach("request.written")
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            stream = info["return_value"]
            stream.read, stream.write = self._in_time(stream.read), self._in_time(stream.write)
            connected = stream.get_extra_info("socket")
            if connected is not None:
                self._sockets.add(connected)

    def _in_time(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """`act` of a connection, with no more time than its thread's exchange has left: each byte would begin a new wait."""

        def held(what: Any, timeout: float | None = None) -> Any:
            left = self._exchange_of.deadline - time.monotonic()
            if left <= 0:
                raise httpx2.ReadTimeout("the exchange took too long")
            return act(what, left if timeout is None else min(timeout, left))

        return held


def _packed(body: bytes) -> bytes | None:
    """The body compressed; None where that is not worth it. Long work here lets other threads run."""
    if len(body) <= COMPRESS_ABOVE_BYTES:
        return None
    packed = zlib.compress(body, 1, wbits=31)
    return packed if len(packed) < len(body) < PLAUSIBLE_RATIO * len(packed) else None


def judge(status: int, headers: Mapping[str, str], body: bytes | None) -> Answer:
    """What an answer means; `body` is None when it was larger than an answer may be. Pure."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    problem = _problem(body) if content_type == "application/problem+json" else None
    detail = _in_words(status, problem)
    if status == 200:
        return _judge_reply(body)
    if status == 409:
        expected = (problem or {}).get("next_seq")
        if isinstance(expected, int) and not isinstance(expected, bool) and 1 <= expected <= codec.MAX_STEP:
            return Answer(Meaning.OUT_OF_ORDER, next_seq=expected, detail=detail)
        return Answer(Meaning.BUSY, detail=detail)
    if status in (404, 410):
        return Answer(Meaning.GONE if problem is not None else Meaning.NOT_LOSSGUARD, detail=detail)
    if status in (408, 425, 429) or status >= 500:
        return Answer(Meaning.BUSY, retry_after=read_retry_after(headers.get("retry-after")), detail=detail)
    return Answer(_MEANINGS.get(status, Meaning.NOT_LOSSGUARD), detail=detail)


_MEANINGS = {
    400: Meaning.REFUSED_CONTENT,
    422: Meaning.REFUSED_CONTENT,
    413: Meaning.TOO_LARGE,
    415: Meaning.UNKNOWN_ENCODING,
    401: Meaning.NOT_ALLOWED,
    403: Meaning.NOT_ALLOWED,
}


def _judge_reply(body: bytes | None) -> Answer:
    if body is None:
        return Answer(Meaning.BUSY, detail="the answer is larger than an answer may be")
    try:
        return Answer(Meaning.TAKEN, reply=codec.decode(Reply, body))
    except (codec.WireError, RecursionError) as error:
        return Answer(Meaning.BUSY, detail=f"the answer is not LossGuard's: {error}"[:200])


def _problem(body: bytes | None) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _in_words(status: int, problem: dict[str, Any] | None) -> str:
    said = "; ".join(part for key in ("detail", "fix") if isinstance(part := (problem or {}).get(key), str))
    return f"{status} {said}".strip()[:300]


def _bounded(chunks: Iterable[bytes]) -> bytes | None:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            return None
    return bytes(body)
