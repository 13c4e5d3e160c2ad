"""Points, stored as they come and read as curves.

A batch is first one row with all its series (`point_batches`: the durable tail). When the tail of an incarnation in a segment
holds enough, it is sealed in the same transaction into one row a series (`point_chunks`), together with the last chunks
where those are still small. Sealing only moves points, so whatever reads sees the same before and after.

A point is known by run, segment, rank, series and step. Where it was written more than once, the higher `seq` wins; `seq` is
counted by incarnation, and where two incarnations of a rank wrote into one segment (a rank started again on its own), the one
that was started later wins. A rollback deletes nothing: the points past the step to which a later segment went back are
*superseded*.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from trainer_agent.wire import crash
from trainer_agent.wire.messages import Column

from . import summaries
from .packing import SEQ, STEP, TIME, VALUE, Block, block_of, pack, pack_batch, unpack, unpack_batch
from .segments import lives_of, starts_of
from .tables import point_batches, point_chunks

SEAL_STEPS = 1024
SEAL_ROWS = 128
"""Seal before 1,024 steps when they came in many small batches: a reader opens every row of the tail."""
CHUNK_POINTS = 4096

_b = point_batches.c
_TAIL = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_b.steps), 0)).where(
    *(_b[name] == sa.bindparam(f"of_{name}") for name in ("run_id", "segment", "rank", "incarnation"))
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's points of one segment, all of them superseded or none, in the order of their steps. Arrays of shape (N,)."""

    segment: int
    rank: int
    superseded: bool
    seq: NDArray[np.float64]
    step: NDArray[np.float64]
    time: NDArray[np.float64]
    value: NDArray[np.float64]


Traces = tuple[Trace, ...]


def store_points(connection: sa.Connection, run_id: str, rank: int, incarnation: str, columns: Sequence[Column]) -> None:
    """Keep the points of a batch, or of a part of it."""
    by_segment: dict[int, list[Column]] = {}
    for column in columns:
        by_segment.setdefault(column.segment, []).append(column)
    for segment, parts in sorted(by_segment.items()):
        key = {"run_id": run_id, "segment": segment, "rank": rank, "incarnation": incarnation}
        _append(connection, key, parts)
        crash.reach("server.points_stored")
        summaries.add(connection, run_id, rank, segment, parts)
        _seal_if_full(connection, key)


def _append(connection: sa.Connection, key: dict[str, Any], columns: list[Column]) -> None:
    row = {
        **key,
        "first_seq": min(column.seq[0] for column in columns),
        "last_seq": max(column.seq[-1] for column in columns),
        "steps": max(len(column.seq) for column in columns),
        "body": pack_batch((column.series, block_of(column)) for column in columns),
    }
    connection.execute(sa.insert(point_batches), row)


def _seal_if_full(connection: sa.Connection, key: dict[str, Any]) -> None:
    rows, steps = connection.execute(_TAIL, {f"of_{name}": value for name, value in key.items()}).one()
    if rows >= SEAL_ROWS or steps >= SEAL_STEPS:
        _seal(connection, key)


def seal(connection: sa.Connection, run_id: str, rank: int) -> None:
    """Seal what a rank's tails hold, however little: a segment has ended and grows no more."""
    columns = (point_batches.c.segment, point_batches.c.incarnation)
    query = sa.select(*columns).where(point_batches.c.run_id == run_id, point_batches.c.rank == rank).distinct()
    for segment, incarnation in connection.execute(query).all():
        _seal(connection, {"run_id": run_id, "segment": segment, "rank": rank, "incarnation": incarnation})


def _seal(connection: sa.Connection, key: dict[str, Any]) -> None:
    """Move the tail, and chunks that are still small, into chunks of 1,024 to 4,096 points (fewer only in the newest)."""
    small = (*_is(point_chunks, key), point_chunks.c.count < SEAL_STEPS)
    tail = _is(point_batches, key)
    by_series: dict[str, list[Block]] = {}
    chunks = sa.select(point_chunks.c.series, point_chunks.c.body).where(*small).order_by(point_chunks.c.first_seq)
    for series, body in connection.execute(chunks):
        by_series.setdefault(series, []).append(unpack(body))
    for (body,) in connection.execute(sa.select(point_batches.c.body).where(*tail).order_by(point_batches.c.first_seq)):
        for series, block in unpack_batch(body):
            by_series.setdefault(series, []).append(block)
    connection.execute(sa.delete(point_chunks).where(*small))
    connection.execute(sa.delete(point_batches).where(*tail))
    crash.reach("server.seal_deleted")
    rows = [row for series, blocks in by_series.items() for row in _chunks(key, series, np.concatenate(blocks, axis=1))]
    if rows:
        connection.execute(sa.insert(point_chunks), rows)
    crash.reach("server.sealed")


