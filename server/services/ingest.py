"""Takes a batch: stores its points, judges them, and acts on its records, all in the caller's one transaction.

Records of one incarnation are taken in the order of `seq`, each once. So the result is the same however the stream was cut,
doubled or delayed on its way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import points as domain
from server.domain.countdowns import UNKNOWN_SEQ, is_behind, is_late
from server.domain.events import Event, EventType
from server.domain.points import Point
from server.domain.runs import END_INPUT, ENDED, RunInput, was_called_killed
from server.domain.wording.event_words import ENDS
from server.domain.wording.words import Both, Value
from server.services import (
    alert_words,
    checkpoints,
    countdowns,
    evaluation,
    incidents,
    liveness,
    reports,
    runs,
    samples,
    segments,
)
from server.services.errors import Invalid, OutOfOrder
from server.services.recording import record
from server.store import events as event_store
from server.store import points as point_store
from server.store import runs as run_store
from server.store import segments as segment_store
from server.store.runs import Incarnation, Run
from server.store.touched import touch
from trainer_agent.wire import crash
from trainer_agent.wire.messages import (
    Batch,
    CheckpointSaved,
    Column,
    Dropped,
    Numbered,
    Record,
    Reply,
    Report,
    ResumeChecked,
    RunEnded,
    SaveFailed,
    SegmentStarted,
    StepSamples,
    Unable,
)
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason

_PAUSES = {CommandKind.PAUSE: RunInput.PAUSED, CommandKind.RESUME: RunInput.RESUMED}
"""What a command has made of the run once it has succeeded."""


def take_batch(
    connection: Connection, batch: Batch, owner_token_id: str, now: datetime, *, uptime: Callable[[], float] = lambda: 0.0
) -> Reply:
    """Take what is new of `batch`. The reply's `next_seq` says up to where everything is stored.

    Expects that the batch keeps the contract (`codec.check_batch`); its numbers are checked here against what is stored.
    `uptime` are seconds that only rise, by which a rule is found that takes too long.

    Raises:
        NotFound: unknown run or incarnation.
        OutOfOrder: the batch begins past the next expected record.
        Invalid: a segment that another incarnation has announced, or a value too large to store.
    """
    _check(batch)
    run = runs.owned(connection, batch.run_id, owner_token_id)
    life = runs.speaking(connection, run, batch.incarnation, batch.rank)
    if batch.first_seq > life.next_seq:
        raise OutOfOrder(life.next_seq)
    fresh = domain.trim(batch, life.next_seq)
    if fresh is not None:
        crash.reach("server.batch_before_store")
        _Taking(connection, run, life, now, uptime).take(fresh)
        crash.reach("server.batch_stored")
        life = replace(life, next_seq=fresh.last_seq + 1)
    return runs.reply(connection, life, now)


def _check(batch: Batch) -> None:
    for column in batch.columns:
        runs.check_number("segment", column.segment)
    for numbered in batch.records:
        _check_record(numbered.record)


def _check_record(wire: Record) -> None:
    if isinstance(wire, SegmentStarted | CheckpointSaved):
        runs.check_number("segment", wire.segment)
        if len(wire.checkpoint_id or "") > runs.MAX_NAME:
            raise Invalid(f"checkpoint_id is longer than {runs.MAX_NAME} characters", "name the checkpoint shorter")
    if isinstance(wire, StepSamples | ResumeChecked):
        samples.check(wire)
    if isinstance(wire, SegmentStarted):
        runs.check_number("parent", wire.parent or 0)
        if len(wire.command_id or "") > runs.MAX_ID:
            raise Invalid(f"command_id is longer than {runs.MAX_ID} characters", "send the id that the command came with")


class _Taking:
    """The batch on its way in: what every step of it needs to know."""

    def __init__(self, connection: Connection, run: Run, life: Incarnation, now: datetime, uptime: Callable[[], float]) -> None:
        self.connection, self.run, self.life, self.now, self.uptime = connection, run, life, now, uptime
        self.leads = runs.leads(connection, life)
        self.sent_at = 0.0

    def take(self, fresh: Batch) -> None:
        """Word that the run lives, then points and records in their order, then what is expected next.

        A batch with the end in it is no such word: what a killed process left is brought by another.
        """
        self.sent_at = fresh.sent_at
        touch(self.connection, self.run.run_id)
        if not any(_tells_of_death(numbered.record) for numbered in fresh.records):
            self.run = runs.revive(self.connection, self.run, self.life, self.now)
        if self.leads and not any(isinstance(numbered.record, RunEnded) for numbered in fresh.records):
            self.run = runs.heard(self.connection, self.run, self.now)
        self._note_lateness(fresh)
        for entry in domain.in_order(fresh):
            if isinstance(entry, Numbered):
                self._record(entry.record)
            else:
                self._points(entry)
        self._stored_up_to(fresh)
        incidents.look(self.connection, self.run.run_id, self.now, is_late=is_late(fresh.sent_at, _newest_time(fresh)))

    def _note_lateness(self, fresh: Batch) -> None:
        """Before anything is judged: what waited before it was sent speaks of a run that has gone on since."""
        if is_late(fresh.sent_at, _newest_time(fresh)) and not is_behind(self.life.next_seq, self.life.made_seq):
            self._remember(self.life.next_seq, UNKNOWN_SEQ)

    def _stored_up_to(self, fresh: Batch) -> None:
        """Remember what is expected next. Where a backlog is in now, what it left firing is acted on."""
        was_behind = is_behind(self.life.next_seq, self.life.made_seq)
        self._remember(fresh.last_seq + 1, self.life.made_seq)
        if was_behind and not is_behind(self.life.next_seq, self.life.made_seq):
            countdowns.take_up(self.connection, self.run.run_id, self.now)

    def _remember(self, next_seq: int, made_seq: int) -> None:
        run_store.update_incarnation(self.connection, self.life, next_seq=next_seq, heard_at=self.now, made_seq=made_seq)
        self.life = replace(self.life, next_seq=next_seq, made_seq=made_seq)

    def _points(self, columns: Sequence[Column]) -> None:
        """Store a stretch of points and judge it, before anything that comes after it is stored or done."""
        connection, run_id, life = self.connection, self.run.run_id, self.life
        point_store.store_points(connection, run_id, life.rank, life.incarnation, columns)
        points = domain.points_of(columns, life.rank)
        if self.run.state in ENDED:
            evaluation.pass_over(connection, run_id, points, incarnation=life.incarnation, newest_segment=self.run.segment)
        else:
            self._judge(points)
        if life.rank == 0:
            for segment in {column.segment for column in columns}:
                self._reach(segment, [column for column in columns if column.segment == segment])

    def _judge(self, points: Sequence[Point]) -> None:
        evaluation.judge_points(
            self.connection,
            self.run.run_id,
            self.run.project,
            points,
            self.now,
            incarnation=self.life.incarnation,
            ranks=self.run.world_size,
            sent_at=self.sent_at,
            uptime=self.uptime,
        )

    def _reach(self, segment: int, columns: Sequence[Column]) -> None:
        segment_store.reach(self.connection, self.run.run_id, segment, max(max(column.step) for column in columns))
        if segment == self.run.segment:
            _, newest = max((column.seq[-1], column.step[-1]) for column in columns)
            self.run = liveness.reach(self.connection, self.run, newest, self.now, is_own=self.leads)

    def _record(self, wire: Record) -> None:
        """Act on a record. Only rank 0 speaks for checkpoints, commands and ends; each rank has its own curve to rewind."""
        match wire:
            case Dropped():
                self._dropped(wire)
            case SegmentStarted():
                self._segment(wire)
            case RunEnded() if self.life.rank != 0:
                self._rank_ended(wire)
            case StepSamples():
                samples.take(self.connection, self.run.run_id, self.life.rank, wire, self.now)
            case _ if self.life.rank == 0:
                self._record_of_run(wire)

    def _record_of_run(self, wire: Record) -> None:
        match wire:
            case Unable():
                self._unable(wire)
            case CheckpointSaved():
                self._saved(wire)
            case Report():
                self._report(wire)
            case SaveFailed():
                self._save_failed(wire)
            case ResumeChecked():
                samples.resume_checked(self.connection, self.run.run_id, wire, self.now)
            case RunEnded():
                self._ended(wire)

    def _report(self, wire: Report) -> None:
        """What became of a command. Pausing is done as soon as it is said, not only at the next heartbeat."""
        told = reports.take_report(self.connection, self.run.run_id, self.life.incarnation, wire, self.now)
        what = None if told is None or told.state is not CommandState.SUCCEEDED else _PAUSES.get(told.kind)
        if what is not None and self.leads and self.run.state not in ENDED:
            self._advance(what)

    def _saved(self, wire: CheckpointSaved) -> None:
        checkpoints.take(self.connection, self.run.run_id, wire, self.now)
        self.run = runs.saved(self.connection, self.run, wire)

    def _save_failed(self, wire: SaveFailed) -> None:
        self.run = runs.save_failed(self.connection, self.run, wire, self.now)

    def _dropped(self, wire: Dropped) -> None:
        dropped = self.run.dropped_records + wire.count
        run_store.update(self.connection, self.run.run_id, {"dropped_records": dropped})
        self.run = replace(self.run, dropped_records=dropped)
        text = f"{wire.count} records of rank {self.life.rank} were lost before they were sent: {wire.reason}"
        self._tell(EventType.RUN_RECORDS_DROPPED, {"count": wire.count, "rank": self.life.rank, "text": text})

    def _rank_ended(self, wire: RunEnded) -> None:
        """How the run ended is for rank 0 to say; that another rank failed, and of what, may be why.

        What an earlier process of the rank left is told of where that process was, not of where the run is by now.
        """
        connection, run, rank = self.connection, self.run, self.life.rank
        point_store.seal(connection, run.run_id, rank)
        if wire.reason is not EndReason.FAILED:
            return
        segment = segment_store.left_by(connection, run.run_id, self.life.incarnation, rank)
        who = f"Rank {rank}" if segment is None else f"An earlier process of rank {rank}"
        text = f"{who} failed: {wire.detail}" if wire.detail else f"{who} failed"
        data = {"rank": rank, "text": text, "reason": wire.detail}
        step, at = (run.step, run.segment) if segment is None else (wire.step, segment)
        record(connection, Event(EventType.RUN_RANK_FAILED, self.now, run.run_id, step, at, data))

    def _unable(self, wire: Unable) -> None:
        if self.leads:
            run_store.update(self.connection, self.run.run_id, {"capabilities": (), "incapable_because": wire.reason})
            self._tell(EventType.RUN_UNABLE, {"text": f"Obeys no command any more: {wire.reason}"})

    def _segment(self, wire: SegmentStarted) -> None:
        """A new stretch of steps. One that comes late, from an older incarnation, is only written down."""
        connection, run, life, now = self.connection, self.run, self.life, self.now
        if life.rank == 0:
            begun = segments.start(connection, run, life, wire, now)
            if begun is None:
                return
            self.run = begun
        point_store.seal(connection, run.run_id, life.rank)
        if wire.segment >= run.segment:
            rank, incarnation = life.rank, life.incarnation
            evaluation.segment_started(
                connection, run.run_id, wire, now, rank=rank, incarnation=incarnation, ranks=run.world_size
            )

    def _ended(self, wire: RunEnded) -> None:
        point_store.seal(self.connection, self.run.run_id, self.life.rank)
        if event_store.end_told_of(self.connection, self.run.run_id, self.life.incarnation) is not None:
            return  # the first word on how a process ended stands: what is found in its folder later may be less than it knew
        detail = alert_words.clause_of(self.connection, self.run.run_id, wire.detail) if wire.detail else None
        how = ENDS[wire.reason]
        facts, reason = {"how": how, "detail": detail}, detail or how
        if not self.leads:
            self._earlier_ended(wire, facts, reason)
        elif self.run.state not in ENDED:
            self._advance(END_INPUT[wire.reason], reason, **facts)
            evaluation.run_ended(self.connection, self.run.run_id, self.now)

    def _earlier_ended(self, wire: RunEnded, facts: Mapping[str, Value], reason: Both) -> None:
        """A newer process speaks for the run already, and goes on."""
        run = self.run
        self.run = replace(run, step=wire.step)  # the event is of that step, not of where the newer process is
        self._advance(RunInput.EARLIER_ENDED, reason, step=wire.step, **facts)
        self.run = run

    def _advance(self, what: RunInput, reason: Both = ("", ""), **facts: Value) -> None:
        self.run = runs.advance(self.connection, self.run, what, self.now, reason=reason, life=self.life, **facts)

    def _tell(self, what: EventType, data: dict[str, object]) -> None:
        record(self.connection, Event(what, self.now, self.run.run_id, self.run.step, self.run.segment, data))


def _newest_time(fresh: Batch) -> float | None:
    """When the newest point of the batch was made, by the agent's clock; None where it has none."""
    return max((column.time[-1] for column in fresh.columns), default=None)


def _tells_of_death(wire: Record) -> bool:
    """Whether it is the end of a process in the words of another, which found what it left."""
    return isinstance(wire, RunEnded) and was_called_killed(wire.detail)
