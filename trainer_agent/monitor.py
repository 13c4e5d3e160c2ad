"""Monitor: what the integrations talk to.

    log, record -> ring -> [writer] -> spool -> [sender] -> server        brackets: background threads
    take_command <- inbox <- replies

The training thread appends to memory and reads memory. It takes one lock, around pure code, and only where a command waits or a
segment begins. Nothing here raises into the training. In a forked child every call does nothing.

A process that leaves without `end` is flushed at exit. Of how the run ended only a fact is told: an uncaught exception is
`failed` with its type, and so is a training that has to come to its end (`at_left`) and did not. Else nothing is claimed, and
the server will call the run lost.
"""

import atexit
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from .config import Config
from .guest import ends
from .guest.interrupts import let_pass, suppress_ours
from .guest.voice import Voice
from .recording.ring import Ring
from .recording.spool import Spool
from .recording.writer import Mark, Writer
from .sending import inbox
from .sending.backlog import note_left
from .sending.sender import Sender
from .sending.transport import HttpTransport
from .wire.commands import Command
from .wire.messages import Heartbeat, Record, Reply, Report, RunEnded, RunStart, SegmentStarted, Verdict
from .wire.vocabulary import EndReason, Phase, SegmentCause

EXIT_SECONDS = 4.0
"""Of this the last `STOP_SECONDS` are for the threads to end; the rest up to 5 s is for a busy machine."""
STOP_SECONDS = 0.5
CATCH_UP_SECONDS = 0.25
"""How long a last word waits for the writer, which knows the last step only once it has taken it."""

_alive: "weakref.WeakSet[Monitor]" = weakref.WeakSet()


def new_incarnation() -> str:
    """A random id for one life of one trainer process."""
    return secrets.token_hex(16)


