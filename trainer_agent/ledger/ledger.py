"""The batch ledger of this rank: which samples and documents went into each optimizer step, and the step's own numbers.

    begin_step, saw, step_ended, numbers, segment_begins -> queue -> [thread] -> rows -> blocks -> files, StepSamples
                                                                              rows -> resume check -> ResumeChecked

The training thread appends to a queue. The numbers of a step may come later than its samples (a GPU gives them late), so a row is
written when it has both, or when so many later steps have ended that nothing more is to be expected.

A block is closed when it is full, when it is `BLOCK_SECONDS` old, and where a segment ends. Limits: `MOST_WAITING_SAMPLES` ids
wait for the thread, beyond which steps are kept without ids, and that is said; files: see `files`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from trainer_agent.data.carried import Ids
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.guest.voice import Voice
from trainer_agent.wire import series
from trainer_agent.wire.messages import Record, ResumeChecked, SegmentStarted, StepSamples
from trainer_agent.wire.samples import HIGHEST_SAMPLE, MOST_ROWS, MOST_SAMPLES, StepRow, blocks, encode, to_text
from trainer_agent.wire.vocabulary import SegmentCause

from .files import LedgerReader, LedgerWriter, folder_of
from .resume_check import STEPS, ResumeWatch, resumed, stored_curve

BLOCK_SECONDS = 4.0
POLL_SECONDS = 0.25
LATE_STEPS = 32
"""So many steps later no more numbers of a step are waited for."""
MOST_WAITING_SAMPLES = 1_000_000
CLOSE_SECONDS = 3.0


class _Step(NamedTuple):
    step: int
    batches: tuple[Ids | None, ...]
    factor: float | None


class _Numbers(NamedTuple):
    step: int
    values: Mapping[str, float]


class _Segment(NamedTuple):
    started: SegmentStarted
    vocabulary: tuple[str, str]
    is_checked: bool


_Input = _Step | _Numbers | _Segment


class Ledger:
    """Thread: training, all but `_run`. Nothing here raises into the training or waits for the disk, but for `close`."""

    def __init__(
        self,
        directory: Path,
        run_id: str,
        rank: int,
        record: Callable[[Record], None],
        excluded: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        """`excluded`: the samples that are left out by now; asked by the thread, where a resume is checked."""
        self._queue: deque[_Input] = deque()
        self._now: list[Ids | None] = []
        self._seen = 0
        self._book = _Book(folder_of(directory, run_id, rank), rank, record, excluded)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread that writes."""
        self._thread = threading.Thread(target=self._run, name="lossguard-ledger", daemon=True)
        self._thread.start()

    def begin_step(self) -> None:
        """Forgets what an unfinished step has seen."""
        if self._now:
            self._now = []

    def saw(self, ids: Ids | None) -> None:
        """A micro-batch of the step under way; None where its samples are not known."""
        self._now.append(ids)

    def step_ended(self, step: int, factor: float | None = None) -> None:
        """The micro-batches seen since the last one were the step's. `factor`: on the learning rate."""
        batches, self._now = tuple(self._now), []
        self._seen += sum(len(ids.samples) for ids in batches if ids is not None)
        if self._seen - self._book.taken > MOST_WAITING_SAMPLES:
            batches = (None,)
        self._queue.append(_Step(step, batches, factor))

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """What the probes have read of a step, by series name."""
        self._queue.append(_Numbers(step, values))

    def segment_begins(self, started: SegmentStarted, vocabulary: tuple[str, str] = ("", ""), *, is_checked: bool = True) -> None:
        """The steps from here on are of this segment.

        Args:
            started: it.
            vocabulary: what token ids mean, at the save of the checkpoint and now; empty where that is not known.
            is_checked: whether a resume is checked here; one rank is enough.
        """
        self._queue.append(_Segment(started, vocabulary, is_checked and started.cause is not SegmentCause.START))

    def close(self) -> None:
        """Everything is written and given to the sender, within limits."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            is_last = self._closing.wait(POLL_SECONDS)
            try:
                while self._queue:
                    self._book.take(self._queue.popleft())
                self._book.tend(time.monotonic(), is_last=is_last)
            except Exception as error:
                let_pass(error)
                self._book.forget()
                Voice().once(
                    "ledger", f"{type(error).__name__}: {error}; an error of LossGuard, samples of some steps are not kept"
                )
            if is_last and not self._queue:
                return


class _Book:
    """The rows under way. Thread: the ledger's."""

    def __init__(
        self, folder: Path, rank: int, record: Callable[[Record], None], excluded: Callable[[], frozenset[int]] = frozenset
    ) -> None:
        self._folder, self._rank, self._record, self._excluded = folder, rank, record, excluded
        self._writer = LedgerWriter(folder)
        self._voice = Voice()
        self._segment: SegmentStarted | None = None
        self._open: dict[int, StepRow] = {}
        self._complete: set[int] = set()
        self._rows: list[StepRow] = []
        self._samples, self._since, self._last = 0, 0.0, -1
        self._watch: ResumeWatch | None = None
        self.taken = 0
        """How many sample ids have come through."""

    def forget(self) -> None:
        """After an error: what is under way is given up."""
        self._open, self._complete, self._rows, self._samples = {}, set(), [], 0

    def take(self, given: _Input) -> None:
        """One input, in its order."""
        match given:
            case _Step():
                self._step(given)
            case _Numbers():
                self._numbers(given)
            case _Segment():
                self._begin(given)

    def tend(self, now: float, *, is_last: bool) -> None:
        """Closes a block that is old enough; at the end everything."""
        if is_last:
            self._flush()
            self._checked()
        elif self._rows and now - self._since > BLOCK_SECONDS:
            self._write()

    def _step(self, given: _Step) -> None:
        row = _row(given)
        self.taken += len(row.samples or ())
        if given.batches == (None,) and self.taken:
            self._voice.once("ledger full", "the ledger cannot keep up: some steps are recorded without their samples")
        known = self._open.get(given.step)
        if known is not None:
            row = replace(known, samples=row.samples, documents=row.documents, learning_rate_factor=row.learning_rate_factor)
            self._complete.add(given.step)
        self._open[given.step] = row
        self._let_go(given.step - LATE_STEPS)

    def _numbers(self, given: _Numbers) -> None:
        if given.step <= self._last:  # it was not waited for any longer
            return
        row = self._open.get(given.step)
        if row is not None:
            self._complete.add(given.step)
        values = given.values
        self._open[given.step] = replace(
            row or StepRow(given.step),
            loss=values.get(series.LOSS),
            learning_rate=values.get(series.LEARNING_RATE),
            loss_scale=values.get(series.LOSS_SCALE),
            overflowed=bool(values.get(series.OVERFLOW)),
        )
        self._let_go(given.step - LATE_STEPS)

    def _let_go(self, too_old: int) -> None:
        """Rows go on in the order of their steps, once they are complete."""
        while self._open:
            step = min(self._open) if len(self._open) > 1 else next(iter(self._open))
            if step not in self._complete and step > too_old:
                return
            self._complete.discard(step)
            self._last = step
            self._add(self._open.pop(step))

    def _add(self, row: StepRow) -> None:
        if not self._rows:
            self._since = time.monotonic()
        self._rows.append(row)
        self._samples += len(row.samples or row.documents or ())
        if self._watch is not None and self._watch.take(row):
            self._checked()
        if self._samples >= MOST_SAMPLES or len(self._rows) >= MOST_ROWS:
            self._write()

    def _begin(self, given: _Segment) -> None:
        self._flush()
        self._checked()
        self._segment = given.started
        self._writer.begin(given.started)
        self._last = given.started.from_step
        if given.is_checked:
            reader = LedgerReader(self._folder)
            known = resumed(reader.heads, given.started, given.vocabulary, self._excluded())
            self._watch = ResumeWatch(known, stored_curve(reader, given.started))

    def _flush(self) -> None:
        under_way, self._open, self._complete = self._open, {}, set()
        for step in sorted(under_way):
            self._add(under_way[step])
        self._write()

    def _write(self) -> None:
        rows, self._rows, self._samples = self._rows, [], 0
        if not rows:
            return
        if self._segment is None:  # the first steps may end before it is known what their segment is
            self._segment = SegmentStarted(1, 0, SegmentCause.START, time.time())
            self._writer.begin(self._segment)
        for stretch in blocks(rows):
            block, first, last = encode(stretch), stretch[0].step, stretch[-1].step
            try:
                self._writer.append(block, first, last)
            except OSError as error:
                self._voice.once("ledger disk", f"samples of steps cannot be kept in {self._folder} ({error.strerror})")
            if any(row.samples or row.documents for row in stretch):
                self._record(StepSamples(self._segment.segment, first, last, time.time(), to_text(block)))

    def _checked(self) -> None:
        """Tells what the check has found, once."""
        watch, self._watch = self._watch, None
        if watch is None or not watch.steps or self._segment is None:
            return
        findings = watch.findings()
        at, count = self._segment, min(watch.steps, STEPS)
        self._record(ResumeChecked(at.segment, at.from_step, count, time.time(), findings))
        if findings:
            said = "; ".join(findings)
            self._voice.once(f"resume {at.segment}", f"resumed at step {at.from_step}, and not as it was: {said}")


def _row(given: _Step) -> StepRow:
    """The samples of a step: those of its batches in their order, but for batches without weight."""
    weighing = [ids for ids in given.batches if ids is None or ids.weighs]
    if not weighing or None in weighing:
        return StepRow(given.step, learning_rate_factor=given.factor)
    known = [ids for ids in weighing if ids is not None]
    samples: tuple[int, ...] | None = tuple(number for ids in known for number in ids.samples)
    documents = None
    if all(ids.documents is not None for ids in known):
        documents = tuple(name for ids in known for name in ids.documents or ())
    if not samples or not all(0 <= number <= HIGHEST_SAMPLE for number in samples):
        samples = None
    if samples is not None and documents is not None and len(samples) != len(documents):
        documents = None
    return StepRow(given.step, samples, documents, learning_rate_factor=given.factor)
