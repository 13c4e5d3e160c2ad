"""The thread that acts when time passes: overdue runs, expired commands, countdowns that are due, deliveries, the watchdog.

Nothing is kept in memory but what is on its way: deadlines are rows, and whoever dies is followed by the next process.
After a pause of the server itself (stopped, its machine asleep, its disk stuck) deadlines are put off as after a start: nobody
could be heard meanwhile.

Thread: one loop; deliveries are tried in threads of their own, at most two for one endpoint, so that an endpoint
which hangs delays neither another endpoint nor a deadline.
"""

import json
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from server import clock
from server.domain import webhooks as domain
from server.domain.webhooks import Attempt
from server.outbound import webhooks as outbound
from server.outbound.addresses import Policy
from server.outbound.wakeups import Bus
from server.outbound.watchdog import Watchdog
from server.services import countdowns, incidents, liveness, reports, runs, silences, webhooks
from server.services.webhooks import Ready
from server.settings import Settings
from server.store import pulses
from server.store.writer import StorageUnavailable, Writer

TICK_SECONDS = 0.25
PAUSE_SECONDS = 10.0
"""Between two rounds, this is no busy machine any more."""
SETTLED_SECONDS = 60.0
"""What has not failed for so long works again."""
MOST_PER_ENDPOINT = 2
MOST_AT_ONCE = 100
STOP_SECONDS = 5.0

_log = logging.getLogger(__name__)

Duty = Callable[[Connection, datetime], int]
DUTIES: tuple[Duty, ...] = (
    runs.mark_overdue,
    liveness.look_due,
    reports.expire_due,
    countdowns.run_due,
    silences.expire_due,
    incidents.tell_due,  # last: what the others made fire is told in the same round
)

DELIVERIES, WRITING = "deliveries", "a write to the database"


def _name(duty: Duty) -> str:
    return f"{duty.__module__.rpartition('.')[2]}.{duty.__name__}"


EXPECTED = (*map(_name, DUTIES), DELIVERIES, WRITING)
"""What is done between two pings of the watchdog, or none is sent."""


class PutOff(Exception):  # noqa: N818  it is no error
    """The thing was not done, and will be in the next round."""


@dataclass(frozen=True, slots=True)
class _Failing:
    """How a thing failed that did so lately, and when it did last, by the uptime."""

    kind: type[Exception]
    last_at: float


