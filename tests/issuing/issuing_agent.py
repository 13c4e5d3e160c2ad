"""A trainer as a model: the agent's own inbox, a journal and spools that outlive it, and effects that are counted.

It keeps the agent's half of the promises: nothing is begun whose intent is not in the journal, a result is in the journal before
it is told, and a process reads the journal of the one before it first. Everything else may happen to it: it is killed at any
point, loses what it has written down last, and sends what it has, and what its forerunners left, in any order.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from server.services import ingest, runs
from trainer_agent.sending import inbox
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import (
    Batch,
    CheckpointSaved,
    Heartbeat,
    Numbered,
    Report,
    RunEnded,
    RunStart,
    SegmentStarted,
)
from trainer_agent.wire.vocabulary import (
    KILLED,
    CheckpointState,
    CommandKind,
    CommandState,
    DataMode,
    EndReason,
    Phase,
    SegmentCause,
)

OWNER = "token"
TARGET = CheckpointSaved(
    "c-4",
    1,
    4,
    0.0,
    CheckpointState.COMPLETE,
    parts=("model", "optimizer", "scheduler", "rng", "position"),
    nonfinite_weights=0,
    nonfinite_optimizer=0,
)


@dataclass
class Spool:
    """What one process has written down; `sent` records of it are acknowledged."""

    incarnation: str
    records: list = field(default_factory=list)
    sent: int = 0

    @property
    def is_told(self) -> bool:
        return self.sent == len(self.records)

    @property
    def has_last_word(self) -> bool:
        return any(isinstance(each, RunEnded) for each in self.records)


@dataclass
class Disk:
    """What outlives a process."""

    spools: list[Spool] = field(default_factory=list)
    intent: tuple[Command, float] | None = None
    """With the time until which it may be done."""
    result: Report | None = None
    last_segment: int = 0
    effects: Counter = field(default_factory=Counter)
    """How often each command was done."""
    opened: dict = field(default_factory=lambda: defaultdict(set))
    """The segments that each rollback has opened."""
    wrongly_taken: list = field(default_factory=list)


class ModelAgent:
    """The trainer's side of one run. `submit` runs a unit of work on the server."""

    def __init__(self, run_id: str, submit, clock) -> None:
        self.run_id, self.submit, self.clock = run_id, submit, clock
        self.disk = Disk()
        self.is_alive = self.is_paused = self.in_loop = False
        self.in_hand: Command | None = None

    # --- a process begins and ends

    def start(self) -> None:
        """A new process: announced, and not yet in its loop."""
        number = len(self.disk.spools) + 1
        for left in self.disk.spools:
            if not left.has_last_word:
                left.records.append(RunEnded(EndReason.FAILED, 0.0, 4, KILLED))
        self.disk.spools.append(Spool(f"life-{number}"))
        self.is_alive, self.is_paused, self.in_loop, self.in_hand = True, False, False, None
        start = RunStart(self.run_id, self.incarnation, "p", "n", capabilities=tuple(CommandKind), data_modes=tuple(DataMode))
        self.submit(lambda connection: runs.start_run(connection, start, OWNER, self.clock()))
        self.inbox = inbox.InboxState(self.incarnation, self.disk.last_segment or 1)

    def begin_loop(self) -> None:
        """Deals with the journal, and opens the segment of this process."""
        self.in_loop = True
        if self.disk.result is not None:
            self.record(self.disk.result)
            self.disk.result = None
        intent, self.disk.intent = self.disk.intent, None
        command, until = intent or (None, 0.0)
        if command is not None and command.rollback is not None:
            self._go_back(command)
            return
        is_first = self.disk.last_segment == 0
        self._open(self.disk.last_segment + 1, SegmentCause.START if is_first else SegmentCause.RESTART, begins=True)
        if is_first:
            self.record(TARGET)
        if command is not None and command.kind is CommandKind.STOP and self._seconds() < until:
            self._leave(command)
        elif command is not None:
            self._answer(command, CommandState.FAILED)

    def kill(self, lost: int) -> None:
        """SIGKILL. The last `lost` records that were not sent yet had not reached the disk."""
        spool = self.disk.spools[-1]
        kept = max(spool.sent, len(spool.records) - lost)
        del spool.records[kept:]
        self.is_alive, self.in_hand = False, None

    def _leave(self, command: Command) -> None:
        self.disk.effects[command.command_id] += 1
        self._answer(command, CommandState.SUCCEEDED)
        self.record(RunEnded(EndReason.STOPPED_BY_COMMAND, 0.0, 4))
        self.is_alive, self.in_hand = False, None

    # --- words

    @property
    def incarnation(self) -> str:
        return self.disk.spools[-1].incarnation

    def record(self, record) -> None:
        self.disk.spools[-1].records.append(record)

    def report(self, command_id: str, state: CommandState, reason: str = "") -> None:
        self.record(Report(command_id, state, 0.0, 4, reason))

    def _answer(self, command: Command, state: CommandState) -> None:
        """The result, in the journal and then as a report."""
        self.disk.intent, self.disk.result = None, Report(command.command_id, state, 0.0, 4, "read in the journal")
        self.report(command.command_id, state)

    def send(self, which: int, count: int) -> None:
        """Some of what a spool holds; the oldest spool is 0."""
        spool = self.disk.spools[which % len(self.disk.spools)]
        first, last = spool.sent + 1, min(spool.sent + count, len(spool.records))
        if last < first:
            return
        records = tuple(Numbered(seq, spool.records[seq - 1]) for seq in range(first, last + 1))
        batch = Batch(self.run_id, spool.incarnation, 0, first, last, 0.0, records=records)
        reply = self.submit(lambda connection: ingest.take_batch(connection, batch, OWNER, self.clock()))
        assert reply.next_seq == last + 1
        spool.sent = last
        if self.is_alive and spool is self.disk.spools[-1]:
            self._receive(reply)

    def send_all(self) -> None:
        for which in range(len(self.disk.spools)):
            self.send(which, 1_000)

    def beat(self) -> None:
        phase = Phase.PAUSED if self.is_paused else Phase.TRAINING if self.in_loop else Phase.STARTING
        heartbeat = Heartbeat(self.run_id, self.incarnation, 0, 0.0, phase, 4, self.disk.last_segment or 1)
        self._receive(self.submit(lambda connection: runs.take_heartbeat(connection, heartbeat, OWNER, self.clock())))

    def _receive(self, reply) -> None:
        for each in reply.commands:
            if each.incarnation != self.incarnation or not each.deliver_within_seconds > 0:
                self.disk.wrongly_taken.append(each)
        self._turn(inbox.Arrived(reply.commands))

    def _turn(self, given):
        outcome = inbox.step(self.inbox, given, self._seconds())
        self.inbox = outcome.state
        for receipt in outcome.receipts:
            self.report(receipt.command_id, receipt.state, receipt.reason)
        return outcome.given

    def _seconds(self) -> float:
        return self.clock().timestamp()

    # --- deeds

    def begin_command(self) -> None:
        """Takes the next command: its intent is in the journal before anything is done."""
        command = self._turn(inbox.Asked())
        if command is None:
            return
        if command.kind is CommandKind.RESUME and not self.is_paused:
            self.report(command.command_id, CommandState.REJECTED, "not paused")
            return
        self.in_hand = command
        self.disk.intent = (command, self._seconds() + command.execute_within_seconds)
        self.report(command.command_id, CommandState.RUNNING)

    def do_command(self) -> None:
        """Does what is in hand; the process may be killed between this and its result."""
        command = self.in_hand
        if command.kind is CommandKind.STOP:
            return  # done when it leaves
        if command.rollback is not None:
            self._reach(command)
            return
        self.disk.effects[command.command_id] += 1
        self.is_paused = {CommandKind.PAUSE: True, CommandKind.RESUME: False}.get(command.kind, self.is_paused)

    def end_command(self, *, fails: bool) -> None:
        """The result of what is in hand."""
        command, self.in_hand = self.in_hand, None
        if command.kind is CommandKind.STOP:
            self._leave(command)
        else:
            was_done = self.disk.effects[command.command_id] or self.disk.opened[command.command_id]
            self._answer(command, CommandState.SUCCEEDED if was_done and not fails else CommandState.FAILED)

    def _go_back(self, command: Command) -> None:
        """A rollback that an earlier process had begun, brought to its end."""
        self._reach(command)
        self._answer(command, CommandState.SUCCEEDED)

    def _reach(self, command: Command) -> None:
        self.disk.opened[command.command_id].add(command.rollback.new_segment)
        self.is_paused = False
        self._open(command.rollback.new_segment, SegmentCause.ROLLBACK, command_id=command.command_id)

    def _open(self, segment: int, cause: SegmentCause, *, command_id: str | None = None, begins: bool = False) -> None:
        self.disk.last_segment = max(self.disk.last_segment, segment)
        from_step = 0 if cause is SegmentCause.START else 4
        self.record(SegmentStarted(segment, from_step, cause, 0.0, None, command_id, None if command_id is None else "c-4"))
        self._turn(inbox.Moved(segment, begins))
