"""A made-up training: it logs, is rolled back, started again, ends. Sent through the real ingest, stretch by stretch."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors.base import DetectorKind
from server.domain.rules import AlertRule
from server.services import ingest, runs
from trainer_agent.wire import series
from trainer_agent.wire.messages import Batch, Column, Numbered, RunEnded, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause, Severity

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = (
    series.LOSS,
    series.GRAD_NORM,
    series.LOSS_SCALE,
    series.OVERFLOW,
    series.LEARNING_RATE,
    series.STEP_SECONDS,
    "eval/loss",
)
HEALTHY = {
    series.LOSS: 2.0,
    series.GRAD_NORM: 1.0,
    series.LOSS_SCALE: 65536.0,
    series.OVERFLOW: 0.0,
    series.LEARNING_RATE: 1e-4,
    series.STEP_SECONDS: 0.5,
    "eval/loss": 2.5,
}
ODD = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0, 50.0, 1e30)
FINISHED, BY_GUARD = EndReason.FINISHED, EndReason.STOPPED_BY_GUARD


def rule(rule_id, detector, name=series.LOSS, settings=None, **change):
    return AlertRule(rule_id, rule_id, rule_id, name, DetectorKind(detector), settings or {}, **change)


QUICK_RULES = (
    rule("above-10", "threshold", settings={"above": 10.0}, for_points=2, keep_firing_for_points=3),
    rule("any-not-finite", "nonfinite", "train/*", keep_firing_for_points=1, severity=Severity.CRITICAL),
    rule("two-rises", "consecutive_rise", series.GRAD_NORM, {"rises": 2}, keep_firing_for_points=0),
    rule("short-spike", "spike", series.GRAD_NORM, {"times": 2.0, "spreads": 1.0}, for_points=3),
    rule("skips", "skip_streak", series.OVERFLOW, {"streak": 2}),
    rule("eval", "threshold", "eval/loss", {"below": 1.0}, for_points=1, keep_firing_for_points=50),
)
"""Small enough that random numbers set them off, end them and leave them pending."""
ALL_RULES = (*DEFAULT_RULES, *QUICK_RULES)


@dataclass
class Life:
    """One process of a rank, and what it has sent so far."""

    incarnation: str
    rank: int
    next_seq: int = 1


@dataclass
class Training:
    """All ranks of a run in step with each other."""

    connection: object
    run_id: str = "r"
    ranks: int = 2
    segment: int = 0
    lives: list = field(default_factory=list)
    started: int = 0

    def start(self, from_step=0):
        """A process of each rank starts, and with it a segment."""
        self.started += 1
        self.segment += 1
        cause = SegmentCause.RESTART if self.started > 1 else SegmentCause.START
        self.lives = [Life(f"life-{self.started}-{rank}", rank) for rank in range(self.ranks)]
        for life in self.lives:
            start = RunStart(self.run_id, life.incarnation, "project", "name", rank=life.rank, world_size=self.ranks)
            runs.start_run(self.connection, start, "token", NOW)
            self._send(life, [SegmentStarted(self.segment, from_step, cause, 0.0)])

    def roll_back(self, from_step):
        self.segment += 1
        for life in self.lives:
            self._send(life, [SegmentStarted(self.segment, from_step, SegmentCause.ROLLBACK, 0.0, parent=self.segment - 1)])

    def log(self, rows):
        """`rows`: for each rank a list of (step, {series: value})."""
        for life, mine in zip(self.lives, rows, strict=True):
            if mine:
                self._send(life, mine)

    def end(self, reason=FINISHED, detail=""):
        self._send(self.lives[0], [RunEnded(reason, 0.0, detail=detail)])

    def _send(self, life, entries):
        columns, records, first = {}, [], life.next_seq
        for entry in entries:
            if isinstance(entry, tuple):
                for name, value in entry[1].items():
                    columns.setdefault(name, []).append((life.next_seq, entry[0], float(life.next_seq), float(value)))
            else:
                records.append(Numbered(life.next_seq, entry))
            life.next_seq += 1
        made = [Column(name, self.segment, *(tuple(each) for each in zip(*rows, strict=True))) for name, rows in columns.items()]
        last = life.next_seq - 1
        batch = Batch(self.run_id, life.incarnation, life.rank, first, last, 0.0, tuple(made), tuple(records))
        ingest.take_batch(self.connection, batch, "token", NOW)


def train_at_random(training, random):
    """Stretches of logging with odd values in them, between rollbacks, restarts and ends."""
    training.start()
    step, trouble, has_ended = 0, random.random() * 0.5, False
    for _ in range(random.randint(1, 6)):
        event = random.random()
        if has_ended or event < 0.15:
            step = random.randint(max(0, step - 20), step)
            training.start(from_step=step)
            has_ended = False
        elif event < 0.5 and step > 1:
            step = random.randrange(step)
            training.roll_back(step)
        elif event < 0.6:
            training.end(random.choice(list(EndReason)))
            has_ended = True
            continue
        length = random.choice((3, 12, 40))
        rows = [[_logged(random, step + 1 + at, trouble) for at in range(length)] for _ in range(training.ranks)]
        step += length
        training.log(rows)
    if not has_ended and random.random() < 0.5:
        training.end(random.choice(list(EndReason)))
    return training


def _logged(random, step, trouble):
    names = random.sample(NAMES, random.randint(1, len(NAMES)))
    return step, {
        name: random.choice(ODD) if random.random() < trouble else HEALTHY[name] * (1 + random.random() / 10) for name in names
    }


def until(what, seconds=180.0, every=0.02):
    """What `what` gives as soon as that is something; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"not within {seconds} s")