class Worker:
    """Started and stopped by `app`."""

    def __init__(
        self,
        writer: Writer,
        bus: Bus,
        settings: Settings,
        policy: Callable[[], Policy],
        now: Callable[[], datetime],
        *,
        watchdog: Watchdog,
        uptime: Callable[[], float] = clock.uptime,
    ) -> None:
        self._writer, self._bus, self._settings, self._policy, self._now = writer, bus, settings, policy, now
        self._watchdog = watchdog
        self._uptime, self._awake_at = uptime, uptime()
        self._woken = threading.Event()
        self._stopping = False
        self._lock = threading.Lock()
        self._out: dict[str, str] = {}
        """Deliveries on their way, and the endpoint of each."""
        self._failing: dict[str, _Failing] = {}
        """What fails, or did so a moment ago."""
        self._thread = threading.Thread(target=self._run, name="lossguard-worker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look now rather than at the next tick. Any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop. Attempts still out are not waited for: their leases run out, and they are made again."""
        self._stopping = True
        self._woken.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            self._woken.wait(TICK_SECONDS)
            self._woken.clear()
            if self._was_paused():
                self._guarded("grace after a pause", self._give_grace)
                continue
            self._awake_at = self._uptime()
            self._do_all()
            if self._watchdog.is_due(self._uptime()):
                self._guarded(WRITING, lambda: self._writer.submit(lambda connection: pulses.beat(connection, self._now())))
                self._watchdog.ping(self._uptime(), self._now())

    def _do_all(self) -> None:
        """All in one commit where nobody fails: on a busy machine one for each would let messages wait for all of them."""
        begun = [(_name(duty), self._writer.enqueue(partial(self._do, duty))) for duty in DUTIES]
        due = self._writer.enqueue(self._take_due)  # behind the duties: what they made fire is sent in the same round
        for what, done in begun:
            self._guarded(what, done.result)
        self._guarded(DELIVERIES, lambda: self._send_all(due.result()))

    def _was_paused(self) -> bool:
        return self._uptime() - self._awake_at > PAUSE_SECONDS

    def _give_grace(self) -> None:
        self._writer.submit(lambda connection: runs.give_grace(connection, self._now()))
        self._awake_at = self._uptime()

    def _do(self, duty: Duty, connection: Connection) -> int:
        """Do it now.

        Raises:
            PutOff: the server was paused just before.
        """
        if self._was_paused():
            raise PutOff
        return duty(connection, self._now())

    def _take_due(self, connection: Connection) -> list[Ready]:
        with self._lock:
            out = Counter(self._out.values())
        if out.total() >= MOST_AT_ONCE:
            return []
        return webhooks.take_due(connection, self._now(), out, MOST_PER_ENDPOINT)

    def _guarded(self, what: str, act: Callable[[], object]) -> None:
        """Do one thing; whatever goes wrong is told in the log, and the next thing is done all the same."""
        try:
            if not self._stopping:
                act()
                self._worked(what)
        except PutOff:
            return
        except Exception as error:
            self._failed(what, error)

    def _worked(self, what: str) -> None:
        self._watchdog.worked(what)
        failing = self._failing.get(what)
        if failing is not None and self._uptime() - failing.last_at >= SETTLED_SECONDS:
            del self._failing[what]
            _log.warning("%s works again", what)

    def _failed(self, what: str, error: Exception) -> None:
        """Say it once for each kind of error, however often the thing is tried: it may be four times a second for days."""
        self._watchdog.failed(what)
        known = self._failing.get(what)
        self._failing[what] = _Failing(type(error), self._uptime())
        if known is not None and known.kind is type(error):
            return
        if isinstance(error, StorageUnavailable):
            _log.warning("%s: %s", what, error)
        else:
            _log.error("%s failed", what, exc_info=error)

    def _send_all(self, due: list[Ready]) -> None:
        """Begin with each in a thread of its own."""
        for ready in due:
            self._note_out(ready)
            name = f"webhook-{ready.endpoint.webhook_id}"
            threading.Thread(target=self._deliver, args=(ready,), name=name, daemon=True).start()

    def _note_out(self, ready: Ready, before: Ready | None = None) -> None:
        with self._lock:
            if before is not None:
                del self._out[before.delivery.delivery_id]
            self._out[ready.delivery.delivery_id] = ready.endpoint.webhook_id

    def _deliver(self, ready: Ready) -> None:
        """One after another of the endpoint, while one is due: each is taken in the commit that writes down the one before.

        Two commits for each, and a round of the worker between them, let the messages of a bad hour wait for one another.
        """
        try:
            while (following := self._attempt(ready)) is not None:
                self._note_out(following, ready)
                ready = following
                self._bus.ring(webhooks=True)
        except StorageUnavailable as error:  # its lease runs out, and it is made again
            _log.warning("what became of an attempt was not written down: %s", error)
        except Exception:
            _log.exception("an attempt failed unexpectedly")
        finally:
            with self._lock:
                self._out.pop(ready.delivery.delivery_id, None)
            self._bus.ring(webhooks=True)
            self.wake()

    def _attempt(self, ready: Ready) -> Ready | None:
        """Try to deliver, and write down what became of it; the next delivery to try."""
        told = domain.with_link(ready.delivery.body, self._settings.public_url, ready.endpoint.language)
        body = json.dumps(told, allow_nan=False, separators=(",", ":"))
        message = outbound.Message(ready.delivery.delivery_id, ready.endpoint.url, ready.endpoint.secret, body)
        attempt = outbound.attempt(message, self._policy(), self._now())
        return self._writer.submit(lambda connection: self._finish(connection, ready, attempt))

    def _finish(self, connection: Connection, ready: Ready, attempt: Attempt) -> Ready | None:
        jitter = random.uniform(-1, 1)  # noqa: S311 -- spreads load, guards nothing
        now, scale = self._now(), self._settings.webhook_retry_scale
        webhooks.finish_attempt(connection, ready.delivery.delivery_id, attempt, now, jitter=jitter, scale=scale)
        return None if self._stopping else webhooks.take_next(connection, ready.endpoint.webhook_id, now)
