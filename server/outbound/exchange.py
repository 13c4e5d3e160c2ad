"""One exchange with an address outside: a webhook's endpoint, or the watchdog.

No redirect is followed, no proxy of the environment is used, the connection goes to the address that was checked, the whole
exchange ends after a fixed time even when bytes drip, and of the answer only its status and Retry-After are taken.

Thread: `attempt` blocks for at most `Limits.whole_seconds`; it makes an event loop of its own, so any thread may call it.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache

import httpx2

from server.domain.webhooks import Attempt

from .addresses import Forbidden, Policy, Target, Unresolved, parse_target, resolve

MAX_ANSWER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an attempt may take."""

    connect_seconds: float = 5.0
    whole_seconds: float = 15.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Sending:
    """What is sent, and where."""

    url: str
    headers: Mapping[str, str]
    """Beside those that every exchange has."""
    body: bytes = b""
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is taken of an answer."""

    status: int
    retry_after: timedelta | None


def attempt(sending: Sending, policy: Policy, now: datetime, limits: Limits = LIMITS) -> Attempt:
    """What became of one try. Never raises for anything the other side or the network does."""
    began = time.monotonic()
    try:
        answer = asyncio.run(_exchange(sending, policy, now, limits))
    except (Forbidden, Unresolved) as refusal:
        return Attempt(now, None, str(refusal), time.monotonic() - began)
    except TimeoutError:
        return Attempt(now, None, f"no complete answer within {limits.whole_seconds:g} s", time.monotonic() - began)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return Attempt(now, None, _in_words(error), time.monotonic() - began)
    error_text = None if 200 <= answer.status < 300 else f"answered {answer.status}"
    return Attempt(now, answer.status, error_text, time.monotonic() - began, answer.retry_after)


async def _exchange(sending: Sending, policy: Policy, now: datetime, limits: Limits) -> Answer:
    async with asyncio.timeout(limits.whole_seconds):
        target = parse_target(sending.url)
        address = await resolve(target, policy)
        timeout = httpx2.Timeout(limits.whole_seconds, connect=limits.connect_seconds)
        async with (
            httpx2.AsyncClient(verify=_tls(), trust_env=False, follow_redirects=False, timeout=timeout) as client,
            client.stream(
                sending.method,
                _pinned_url(target, str(address)),
                content=sending.body,
                headers=_headers(target) | dict(sending.headers),
                extensions={"sni_hostname": target.host},
            ) as response,
        ):
            await _read_a_little(response)
            return Answer(response.status_code, _retry_after(response.headers.get("retry-after"), now))


@cache
def _tls() -> ssl.SSLContext:
    """Reading the root certificates takes a fifth of a second, so it is done once."""
    return httpx2.create_ssl_context(trust_env=False)


def _pinned_url(target: Target, address: str) -> str:
    """The URL with the checked address in place of the name; Host and SNI still carry the name."""
    host = f"[{address}]" if ":" in address else address
    return f"{target.scheme}://{host}:{target.port}{target.path}"


def _headers(target: Target) -> dict[str, str]:
    return {
        "Host": target.host_header,
        "Accept-Encoding": "identity",
        "Accept": "*/*",
        "Connection": "close",
    }


async def _read_a_little(response: httpx2.Response) -> None:
    """Let the receiver finish a short answer; a long one is cut. Raw bytes: nothing is decompressed."""
    seen = 0
    async for chunk in response.aiter_raw():
        seen += len(chunk)
        if seen > MAX_ANSWER_BYTES:
            return


def _retry_after(text: str | None, now: datetime) -> timedelta | None:
    """What the header asks for, in seconds or as a date; None when it says nothing usable."""
    if text is None:
        return None
    try:
        if text.strip().isdecimal():
            return timedelta(seconds=min(int(text.strip()[:12]), 10**9))
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return max(aware - now, timedelta(0))


def _in_words(error: Exception) -> str:
    """The class of the failure, never a text of the other side's."""
    words = {
        httpx2.ConnectTimeout: "no connection in time",
        httpx2.ConnectError: "connection refused or not secure",
        httpx2.ReadTimeout: "no answer in time",
        httpx2.RemoteProtocolError: "the answer is not HTTP",
        httpx2.ReadError: "the connection broke",
        httpx2.WriteError: "the connection broke",
    }
    return next((text for kind, text in words.items() if isinstance(error, kind)), f"failed: {type(error).__name__}")
