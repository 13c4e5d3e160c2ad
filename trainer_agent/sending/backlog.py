"""Backlog: the spools that earlier processes left in the folder of this one.

Those of the same run are announced before this process, so that the server takes them for older ones, and delivered before its
records, because a run is judged in the order in which it happened; meanwhile the newest values ride in the heartbeats. Those of
other runs have no order with it, and are delivered one at a time when there is nothing else to send.

A spool that cannot be read, that another process is sending, or that the server will not have stays where it is.

A process holds the lock of its folder for as long as it lives, and its last record says how it ended. So a folder that nobody
holds and that has no last word is of a process that was killed, and whoever finds it says so in its place (`Leftover`).
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer_agent.errors import NotASpool, SpoolInUse
from trainer_agent.guest.ends import KILLED
from trainer_agent.guest.on_disk import replace_file
from trainer_agent.guest.voice import Voice
from trainer_agent.recording.entries import Points
from trainer_agent.recording.segments import leftovers, read_file, read_start
from trainer_agent.recording.spool import Spool
from trainer_agent.wire import codec
from trainer_agent.wire.messages import Numbered, RunEnded
from trainer_agent.wire.vocabulary import EndReason

from .delivery import AT_ONCE, NOTHING, Delivery, Stage


class Leftover(Delivery):
    """The delivery of a spool whose process is gone. A process that was killed is given its last word, once.

    It is written after the announcement, because only the server knows how far the numbers went where the disk could not be
    written, and onto the disk before it is sent, so that a process that is killed here leaves it to the next one. Should it
    come twice all the same, the server keeps the first.
    """

    _has_last_word = False

    def attempt(self) -> float:
        """One request; seconds until the next."""
        pause = super().attempt()
        if self.stage is Stage.SENDING and not self._has_last_word:
            self._has_last_word = True
            self._give_last_word()
        return pause

    def let_go(self) -> None:
        """Lets go of the files; the folder goes too when the server has everything, the last word among it."""
        if self.stage is Stage.ANNOUNCING:
            self.spool.abandon()
        else:
            self.spool.close()

    def _give_last_word(self) -> None:
        spool, answer = self.spool, self.last_answer
        is_there, step = _last_word(spool.directory)
        if is_there or was_left(spool.directory) or answer is None or answer.reply is None:
            return
        seq = min(max(spool.last_seq + 1, answer.reply.next_seq), codec.MAX_STEP)
        spool.write([Numbered(seq, RunEnded(EndReason.FAILED, _last_sign(spool.directory), step, KILLED))])
        spool.acknowledge(min(answer.reply.next_seq, seq))


def note_left(directory: Path) -> None:
    """Says that the process of this spool left by itself, though it cannot say how its training ended: it was not killed."""
    with suppress(OSError, ValueError, TypeError):
        head = json.loads((directory / "start.json").read_bytes())
        replace_file(directory / "start.json", json.dumps({**head, "left": True}).encode())


def was_left(directory: Path) -> bool:
    """Whether the process of this spool left by itself, without a last word."""
    try:
        return bool(json.loads((directory / "start.json").read_bytes()).get("left"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _last_word(directory: Path) -> tuple[bool, int | None]:
    """Whether the journal ends with how the run ended, and the last step in it. A few records may follow that word."""
    step = None
    for path in sorted(directory.glob("*.seg"))[-2:]:
        for entry in read_file(path, 0):
            if isinstance(entry, Points):
                step = entry.step
            elif isinstance(entry.record, RunEnded):
                return True, step
    return False, step


def _last_sign(directory: Path) -> float:
    """When the process was last seen to write, in seconds since the epoch."""
    try:
        return max(path.stat().st_mtime for path in [*directory.glob("*.seg"), directory / "start.json"])
    except OSError:
        return time.time()


class Backlog:
    """What is left besides `own`. Thread: the sender."""

    def __init__(self, own: Spool, deliver: Callable[[Spool], Leftover], voice: Voice) -> None:
        self._own, self._deliver, self._voice = own, deliver, voice
        self._other: Leftover | None = None
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
            self._other.let_go()
            self._other = None
            return AT_ONCE
        if pause != AT_ONCE:
            self._try_at = time.monotonic() + pause
            return NOTHING
        return AT_ONCE

    def close(self) -> None:
        """Lets go of all of them; those that are sent are deleted."""
        for delivery in (*self.older, *([self._other] if self._other else [])):
            delivery.let_go()
        self.older, self._other = [], None

    def _is_of_this_run(self, folder: Path) -> bool:
        try:
            start = read_start(folder)
        except NotASpool:
            return False
        return (start.run_id, start.rank) == (self._own.start.run_id, self._own.start.rank)

    def _adopt(self, folder: Path) -> Leftover | None:
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
