"""Backlog: the spools that earlier processes left in the folder of this one.

Those of the same run are announced before this process, so that the server takes them for older ones, and delivered before its
records, because a run is judged in the order in which it happened; meanwhile the newest values ride in the heartbeats. Those of
other runs have no order with it, and are delivered one at a time when there is nothing else to send.

A spool that cannot be read, that another process is sending, or that the server will not have stays where it is.
"""

import time
from collections.abc import Callable
from pathlib import Path

from .delivery import AT_ONCE, NOTHING, Delivery
from .errors import NotASpool, SpoolInUse
from .segments import leftovers, read_start
from .spool import Spool
from .voice import Voice


class Backlog:
    """What is left besides `own`. Thread: the sender."""

    def __init__(self, own: Spool, deliver: Callable[[Spool], Delivery], voice: Voice) -> None:
        self._own, self._deliver, self._voice = own, deliver, voice
        self._other: Delivery | None = None
        self._try_at = 0.0
        folders = [folder for folder in leftovers(own.directory.parent) if folder != own.directory]
        is_ours = {folder: self._is_of_this_run(folder) for folder in folders}
        self._others = [folder for folder in folders if not is_ours[folder]]
        self.older = [delivery for folder in folders if is_ours[folder] and (delivery := self._adopt(folder)) is not None]
        """Earlier processes of this run, oldest first."""

    def attempt_other(self, attempt: Callable[[Delivery], float]) -> float:
        """One request for the spool of another run; `NOTHING` where there is none, or the last one did not go well just now."""
        if time.monotonic() < self._try_at:
            return NOTHING
        while self._other is None:
            if not self._others:
                return NOTHING
            self._other = self._adopt(self._others.pop(0))
        pause = attempt(self._other)
        if is_over(self._other) or pause == NOTHING:
            self._other.spool.close()
            self._other = None
            return AT_ONCE
        if pause != AT_ONCE:
            self._try_at = time.monotonic() + pause
            return NOTHING
        return AT_ONCE

    def close(self) -> None:
        """Lets go of all of them; those that are sent are deleted."""
        for delivery in (*self.older, *([self._other] if self._other else [])):
            delivery.spool.close()
        self.older, self._other = [], None

    def _is_of_this_run(self, folder: Path) -> bool:
        try:
            start = read_start(folder)
        except NotASpool:
            return False
        return (start.run_id, start.rank) == (self._own.start.run_id, self._own.start.rank)

    def _adopt(self, folder: Path) -> Delivery | None:
        try:
            return self._deliver(Spool.adopt(folder))
        except SpoolInUse:
            return None
        except NotASpool as error:
            self._voice.once(f"leftover {folder}", f"{error} It stays where it is")
            return None


def is_over(delivery: Delivery) -> bool:
    """Whether there is nothing more to be had from a leftover: all sent, refused, or its run is gone."""
    return delivery.is_done or delivery.is_start_refused
