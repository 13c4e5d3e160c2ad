"""What the agent says to the person at the terminal: stderr only, at most one line a minute and kind.

Thread: any but the training thread (writing is a system call); `once` is for the start and the end of a run.
"""

import sys
import threading
import time
from collections.abc import Callable

from .interrupts import suppress_ours

QUIET_SECONDS = 60.0


class Voice:
    """Says things seldom. `clock` is monotonic seconds; `write` takes one line."""

    def __init__(self, write: Callable[[str], object] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write or _to_stderr
        self._clock = clock
        self._said_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def say(self, kind: str, text: str) -> bool:
        """One line, unless this kind was heard within the last minute; whether it was said."""
        now = self._clock()
        with self._lock:
            if now - self._said_at.get(kind, float("-inf")) < QUIET_SECONDS:
                return False
            self._said_at[kind] = now
        self._speak(text)
        return True

    def once(self, kind: str, text: str) -> bool:
        """One line, the first time only; whether it was said."""
        with self._lock:
            if kind in self._said_at:
                return False
            self._said_at[kind] = float("inf")
        self._speak(text)
        return True

    def forget(self, kind: str) -> None:
        """Lets `once` speak again: the trouble was over in between."""
        with self._lock:
            self._said_at.pop(kind, None)

    def hush(self, *kinds: str) -> None:
        """Never says these."""
        with self._lock:
            self._said_at.update(dict.fromkeys(kinds, float("inf")))

    def _speak(self, text: str) -> None:
        with suppress_ours():  # a closed or full stderr is no reason to stop
            self._write(f"lossguard: {printable(text)}")


def printable(text: str, limit: int = 500) -> str:
    """Text that may come from a server, safe for a terminal: no control characters, bounded."""
    return "".join(char if char.isprintable() else " " for char in text[:limit])


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
