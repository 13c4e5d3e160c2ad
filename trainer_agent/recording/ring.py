"""Ring: the bounded memory between the training thread and the spool's writer. No lock, no system call, no I/O.

Every entry draws a ticket, so order and losses can be told afterwards from the tickets alone: points lie in a bounded deque
that drops its oldest when full, records in one of their own that drops nothing, and `drain` merges both by ticket.

A missing ticket is either lost to the bound, or drawn by another thread that has not appended yet. So a hole is called a loss
only at the next look, and where the ring was not full, where nothing can be lost, only when it has stayed for `HELD_SECONDS`: a
busy machine may take that long to let the other thread go on, and an interrupt may have ended it in between. Until then, what
lies after the hole is held back.
"""

import itertools
import time
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

CAPACITY = 10_000
"""Entries of points. Five to ten MiB at six series; 50 s of a stuck disk at 5 ms a step."""

HELD_SECONDS = 0.25

Points = tuple[int, float, int, int, Any]
"""ticket, seconds since the epoch, segment, step, {series: value} as given."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands for `count` entries that the bound pushed out."""

    count: int


class Ring:
    """Append on any thread with `append_points((next_ticket(), time, segment, step, values))` or `add`; drain on one."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._points: deque[Points] = deque(maxlen=capacity)
        self._records: deque[tuple[int, Any]] = deque()
        self._tickets = itertools.count()
        self.append_points = self._points.append
        self.next_ticket = self._tickets.__next__
        self._held: list[Any] = []
        self._expected = 0
        self._seen = -1
        self._full_up_to = -1
        """The newest ticket there was when the ring was last found full."""
        self._hole = (-1, 0.0)
        """The ticket that is waited for, and since when."""

    def add(self, item: object) -> None:
        """Takes a record, or a mark, in its place between the points."""
        self._records.append((self.next_ticket(), item))

    @property
    def is_empty(self) -> bool:
        """Whether a `drain` would find nothing."""
        return not (self._points or self._records or self._held)

    def drain(self, *, is_last: bool = False) -> list[Points | tuple[int, Any] | Lost]:
        """What has gathered, in ticket order, with `Lost` where the bound took something. Thread: the writer."""
        was_full = len(self._points) == self._points.maxlen
        taken = sorted([*self._held, *_empty(self._points), *_empty(self._records)], key=_ticket)
        if was_full:
            self._full_up_to = taken[-1][0]
        if taken and taken[0][0] == self._expected and taken[-1][0] - self._expected == len(taken) - 1:
            self._held, self._seen, self._expected = [], taken[-1][0], taken[-1][0] + 1
            return taken  # the ordinary case: no ticket is missing
        return self._sifted(taken, is_last=is_last)

    def _sifted(self, taken: list[Any], *, is_last: bool) -> list[Any]:
        """What may be given out of `taken`; the rest is held back."""
        out: list[Any] = []
        for index, entry in enumerate(taken):
            missing = entry[0] - self._expected
            if missing > 0 and not is_last and not self._is_lost_before(entry[0]):
                self._held = taken[index:]
                break
            if missing > 0:
                out.append(Lost(missing))
            out.append(entry)
            self._expected = max(self._expected, entry[0] + 1)
        else:
            self._held = []
        self._seen = taken[-1][0] if taken else self._seen
        return out

    def _is_lost_before(self, ticket: int) -> bool:
        """Whether what is missing before `ticket` will not come any more."""
        if ticket <= self._full_up_to:
            return self._seen >= ticket - 1
        if self._hole[0] != self._expected:
            self._hole = (self._expected, time.monotonic())
        return time.monotonic() - self._hole[1] > HELD_SECONDS


_ticket = itemgetter(0)


def _empty(queue: deque[Any]) -> list[Any]:
    """All that is in it now. Appending at the bound never makes it shorter, so there is something to take each time."""
    take = queue.popleft
    return [take() for _ in range(len(queue))]