class Monitor:
    """Takes what a training run says, and gives it the commands that came for it.

    `with monitor:` begins it, and ends it by how the block was left.

    `directory` is `<output_dir>/.lossguard`; `start.incarnation` is made with `new_incarnation()`.
    """

    def __init__(self, start: RunStart, config: Config, directory: Path, voice: Voice | None = None) -> None:
        self.start = start
        self.segment = 1
        """Of the last recorded `SegmentStarted`."""
        self.spool = Spool(directory / "spool" / start.incarnation, start)
        self._config, self._voice = config, voice or Voice()
        self._ring = Ring()
        self._append, self._ticket, self._clock = self._ring.append_points, self._ring.next_ticket, time.time
        self._phase = Phase.STARTING
        self._writer = Writer(self._ring, self.spool, self._voice, self._wake)
        self._sender: Sender | None = None
        self._inbox = inbox.InboxState(start.incarnation, self.segment)
        self._verdicts: dict[str, Verdict] = {}
        self._arrived = threading.Condition()
        self._is_on = self._is_void = False
        self._error_before, self._is_end_unknown = 0, False
        self.at_verdicts: Callable[[Mapping[str, Verdict]], None] | None = None
        """Told all verdicts known when any is new. Thread: sender, heartbeat or commands; it may write a file."""
        self.at_left: Callable[[], None] | None = None
        """Set by whoever always comes to `end`: ends the run as left, when another is begun in its place in the same process."""
        _alive.add(self)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        reason, detail = ends.of(error)
        self.end(reason, self._last_step(), detail)

    def begin(self) -> None:
        """Starts the background threads and returns at once."""
        if self._is_on or self._is_void:
            return
        _end_those_left(self)
        self._is_on = True
        self._error_before = ends.stamp()
        ends.also_at_exit_of_child(_at_exit)
        try:
            self._sender = self._make_sender()
            self._writer.start()
            if self._sender is not None:
                self._sender.start()
        except Exception as error:  # no threads to be had
            let_pass(error)
            self._voice.say("begin", f"could not start ({type(error).__name__}: {error}); this run is not watched")
            self._void()

    def goes_on_with(self, segment: int) -> None:
        """The run was in this segment when its last process ended. To be called before `begin`."""
        self.segment = segment
        self._inbox = inbox.InboxState(self.start.incarnation, segment, before=segment)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Takes the numbers of one step, plain floats; anything else is dropped and counted later. Thread: training."""
        try:
            kept = {**values}  # a copy: a script may fill the same dict again at its next step
        except Exception as error:
            let_pass(error)
            kept = None  # told by the writer
        self._append((self._ticket(), self._clock(), self.segment, step, kept))

    def record(self, record: Record) -> None:
        """Takes a record in its place between the points. Never dropped. Thread: any."""
        if self._is_void:
            return
        self._ring.add(record)
        if isinstance(record, SegmentStarted):
            self.segment = record.segment
            self._turn(inbox.Moved(record.segment, begins=record.cause is not SegmentCause.ROLLBACK))

    def set_phase(self, phase: Phase) -> None:
        """Says what the process does now; rides in the heartbeats."""
        self._phase = phase

    def take_command(self) -> Command | None:
        """The next command for this incarnation and segment, once. Never blocks."""
        if not self._inbox.waiting or not self._is_on:
            return None
        return self._turn(inbox.Asked())

    def waiting(self) -> tuple[Command, ...]:
        """The commands that have come and were not taken yet."""
        return tuple(held.command for held in self._inbox.waiting)

    def wait_for_command(self, timeout_seconds: float) -> Command | None:
        """The next command, waited for."""
        deadline = time.monotonic() + timeout_seconds
        while self._is_on:
            if (command := self.take_command()) is not None:
                return command
            with self._arrived:
                left = deadline - time.monotonic()
                if not left > 0:
                    return None
                if not self._inbox.waiting:
                    self._arrived.wait(left)
        time.sleep(max(0.0, deadline - time.monotonic()))  # nothing can come, but whoever waits in a loop must not spin
        return None

    def verdicts(self) -> Mapping[str, Verdict]:
        """The server's verdicts so far, by checkpoint id."""
        return self._verdicts

    def flush(self, timeout_seconds: float) -> bool:
        """Whether all that was taken before is durable at the server (without one: on disk) within the limit."""
        return self._flush(time.monotonic() + timeout_seconds)

    def end(self, reason: EndReason, step: int | None, detail: str = "", timeout_seconds: float = EXIT_SECONDS) -> None:
        """Records `RunEnded`, sends what is left within the limit, stops the threads. A second call does nothing."""
        if self._is_on:
            self.record(RunEnded(reason, time.time(), step, detail))
            self._finish(timeout_seconds)

    def _make_sender(self) -> Sender | None:
        if self._config.problem:
            self._voice.once("config", self._config.problem)
        if self._config.url is None or self._config.token is None:
            missing = "no server is set" if self._config.url is None else "no token is set"
            way = "run `lossguard login URL`, or set LOSSGUARD_URL and LOSSGUARD_TOKEN; `lossguard sync` sends them later"
            self._voice.once("unset", f"{missing}: records are kept in {self.spool.directory}. To watch the run, {way}")
            return None
        try:
            transport = HttpTransport(self._config)
        except Exception as error:  # a proxy of the environment that needs a package more, certificates that are not there
            let_pass(error)
            self._voice.once("transport", f"no way to the server ({error}): records are kept in {self.spool.directory}")
            return None
        return Sender(self.spool, transport, self._voice, self._heartbeat, self._on_reply)

    def _wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def _flush(self, deadline: float, *, is_ending: bool = False) -> bool:
        if not self._is_on or self._writer.has_given_up:
            return False
        mark = Mark()
        self._ring.add(mark)
        if not mark.is_reached.wait(max(0.0, deadline - time.monotonic())):
            return False
        if self._sender is None:
            return not self.spool.trouble
        return self._sender.flush(mark.seq, deadline, is_ending)

    def _finish(self, timeout_seconds: float) -> None:
        """Flushes, then stops the threads. What could not be sent stays on disk, and a line says so."""
        deadline = time.monotonic() + timeout_seconds
        self._phase = Phase.ENDING
        with suppress_ours():
            self._flush(deadline - STOP_SECONDS if timeout_seconds > 2 * STOP_SECONDS else deadline, is_ending=True)
            self._void()
            has_written = self._writer.stop(max(STOP_SECONDS, deadline - time.monotonic()))
            has_stopped = self._sender is None or self._sender.stop(max(0.1, deadline - time.monotonic()))
            waiting = self.spool.waiting
            if has_written and waiting and self._is_end_unknown:
                note_left(self.spool.directory)
            if has_written and has_stopped:
                self.spool.close()
            if self._writer.unusable:
                self._voice.say("unusable", f"{self._writer.unusable} values were dropped: no number, or no usable name")
            if waiting:
                folder = self.spool.directory.parents[2]
                self._voice.say(
                    "left", f"{waiting} records wait on disk; `lossguard sync {folder}` sends them, or the next start there"
                )

    def _heartbeat(self) -> Heartbeat:
        start, writer, spool = self.start, self._writer, self.spool
        return Heartbeat(
            run_id=start.run_id,
            incarnation=start.incarnation,
            rank=start.rank,
            sent_at=time.time(),
            phase=self._phase,
            step=writer.step,
            segment=writer.segment,
            latest=writer.latest.copy(),
            waiting_records=spool.waiting,
            dropped_records=writer.dropped + spool.dropped,
        )

    def _on_reply(self, reply: Reply) -> bool:
        """Takes link, verdicts and commands; whether anything was new. Thread: sender, heartbeat or commands."""
        if reply.page_url.startswith(("http://", "https://")):
            self._voice.once("page", f"watch this run at {reply.page_url}")
        with self._arrived:
            before = self._inbox.known, self._verdicts
            if any(self._verdicts.get(verdict.checkpoint_id) != verdict for verdict in reply.verdicts):
                self._verdicts = inbox.merge_verdicts(self._verdicts, reply.verdicts)
        if self.at_verdicts is not None and self._verdicts is not before[1]:
            with suppress(Exception):
                self.at_verdicts(self._verdicts)
        if reply.commands:
            self._turn(inbox.Arrived(reply.commands))
        return before != (self._inbox.known, self._verdicts)

    def _turn(self, given: inbox.Input) -> Command | None:
        """One step of the inbox, and the reports it wants."""
        with self._arrived:
            outcome = inbox.step(self._inbox, given, time.monotonic())
            self._inbox = outcome.state
            for receipt in outcome.receipts:
                step = self._writer.step
                self._ring.add(Report(receipt.command_id, receipt.state, time.time(), step, receipt.reason))
            self._arrived.notify_all()
        return outcome.given

    def _void(self) -> None:
        """From now on every call does nothing."""
        self._is_on, self._is_void, self.at_left = False, True, None
        self._append = _ignore

    def _forked(self) -> None:
        """In a forked child: its threads are not here, and its files belong to the parent."""
        self._void()
        self.spool.abandon()

    def _say_how_it_was_left(self) -> None:
        """The last word at exit without `end`, where there is one to say."""
        error = ends.uncaught(self._error_before)
        reason, detail = ends.of(error)
        if reason is EndReason.FAILED:
            self.record(RunEnded(reason, time.time(), self._last_step(), detail))
        elif self.at_left is not None:
            self.record(RunEnded(EndReason.FAILED, time.time(), self._last_step(), ends.LEFT))
        else:
            self._is_end_unknown = True

    def _last_step(self) -> int | None:
        mark = Mark()
        self._ring.add(mark)
        mark.is_reached.wait(CATCH_UP_SECONDS if self._is_on else 0.0)
        return self._writer.step


def _ignore(_: Any) -> None:
    pass


def _at_exit() -> None:
    """Ends what nobody ended. All within one limit: the last words first, so that while one is sent the others are, too."""
    deadline = time.monotonic() + EXIT_SECONDS
    left = [monitor for monitor in list(_alive) if monitor._is_on]  # noqa: SLF001
    for monitor in left:
        with suppress(Exception):
            monitor._say_how_it_was_left()  # noqa: SLF001
    for monitor in left:
        with suppress(Exception):
            monitor._finish(max(0.0, deadline - time.monotonic()))  # noqa: SLF001


def _end_those_left(newcomer: Monitor) -> None:
    """A notebook's cell that is run again begins the training anew: the one before it, if nobody ended it, is over."""
    place = newcomer.spool.directory.parent, newcomer.start.rank
    for monitor in list(_alive):
        if monitor.at_left is not None and (monitor.spool.directory.parent, monitor.start.rank) == place:
            with suppress_ours():
                monitor.at_left()


def _after_fork_in_child() -> None:
    for monitor in list(_alive):
        monitor._forked()  # noqa: SLF001


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
