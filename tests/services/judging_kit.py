"""A trainer as the services hear it: records numbered 1, 2, 3 ..., sent in batches cut however a test likes."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from sqlalchemy import Connection

from server.domain.rules import AlertRule, DetectorKind
from server.services import ingest, runs
from server.services import rules as rules_service
from server.store import alerts as alerts_store
from server.store import events as events_store
from server.store import rules as rules_store
from trainer_agent.wire import series
from trainer_agent.wire.messages import (
    Batch,
    CheckpointSaved,
    Column,
    Numbered,
    Record,
    Report,
    RunEnded,
    RunStart,
    SegmentStarted,
)
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, EndReason, SegmentCause

OWNER = "token"
LOSS_HIGH = AlertRule("high", "Loss is high", "Loss high", "train/loss", DetectorKind.THRESHOLD, {"above": 10.0})
ALL_PARTS = ("model", "optimizer", "scheduler", "scaler", "rng", "position")


@dataclass
class Trainer:
    connection: Connection
    clock: object
    run_id: str = "run"
    incarnation: str = "life-1"
    rank: int = 0
    automatic_rollback: bool = True
    capabilities: tuple = tuple(CommandKind)
    data_modes: tuple = tuple(DataMode)
    data_modes_because: str = ""
    segment: int = 1
    records: list = field(default_factory=list)
    """Each a dict of values with its step and segment, or a record of the wire."""
    sent: int = 0

    def start(self, cause=SegmentCause.START, from_step=0, **change):
        """RunStart, and the record that opens the segment (not sent yet)."""
        start = RunStart(
            self.run_id,
            self.incarnation,
            "project",
            "name",
            rank=self.rank,
            capabilities=self.capabilities,
            incapable_because="it is a loop",
            data_modes=self.data_modes,
            data_modes_because=self.data_modes_because,
            automatic_rollback=self.automatic_rollback,
        )
        runs.start_run(self.connection, start, OWNER, self.clock())
        return self.open_segment(self.segment, from_step, cause, **change)

    def open_segment(self, segment, from_step, cause=SegmentCause.ROLLBACK, **change):
        self.segment = segment
        return self.record(SegmentStarted(segment, from_step, cause, 0.0, **change))

    def log(self, step, loss=None, grad_norm=None, overflow=None, scale=None):
        named = {series.LOSS: loss, series.GRAD_NORM: grad_norm, series.OVERFLOW: overflow, series.LOSS_SCALE: scale}
        self.records.append((self.segment, step, {name: value for name, value in named.items() if value is not None}))
        return self

    def record(self, record: Record):
        self.records.append(record)
        return self

    def save(self, step, **change):
        facts = CheckpointSaved(
            f"c{self.segment}-{step}",
            self.segment,
            step,
            0.0,
            CheckpointState.COMPLETE,
            parts=ALL_PARTS,
            nonfinite_weights=0,
            nonfinite_optimizer=0,
        )
        return self.record(replace(facts, **change))

    def report(self, command_id, state, step=None, reason=""):
        return self.record(Report(command_id, CommandState(state), 0.0, step, reason))

    def end(self, reason=EndReason.FINISHED):
        return self.record(RunEnded(reason, 0.0))

    def batch(self, first, last):
        """Records `first` .. `last` as they travel."""
        columns, records = {}, []
        for seq in range(first, last + 1):
            record = self.records[seq - 1]
            if not isinstance(record, tuple):
                records.append(Numbered(seq, record))
                continue
            segment, step, values = record
            for name, value in values.items():
                columns.setdefault((name, segment), []).append((seq, step, 1.7e9 + seq, float(value)))
        made = tuple(Column(name, segment, *map(tuple, zip(*rows, strict=True))) for (name, segment), rows in columns.items())
        return Batch(self.run_id, self.incarnation, self.rank, first, last, 0.0, made, tuple(records))

    def send(self, *cuts):
        """Send what waits, in batches that end at `cuts` and at the end."""
        edges = [self.sent, *[cut for cut in cuts if self.sent < cut < len(self.records)], len(self.records)]
        for before, after in pairwise(edges):
            if after > before:
                self.take(before + 1, after)
        self.sent = len(self.records)
        return self

    def take(self, first, last):
        return ingest.take_batch(self.connection, self.batch(first, last), OWNER, self.clock())


def use_rules(connection, *rules: AlertRule):
    """Rules as a person made them: no newer pack replaces them."""
    rules_store.add_missing(connection, [replace(rule, edited=True) for rule in rules])


def use_default_rules(connection):
    rules_service.ensure_rules(connection, datetime(2026, 3, 1, tzinfo=UTC))


def told(connection, run_id="run", prefix=""):
    """Type and step of what was told of a run, oldest first."""
    events = reversed(events_store.newest(connection, run_id, limit=1000))
    return [(each.event.type.value, each.event.step) for each in events if each.event.type.startswith(prefix)]


def data_of(connection, event_type, run_id="run"):
    events = reversed(events_store.newest(connection, run_id, limit=1000))
    return [each.event.data for each in events if each.event.type == event_type]


def alerts_of(connection, run_id="run"):
    return {each.rule_id: each for each in reversed(alerts_store.read_alerts(connection, run_id))}
