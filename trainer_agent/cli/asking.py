"""Asking the server as a person does: one request to the people's routes, and its answer as data.

The other half of `transport`, which speaks for a run. Redirects are not followed, because the token would go along; an answer is
bounded in size and checked to be JSON.
"""

import json
from collections.abc import Iterable
from typing import Any

import httpx2

from trainer_agent.config import is_loopback
from trainer_agent.errors import Declined, Unanswered

MAX_ANSWER_BYTES = 64 << 20
TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 5.0


class Asking:
    """The people's routes of a server. For one thread."""

    def __init__(self, url: str, token: str) -> None:
        is_here = is_loopback(url)
        self._client = httpx2.Client(
            base_url=url,
            trust_env=not is_here,
            verify=not (is_here and url.startswith("http:")),
            timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "lossguard",
            },
        )

    def ask(self, method: str, path: str, content: object = None) -> dict[str, Any]:
        """The answer.

        Raises:
            Unanswered: nothing came back, or nothing that makes sense.
            Declined: the server refuses.
        """
        body = None if content is None else json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            with self._client.stream(method, path, content=body, headers=headers) as response:
                status, said = response.status_code, _bounded(response.iter_raw())
        except httpx2.HTTPError as error:
            raise Unanswered(f"{type(error).__name__}: {error}"[:300]) from None
        parsed = _parsed(said)
        if parsed is None or 300 <= status < 400:
            raise Unanswered(f"What answers there is not LossGuard ({status}).")
        if status >= 400:
            raise Declined(status, parsed)
        return parsed

    def close(self) -> None:
        """Lets go of the connection."""
        self._client.close()


def _bounded(chunks: Iterable[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise Unanswered("It is larger than an answer may be.")
    return bytes(body)


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
