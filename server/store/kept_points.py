"""What a segment that goes on at a step has left standing of the points before it: what rules judge again after a rollback."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import sqlalchemy as sa

from server.domain.points import Point

from .packing import SEQ, STEP, TIME, VALUE, Block, unpack, unpack_batch
from .segments import lives_of, starts_of
from .snapshots import Place
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
    after: Place | None = None,
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
        after: only those that came after this place in the stream of `rank`.
    """
    starts = {segment: step for segment, step in starts_of(connection, run_id) if segment < before_segment}
    kept = _Kept(starts, lives_of(connection, run_id), before_segment, up_to_step, after)
    if after is not None:
        return _in_order(kept.of(_blocks(connection, run_id, names, rank, _Wanted(after=after))), limit)
    floors = _floors(connection, run_id, names, rank, 3 * limit)
    parts = kept.of(_blocks(connection, run_id, names, rank, _Wanted(floors)))
    short = {key[0] for key, blocks in parts.items() if sum(block.shape[1] for _, block in blocks) < limit}
    short |= {name for name in names if not any(key[0] == name for key in parts)}
    if again := {name for name in short if floors.get(name, 0) > 0}:  # much of what was read is superseded
        parts |= kept.of(_blocks(connection, run_id, again, rank, _Wanted()))
    return _in_order(parts, limit)


_Stretch = tuple[int, int]
"""What one life has logged of a segment: the segment, and which life of its rank it was, in the order in which they began."""
_Parts = dict[tuple[str, int], list[tuple[_Stretch, Block]]]
"""By series and rank."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a segment that goes on at a step has left standing of earlier ones."""

    starts: Mapping[int, int]
    lives: Mapping[tuple[int, str], int]
    before_segment: int
    up_to_step: int
    after: Place | None = None

    def of(self, blocks: Iterable[tuple[str, int, int, str, Block]]) -> _Parts:
        """The blocks without the points that are not."""
        parts: _Parts = {}
        for name, segment, rank, incarnation, block in blocks:
            if segment < self.before_segment:
                cut = min([self.up_to_step, *(step for later, step in self.starts.items() if later > segment)])
                stretch = segment, self.lives.get((rank, incarnation), 0)
                kept = block[:, (block[STEP] <= cut) & (block[SEQ] > self._known(stretch, rank))]
                if kept.shape[1]:
                    parts.setdefault((name, rank), []).append((stretch, kept))
        return parts

    def _known(self, stretch: "_Stretch", rank: int) -> float:
        """Up to which `seq` the points of a stretch came before `after`, or with it."""
        if self.after is None:
            return -math.inf
        known = self.after.segment, self.lives.get((rank, self.after.incarnation), 0)
        return self.after.seq if stretch == known else math.inf if stretch < known else -math.inf


def _in_order(parts: "_Parts", limit: int) -> tuple[Point, ...]:
    found = [entry for (name, of_rank), blocks in parts.items() for entry in _last_of(name, of_rank, blocks, limit)]
    return tuple(point for _, point in sorted(found, key=_as_judged))


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


def _as_judged(entry: tuple[_Stretch, Point]) -> tuple[int, int, int, int, str]:
    (segment, life), point = entry
    return segment, life, point.rank, point.seq, point.series


def _last_of(name: str, rank: int, blocks: list[tuple[_Stretch, Block]], limit: int) -> Iterable[tuple[_Stretch, Point]]:
    """The last points of one series and rank, each with the stretch that it is of."""
    left = limit
    for stretch, block in sorted(blocks, key=lambda part: (part[0], part[1][SEQ, 0]), reverse=True):
        ordered = block[:, np.argsort(block[SEQ], kind="stable")][:, -left:]
        for seq, step, time, value in zip(*(ordered[row].tolist() for row in (SEQ, STEP, TIME, VALUE)), strict=True):
            yield stretch, Point(name, stretch[0], rank, int(seq), int(step), time, value)
        left -= ordered.shape[1]
        if left <= 0:
            return


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which stored parts are read: those from a step on for each series, or those that may hold points after a place."""

    floors: Mapping[str, int] = field(default_factory=dict)
    after: Place | None = None

    def sealed(self, run_id: str, rank: int | None, name: str) -> tuple[sa.ColumnElement[bool], ...]:
        """Conditions on the sealed parts of a series."""
        c, after = point_chunks.c, self.after
        mine = c.run_id == run_id, c.series == name, *(() if rank is None else (c.rank == rank,))
        if after is None:
            return *mine, c.last_step >= self.floors.get(name, 0)
        follows = c.first_seq >= _reached(run_id, name, rank, after)
        return *mine, c.segment >= after.segment, sa.or_(c.incarnation != after.incarnation, c.segment > after.segment, follows)

    def tail(self, run_id: str, rank: int | None) -> tuple[sa.ColumnElement[bool], ...]:
        """Conditions on the parts that are not sealed yet."""
        b, after = point_batches.c, self.after
        mine = b.run_id == run_id, *(() if rank is None else (b.rank == rank,))
        return mine if after is None else (*mine, b.segment >= after.segment)


def _blocks(
    connection: sa.Connection, run_id: str, names: Collection[str], rank: int | None, wanted: _Wanted
) -> Iterable[tuple[str, int, int, str, Block]]:
    """Series, segment, rank, incarnation and block of stored parts of several series."""
    c, b = point_chunks.c, point_batches.c
    sealed = sa.select(c.series, c.segment, c.rank, c.incarnation, c.body)
    tail = sa.select(b.segment, b.rank, b.incarnation, b.body).where(*wanted.tail(run_id, rank))
    for one in names:
        for name, segment, of_rank, incarnation, body in connection.execute(sealed.where(*wanted.sealed(run_id, rank, one))):
            yield name, segment, of_rank, incarnation, unpack(body)
    for segment, of_rank, incarnation, body in connection.execute(tail):
        for name, block in unpack_batch(body):
            if name in names:
                yield name, segment, of_rank, incarnation, block


def _reached(run_id: str, name: str, rank: int | None, after: Place) -> sa.ColumnElement[int]:
    """Where the part begins in which a place lies; 0 where it lies in none."""
    e = point_chunks.alias().c
    mine = (e.run_id == run_id, e.series == name, e.rank == rank, e.segment == after.segment, e.incarnation == after.incarnation)
    begun = sa.select(sa.func.max(e.first_seq)).where(*mine, e.first_seq <= after.seq)
    return sa.func.coalesce(begun.scalar_subquery(), 0)
