"""The ping to a watchdog outside, which calls somebody when it stays away: who watches trainings must be watched, too.

    worked, failed --> is_due --> missing? --> ping
                          ^          |          |
                          +-- 5 s ---+-- 60 s --+

A ping says that the server does its work; that its process lives would say nothing. Since the ping before, each of the expected
kinds of work came to its end, and none failed when it was last tried. Of work that is not expected (batches, which nobody may
send) only a failure counts.

Thread: any. A ping has a thread of its own, so that a watchdog which hangs delays nothing.
"""

import logging
import threading
from collections.abc import Callable, Collection
from datetime import datetime

from . import exchange
from .addresses import Policy

EVERY_SECONDS = 60.0
AGAIN_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Watchdog:
    """What was done since the last ping, and the pings.

    Args:
        url: of the watchdog, which is asked for with GET; None or empty: there is none, and nothing is done.
        expected: the kinds of work that must be done between two pings.
        policy: where pings may go.
    """

    def __init__(self, url: str | None, expected: Collection[str], policy: Callable[[], Policy]) -> None:
        self._url, self._expected, self._policy = url, frozenset(expected), policy
        self._lock = threading.Lock()
        self._worked: set[str] = set()
        self._failing: set[str] = set()
        self._next_at = 0.0
        self._said = ""

    def worked(self, what: str) -> None:
        """A piece of work of this kind came to its end."""
        with self._lock:
            self._worked.add(what)
            self._failing.discard(what)

    def failed(self, what: str) -> None:
        """One did not, through a fault of the server or its database."""
        with self._lock:
            self._failing.add(what)

    def is_due(self, uptime: float) -> bool:
        """Whether `ping` is to be called. `uptime`: seconds that only rise."""
        return bool(self._url) and uptime >= self._next_at

    def ping(self, uptime: float, now: datetime) -> list[str]:
        """Pings, unless some work is missing; gives that, in the order of the alphabet."""
        with self._lock:
            missing = sorted((self._expected - self._worked) | self._failing)
            self._next_at = uptime + (AGAIN_SECONDS if missing else EVERY_SECONDS)
            if not missing:
                self._worked.clear()
        if missing:
            self._say(f"no ping to the watchdog: not done, or failing: {', '.join(missing)}")
        else:
            threading.Thread(target=self._send, args=(now,), name="lossguard-watchdog", daemon=True).start()
        return missing

    def _send(self, now: datetime) -> None:
        sending = exchange.Sending(self._url or "", {"User-Agent": "LossGuard-Watchdog/1"}, method="GET")
        answer = exchange.attempt(sending, self._policy(), now)
        self._say(f"the watchdog was not reached: {answer.error}" if answer.error else "")

    def _say(self, problem: str) -> None:
        """Once, however long it lasts; its end, too. Never the address: whoever has it can keep the watchdog quiet."""
        with self._lock:
            said, self._said = self._said, problem
        if problem and problem != said:
            _log.warning("%s", problem)
        elif said and not problem:
            _log.warning("the watchdog is pinged again")
