"""Points, and how a batch is read: what is new in it, and in which order.

A point is known by run, segment, series, rank and step; of several, the higher `seq` wins.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from server.domain.values import frozen
from trainer_agent.wire.messages import Batch, Column, Dropped, Numbered


@frozen
class Point:
    """One value of one series. `value` may be non-finite; it is never part of a key. `time` is the agent's, for display."""

    series: str
    segment: int
    rank: int
    seq: int
    step: int
    time: float
    value: float


def agent_time(told: float, now: datetime) -> datetime:
    """Seconds of the agent's clock as a time to show; `now` where that clock cannot be right."""
    try:
        time = datetime.fromtimestamp(told, UTC)
    except (ValueError, OverflowError, OSError):  # not finite, or out of any calendar
        return now
    return min(time, now) if time.year >= 2000 else now


def trim(batch: Batch, next_seq: int) -> Batch | None:
    """What of `batch` is numbered `next_seq` or above; None when all of it is known already."""
    if batch.last_seq < next_seq:
        return None
    if batch.first_seq >= next_seq:
        return batch
    columns = (_cut(column, bisect_left(column.seq, next_seq)) for column in batch.columns)
    records = (_cut_record(numbered, next_seq) for numbered in batch.records)
    return replace(
        batch,
        first_seq=next_seq,
        columns=tuple(column for column in columns if column.seq),
        records=tuple(numbered for numbered in records if numbered is not None),
    )


def _cut(column: Column, begin: int, end: int | None = None) -> Column:
    part = slice(begin, end)
    return replace(column, seq=column.seq[part], step=column.step[part], time=column.time[part], value=column.value[part])


def _cut_record(numbered: Numbered, next_seq: int) -> Numbered | None:
    if numbered.seq >= next_seq:
        return numbered
    record = numbered.record
    if isinstance(record, Dropped) and numbered.seq + record.count > next_seq:
        return Numbered(next_seq, replace(record, count=numbered.seq + record.count - next_seq))
    return None


def in_order(batch: Batch) -> Iterator[tuple[Column, ...] | Numbered]:
    """The batch as it happened: stretches of points, and the records between them."""
    begin = batch.first_seq
    for numbered in sorted(batch.records, key=lambda each: each.seq):
        end = numbered.seq + 1
        yield from _stretch(batch.columns, begin, end)
        yield numbered
        begin = max(begin, end)
    yield from _stretch(batch.columns, begin, batch.last_seq + 1)


def _stretch(columns: tuple[Column, ...], begin: int, end: int) -> Iterator[tuple[Column, ...]]:
    """The points numbered `begin` .. `end` - 1, if there are any."""
    cut = (_cut(each, bisect_left(each.seq, begin), bisect_left(each.seq, end)) for each in columns)
    stretch = tuple(column for column in cut if column.seq)
    if stretch:
        yield stretch


def points_of(columns: Sequence[Column], rank: int) -> tuple[Point, ...]:
    """The points of a stretch, oldest first.

    Those of one `seq` come in the order of their series' names, whatever the order of the columns, so that the same points are
    judged in the same order however they were cut.
    """
    points = [point for column in columns for point in _points(column, rank)]
    return tuple(sorted(points, key=lambda point: (point.seq, point.series)))


def _points(column: Column, rank: int) -> Iterator[Point]:
    for seq, step, time, value in zip(column.seq, column.step, column.time, column.value, strict=True):
        yield Point(column.series, column.segment, rank, seq, step, time, value)
