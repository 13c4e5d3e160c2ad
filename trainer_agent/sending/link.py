"""Link: whether the server answers, as all threads that talk to it know it. Pure.

    up   -> down     a request failed, or only a person can help: one try at a time from now on, whichever thread makes it
    down -> down     the next one failed too: the wait grows
    any  -> up       the server answered: all go on at once

One backoff for all, because the server does not care which thread asks: three of them with a backoff each would ask three times
as often. `now` is a monotonic clock in seconds; `random` gives numbers in [0, 1).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from . import backoff

TRY_SECONDS = 30.0
"""How long the others wait for the outcome of a try that is under way."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """`failures` in a row; `try_at` is when the next try may be made, `failed_at` when the last one failed."""

    failures: int = 0
    try_at: float = 0.0
    failed_at: float = 0.0

    @property
    def is_up(self) -> bool:
        """Whether the last thing heard of the server was an answer."""
        return not self.failures

    def wait_seconds(self, now: float) -> float:
        """How long until somebody may try; 0 when it may be now."""
        return max(0.0, self.try_at - now) if self.failures else 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """The server answered, whatever it said."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or that it is busy; `retry_after` is what it asked for, in seconds."""

    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """It will not do until a person has done something: the token, the address."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A thread has begun a try."""


Input = Heard | Failed | Refused | Tried


def step(state: LinkState, given: Input, now: float, random: Callable[[], float]) -> LinkState:
    """The link after one input."""
    failures = state.failures + 1
    match given:
        case Heard():
            return LinkState()
        case Failed():
            return LinkState(failures, now + backoff.delay(failures, random, given.retry_after), now)
        case Refused():
            return LinkState(failures, now + backoff.crawl(random), now)
        case Tried():
            return state if state.is_up else replace(state, try_at=now + TRY_SECONDS)