def _chunks(key: dict[str, Any], series: str, block: Block) -> Iterable[dict[str, Any]]:
    for part in np.array_split(block, -(-block.shape[1] // CHUNK_POINTS), axis=1):
        finite = part[VALUE][np.isfinite(part[VALUE])]
        yield {
            **key,
            "series": series,
            "first_seq": int(part[SEQ, 0]),
            "first_step": int(part[STEP].min()),
            "last_step": int(part[STEP].max()),
            "count": part.shape[1],
            "nonfinite_count": part.shape[1] - finite.size,
            "min": float(finite.min()) if finite.size else None,
            "max": float(finite.max()) if finite.size else None,
            "body": pack(part),
        }


def _is(table: sa.Table, key: dict[str, Any]) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(table.c[name] == value for name, value in key.items())


def read_points(
    connection: sa.Connection,
    run_id: str,
    series: str,
    *,
    rank: int | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
) -> Traces:
    """The curve of a series between two steps (both included), by segment and rank; up to two traces of each.

    What is superseded comes before what is not. Empty when there is no such series.
    """
    lives = lives_of(connection, run_id)
    groups: dict[tuple[int, int], list[tuple[int, Block]]] = {}
    for segment, point_rank, incarnation, block in _read_blocks(
        connection, run_id, series, rank=rank, from_step=from_step, to_step=to_step
    ):
        groups.setdefault((segment, point_rank), []).append((lives.get((point_rank, incarnation), 0), block))
    starts = starts_of(connection, run_id)
    traces: list[Trace] = []
    for (segment, point_rank), parts in sorted(groups.items()):
        block = _between(_resolve(parts), from_step, to_step)
        limit = min((start for later, start in starts if later > segment), default=None)
        traces += _split(segment, point_rank, block, limit)
    return tuple(sorted(traces, key=lambda trace: not trace.superseded))


def _read_blocks(
    connection: sa.Connection, run_id: str, series: str, *, rank: int | None, from_step: int | None, to_step: int | None
) -> Iterable[tuple[int, int, str, Block]]:
    """Segment, rank, incarnation and block of every stored part, in the order of `seq` within an incarnation."""
    c = point_chunks.c
    query = sa.select(c.segment, c.rank, c.incarnation, c.body).where(c.run_id == run_id, c.series == series)
    if rank is not None:
        query = query.where(c.rank == rank)
    if from_step is not None:
        query = query.where(c.last_step >= from_step)
    if to_step is not None:
        query = query.where(c.first_step <= to_step)
    for segment, point_rank, incarnation, body in connection.execute(query.order_by(c.first_seq)):
        yield segment, point_rank, incarnation, unpack(body)
    b = point_batches.c
    tail = sa.select(b.segment, b.rank, b.incarnation, b.body).where(b.run_id == run_id)
    if rank is not None:
        tail = tail.where(b.rank == rank)
    for segment, point_rank, incarnation, body in connection.execute(tail.order_by(b.first_seq)):
        for name, block in unpack_batch(body):
            if name == series:
                yield segment, point_rank, incarnation, block


def _resolve(parts: list[tuple[int, Block]]) -> Block:
    """One block in the order of steps, one point a step: the latest written."""
    block = np.concatenate([part for _, part in parts], axis=1)
    if len(parts) > 1:
        life = np.concatenate([np.full(part.shape[1], place) for place, part in parts])
        block = block[:, np.lexsort((block[SEQ], life))]
    step = block[STEP]
    if (step[1:] > step[:-1]).all():
        return block
    block = block[:, np.argsort(step, kind="stable")]
    last_of_step = np.append(block[STEP, 1:] != block[STEP, :-1], True)
    return block[:, last_of_step]


def _between(block: Block, from_step: int | None, to_step: int | None) -> Block:
    begin = 0 if from_step is None else int(np.searchsorted(block[STEP], from_step, "left"))
    end = block.shape[1] if to_step is None else int(np.searchsorted(block[STEP], to_step, "right"))
    return block[:, begin:end]


def _split(segment: int, rank: int, block: Block, limit: int | None) -> Iterable[Trace]:
    """The part up to `limit`, and the part past it, which is superseded."""
    cut = block.shape[1] if limit is None else int(np.searchsorted(block[STEP], limit, "right"))
    for part, superseded in ((block[:, cut:], True), (block[:, :cut], False)):
        if part.shape[1]:
            yield Trace(segment, rank, superseded, part[SEQ], part[STEP], part[TIME], part[VALUE])
