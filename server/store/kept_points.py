"""What a segment that goes on at a step has left standing of the points before it: what rules judge again after a rollback."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from server.domain.points import Point

from .packing import SEQ, STEP, TIME, VALUE, Block, unpack, unpack_batch
from .segments import lives_of, starts_of
from .tables import point_batches, point_chunks


def kept_points(
    connection: sa.Connection,
    run_id: str,
    names: Collection[str],
    *,
    rank: int | None,
    before_segment: int,
    up_to_step: int,
    limit: int,
) -> tuple[Point, ...]:
    """The points of several series that segment `before_segment`, which goes on at `up_to_step`, has left standing.

    They come as they were judged: by segment, life and `seq`, and those of one `seq` by series. Of each series and rank only the
    last `limit`. Only points of earlier segments count, so the answer is the same whatever of the new one is stored already.
    Unlike a curve it holds all that was logged at a step.

    Args:
        connection: of the unit of work.
        run_id: the run.
        names: the series.
        rank: whose points; None for those of all ranks.
        before_segment: the segment that goes on.
        up_to_step: from where.
        limit: of points a series and rank.
    """
    starts = {segment: step for segment, step in starts_of(connection, run_id) if segment < before_segment}
    kept = _Kept(starts, lives_of(connection, run_id), before_segment, up_to_step)
    floors = _floors(connection, run_id, names, rank, 3 * limit)
    parts = kept.of(_blocks(connection, run_id, names, rank, floors))
    short = {key[0] for key, blocks in parts.items() if sum(block.shape[1] for _, block in blocks) < limit}
    short |= {name for name in names if not any(key[0] == name for key in parts)}
    if again := {name for name in short if floors.get(name, 0) > 0}:  # much of what was read is superseded
        parts |= kept.of(_blocks(connection, run_id, again, rank, {}))
    found = [entry for (name, of_rank), blocks in parts.items() for entry in _last_of(name, of_rank, blocks, limit)]
    return tuple(point for _, point in sorted(found, key=_by_place))


_Place = tuple[int, int]
"""Segment, and which life of its rank in the order in which they began."""
_Parts = dict[tuple[str, int], list[tuple[_Place, Block]]]
"""By series and rank."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a segment that goes on at a step has left standing of earlier ones."""

    starts: Mapping[int, int]
    lives: Mapping[tuple[int, str], int]
    before_segment: int
    up_to_step: int

    def of(self, blocks: Iterable[tuple[str, int, int, str, Block]]) -> _Parts:
        """The blocks without the points that are not."""
        parts: _Parts = {}
        for name, segment, rank, incarnation, block in blocks:
            if segment < self.before_segment:
                cut = min([self.up_to_step, *(step for later, step in self.starts.items() if later > segment)])
                kept = block[:, block[STEP] <= cut]
                if kept.shape[1]:
                    parts.setdefault((name, rank), []).append(((segment, self.lives.get((rank, incarnation), 0)), kept))
        return parts


def _floors(connection: sa.Connection, run_id: str, names: Collection[str], rank: int | None, wanted: int) -> dict[str, int]:
    """For each series a step such that the sealed parts that reach it hold so many points of each rank, or all of them."""
    c = point_chunks.c
    query = sa.select(c.series, c.rank, c.last_step, c.count).where(c.run_id == run_id, c.series.in_(list(names)))
    if rank is not None:
        query = query.where(c.rank == rank)
    held: dict[tuple[str, int], int] = {}
    floors: dict[str, int] = {}
    for name, of_rank, last_step, count in connection.execute(query.order_by(c.last_step.desc())):
        if held.get((name, of_rank), 0) < wanted:
            floors[name] = last_step
        held[name, of_rank] = held.get((name, of_rank), 0) + count
    return floors


def _by_place(entry: tuple[_Place, Point]) -> tuple[int, int, int, int, str]:
    (segment, life), point = entry
    return segment, life, point.rank, point.seq, point.series


def _last_of(name: str, rank: int, blocks: list[tuple[_Place, Block]], limit: int) -> Iterable[tuple[_Place, Point]]:
    """The last points of one series and rank, each with its segment and life."""
    left = limit
    for place, block in sorted(blocks, key=lambda part: (part[0], part[1][SEQ, 0]), reverse=True):
        ordered = block[:, np.argsort(block[SEQ], kind="stable")][:, -left:]
        for seq, step, time, value in zip(*(ordered[row].tolist() for row in (SEQ, STEP, TIME, VALUE)), strict=True):
            yield place, Point(name, place[0], rank, int(seq), int(step), time, value)
        left -= ordered.shape[1]
        if left <= 0:
            return


def _blocks(
    connection: sa.Connection, run_id: str, names: Collection[str], rank: int | None, floors: Mapping[str, int]
) -> Iterable[tuple[str, int, int, str, Block]]:
    """Series, segment, rank, incarnation and block of the stored parts of several series, from a step on for each."""
    c, b = point_chunks.c, point_batches.c
    sealed = sa.select(c.series, c.segment, c.rank, c.incarnation, c.body).where(c.run_id == run_id)
    tail = sa.select(b.segment, b.rank, b.incarnation, b.body).where(b.run_id == run_id)
    if rank is not None:
        sealed, tail = sealed.where(c.rank == rank), tail.where(b.rank == rank)
    for one in names:
        mine = sealed.where(c.series == one, c.last_step >= floors.get(one, 0))
        for name, segment, of_rank, incarnation, body in connection.execute(mine):
            yield name, segment, of_rank, incarnation, unpack(body)
    for segment, of_rank, incarnation, body in connection.execute(tail):
        for name, block in unpack_batch(body):
            if name in names:
                yield name, segment, of_rank, incarnation, block
