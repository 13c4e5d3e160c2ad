"""Hints that something changed: which runs are at which revision, and whether a webhook delivery or a rule did.

A hint may be merged with later ones and may be lost with the process; the tables are the truth, and whoever waits reads them.

Thread: `ring` may be called from any thread and never blocks; a `Subscription` belongs to the event loop that made it.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hint:
    """What changed since the last hint. `closed` says that the server is going away."""

    revisions: dict[str, int] = field(default_factory=dict)
    webhooks: bool = False
    rules: bool = False
    closed: bool = False


class Subscription:
    """What one listener has not read yet, merged: a slow reader costs no more than one entry a run."""

    def __init__(self, run_id: str | None) -> None:
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._revisions: dict[str, int] = {}
        self._webhooks = False
        self._rules = False
        self._closed = False

    async def wait(self, timeout_seconds: float) -> Hint | None:
        """The next hint; None when none came in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._rung.wait()
        except TimeoutError:
            return None
        return self._take()

    def _take(self) -> Hint:
        hint = Hint(self._revisions, self._webhooks, self._rules, self._closed)
        self._revisions, self._webhooks, self._rules = {}, False, False
        if not self._closed:
            self._rung.clear()
        return hint

    def _hear(self, hint: Hint) -> None:
        """Any thread: pass a hint to the listener's loop."""
        if self._run_id is None or hint.closed or self._run_id in hint.revisions:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._merge, hint)

    def _merge(self, hint: Hint) -> None:
        self._revisions.update(hint.revisions)
        self._webhooks = self._webhooks or hint.webhooks
        self._rules = self._rules or hint.rules
        self._closed = self._closed or hint.closed
        self._rung.set()


class Bus:
    """Rings everybody who waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: set[Subscription] = set()
        self._closed = False

    @contextlib.contextmanager
    def subscribe(self, run_id: str | None = None) -> Iterator[Subscription]:
        """A subscription to one run, or to everything. Subscribe first, then read the tables: so nothing falls between."""
        subscription = Subscription(run_id)
        with self._lock:
            self._subscriptions.add(subscription)
            closed = self._closed
        if closed:
            subscription._hear(Hint(closed=True))  # noqa: SLF001 -- one module, two halves
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.discard(subscription)

    def ring(self, revisions: Mapping[str, int] | None = None, *, webhooks: bool = False, rules: bool = False) -> None:
        """Tell every listener."""
        self._tell(Hint(dict(revisions or {}), webhooks, rules))

    @property
    def is_closed(self) -> bool:
        """Whether the server is going away."""
        return self._closed

    def close(self) -> None:
        """Let every listener go, now and from now on."""
        with self._lock:
            self._closed = True
        self._tell(Hint(closed=True))

    def _tell(self, hint: Hint) -> None:
        with self._lock:
            listeners = tuple(self._subscriptions)
        for listener in listeners:
            listener._hear(hint)  # noqa: SLF001 -- one module, two halves
