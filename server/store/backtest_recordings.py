"""What is stored of a run, read whole, for judging it once more and for saying how it came out."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import sqlalchemy as sa

from server.domain.backtest import Recording, SegmentBegun, StoredColumn
from server.domain.backtest_verdicts import Ended
from server.domain.commands import IssuedCommand
from server.domain.events import Event, EventType
from server.domain.runs import ENDED
from trainer_agent.wire import series as names
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason, RunState, SegmentCause

from . import commands as command_store
from . import events as event_store
from .packing import SEQ, STEP, TIME, VALUE, Block, unpack, unpack_batch
from .points import Trace
from .runs import Run
from .segments import lives_of
from .tables import point_batches, point_chunks, segments, series_summaries

_ENDS = (EventType.RUN_FINISHED, EventType.RUN_FAILED, EventType.RUN_STOPPED)
_EARLIER = EventType.RUN_INCARNATION_ENDED
_LIVES = EventType.RUN_LIVES
_BY_GUARD = EndReason.STOPPED_BY_GUARD.value.replace("_", " ")
MOST_EVENTS = 1_000


class TooManyPoints(Exception):  # noqa: N818  named for what happened
    """The run holds more points than are judged at once."""


def read_recording(connection: sa.Connection, run: Run, wanted: Callable[[str], bool], most: int) -> tuple[Recording, Ended]:
    """The points of all series that are `wanted`, and what is known of the run's end.

    Loss and gradient norm are always read: they say how it came out.

    Raises:
        TooManyPoints: there are more than `most`; nothing was read.
    """
    counts = _counts(connection, run.run_id)
    taken = {name for name in counts if name in (names.LOSS, names.GRAD_NORM) or wanted(name)}
    total = sum(counts[name] for name in taken)
    if total > most:
        raise TooManyPoints(f"it holds {total:,} points of the series that are judged; at most {most:,} are judged at once")
    ends = _ends(connection, run.run_id)
    recording = Recording(
        run_id=run.run_id,
        project=run.project,
        columns=_columns(connection, run.run_id, taken),
        segments=_segments(connection, run.run_id),
        ends={event.segment: event.step for event in ends if event.type in _ENDS and event.segment is not None},
        world_size=run.world_size,
        unread=tuple(sorted(counts.keys() - taken)),
    )
    return recording, _ended(connection, run, ends)


def _counts(connection: sa.Connection, run_id: str) -> dict[str, int]:
    query = sa.select(series_summaries.c.series, series_summaries.c.count).where(series_summaries.c.run_id == run_id)
    return {name: count for name, count in connection.execute(query)}  # noqa: C416 -- a Row is a tuple, which types do not say


def _segments(connection: sa.Connection, run_id: str) -> dict[int, SegmentBegun]:
    c = segments.c
    query = sa.select(c.segment, c.from_step, c.cause).where(c.run_id == run_id)
    return {segment: SegmentBegun(from_step, SegmentCause(cause)) for segment, from_step, cause in connection.execute(query)}


def _columns(connection: sa.Connection, run_id: str, taken: set[str]) -> tuple[StoredColumn, ...]:
    lives = lives_of(connection, run_id)
    found: dict[tuple[str, int, int, int], list[Block]] = {}
    for series, segment, rank, incarnation, block in _blocks(connection, run_id, taken):
        found.setdefault((series, segment, rank, lives.get((rank, incarnation), 0)), []).append(block)
    return tuple(_column(*key, parts) for key, parts in found.items())


def _column(series: str, segment: int, rank: int, life: int, parts: list[Block]) -> StoredColumn:
    block = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    seq, step, time, value = (array("d", block[row].astype("=f8", copy=False).tobytes()) for row in (SEQ, STEP, TIME, VALUE))
    return StoredColumn(series, segment, rank, life, seq, step, time, value)


def _blocks(connection: sa.Connection, run_id: str, taken: set[str]) -> list[tuple[str, int, int, str, Block]]:
    """Every stored part of these series, in the order of `seq` within an incarnation."""
    c, b = point_chunks.c, point_batches.c
    sealed = sa.select(c.series, c.segment, c.rank, c.incarnation, c.body).where(c.run_id == run_id, c.series.in_(sorted(taken)))
    tail = sa.select(b.segment, b.rank, b.incarnation, b.body).where(b.run_id == run_id)
    found = [
        (series, segment, rank, incarnation, unpack(body))
        for series, segment, rank, incarnation, body in connection.execute(sealed.order_by(c.first_seq))
    ]
    for segment, rank, incarnation, body in connection.execute(tail.order_by(b.first_seq)):
        found += [(series, segment, rank, incarnation, block) for series, block in unpack_batch(body) if series in taken]
    return found


def _ends(connection: sa.Connection, run_id: str) -> list[Event]:
    """How processes of the run ended, oldest first, without those that turned out to live."""
    told = [stored.event for stored in event_store.newest(connection, run_id, (*_ENDS, _EARLIER, _LIVES), limit=MOST_EVENTS)]
    ends: list[Event] = []
    for event in reversed(told):
        if event.type is _LIVES:
            ends = [each for each in ends if each.data.get("incarnation") != event.data.get("incarnation")]
        else:
            ends.append(event)
    return ends


def _ended(connection: sa.Connection, run: Run, ends: list[Event]) -> Ended:
    guard = next(((event.segment or 1, event.step) for event in ends if _is_guard_stop(event)), None)
    left = next((_left(connection, command) for command in _rolled_back(connection, run.run_id)), None)
    ended = Ended(finished=run.state is RunState.FINISHED, guard_stop=guard, left=left)
    return ended if run.state in ENDED else replace(ended, finished=False)


def _is_guard_stop(event: Event) -> bool:
    said = str(event.data.get("text", "")).lower()
    if event.type is _EARLIER:
        _, _, said = said.partition(": ")
    return event.type in {_EARLIER, EventType.RUN_STOPPED} and said.startswith(_BY_GUARD)


def _rolled_back(connection: sa.Connection, run_id: str) -> list[IssuedCommand]:
    """The rollbacks that people have made, oldest first. One that a rule has made says only that the rule fired."""
    made = [
        command
        for command in command_store.read_commands(connection, run_id)
        if command.kind is CommandKind.ROLLBACK
        and command.state is CommandState.SUCCEEDED
        and not command.issued_by.startswith("rule:")
    ]
    return sorted(made, key=lambda command: command.issued_at)


def _left(connection: sa.Connection, command: IssuedCommand) -> tuple[int, int | None]:
    """The segment that a rollback has left, and how far that had come."""
    c = segments.c
    query = sa.select(c.last_step).where(c.run_id == command.run_id, c.segment == command.segment)
    return command.segment, connection.execute(query).scalar()


def trace_of(steps: Sequence[int], values: Sequence[float]) -> Trace:
    """The points of one series of a log as a curve to draw; of several at one step the last."""
    step, value = np.array(steps, dtype=np.float64), np.array(values, dtype=np.float64)
    last_of_step = np.append(step[1:] != step[:-1], True) if step.size else np.zeros(0, dtype=bool)
    step, value = step[last_of_step], value[last_of_step]
    nothing = np.zeros_like(step)
    return Trace(1, 0, superseded=False, seq=nothing, step=step, time=nothing, value=value)
