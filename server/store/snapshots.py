"""Where all rules of a rank stood at some place of a run, kept now and then: a rewind need not judge the run from its start.

The word is that of event sourcing; what a training saves is a checkpoint.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from .packing import STEP, unpack_batch
from .rules import StoredState, read_states
from .segments import lives_of, starts_of
from .tables import point_batches, point_chunks, rule_snapshots
from .upserts import upsert

KEPT = 16
"""How many of each rank. A rewind that goes back further judges from the start."""
_NEVER = 2**62
_s = rule_snapshots.c


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the stream of one rank: all points of its segment and life up to `seq`, and all before them."""

    segment: int
    incarnation: str
    seq: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where the rules stood at a place; `body` is as it is stored."""

    place: Place
    body: bytes

    def states(self) -> tuple[StoredState, ...]:
        """The states. What an earlier version of the server has stored may raise anything."""
        return tuple(StoredState(**each) for each in json.loads(zlib.decompress(self.body)))


def keep(connection: sa.Connection, run_id: str, rank: int, place: Place) -> None:
    """Keep where the rules of a rank stand now, at `place`: of the newest segment, or of one that the rank has not left yet.

    Left out are rules on a series without a point in the segment yet: they were told already that it begins, and would be again.
    """
    starts = dict(starts_of(connection, run_id))
    if place.segment not in starts or _has_given_up(connection, run_id, rank):  # nobody has said yet where it goes on from
        return
    tops = _tops(connection, run_id, rank, place.segment)
    states = read_states(connection, run_id, rank)
    waiting = {each.rule_id for each in states if each.series not in tops}
    told = [asdict(each) for each in states if each.rule_id not in waiting]
    row = {
        "run_id": run_id,
        "rank": rank,
        **_row_of(place),
        "top_step": max([starts[place.segment], *tops.values()]),
        "body": zlib.compress(json.dumps(told, allow_nan=False, separators=(",", ":")).encode()),
    }
    upsert(connection, rule_snapshots, [row])
    older = _newest_first(connection, run_id, rank)[KEPT:]
    _remove(connection, run_id, rank, (place for place, _ in older))


def newest(connection: sa.Connection, run_id: str, rank: int, before_segment: int, up_to_step: int) -> Snapshot | None:
    """The newest place whose points all count for segment `before_segment`, which goes on at `up_to_step`; None without one."""
    starts = dict(starts_of(connection, run_id))
    for place, top_step in _newest_first(connection, run_id, rank):
        if place.segment < before_segment and top_step <= _cut(starts, place.segment, before_segment, up_to_step):
            return Snapshot(place, connection.execute(sa.select(_s.body).where(*_at(run_id, rank, place))).scalar_one())
    return None


def give_up(connection: sa.Connection, run_id: str, rank: int, place: Place, newest_segment: int) -> None:
    """Points have come, at `place`, of which the rules know nothing: they stand in a later segment, or the run has ended.

    So what was kept behind them is of no use, nor would be what is kept from now on until a rewind has counted them. A row whose
    points no segment can count says so.
    """
    behind = sa.or_(_s.segment > place.segment, sa.and_(_s.segment == place.segment, _s.incarnation != place.incarnation))
    connection.execute(sa.delete(rule_snapshots).where(_s.run_id == run_id, _s.rank == rank, behind))
    row = {**_row_of(Place(newest_segment, place.incarnation, 0)), "top_step": _NEVER, "body": b""}
    upsert(connection, rule_snapshots, [{"run_id": run_id, "rank": rank, **row}])


def forget_rewound(connection: sa.Connection, run_id: str, rank: int, before_segment: int, up_to_step: int) -> None:
    """Remove those with points that segment `before_segment`, which goes on at `up_to_step`, has left behind."""
    mine = (_s.run_id == run_id, _s.rank == rank, _s.segment < before_segment, _s.top_step > up_to_step)
    connection.execute(sa.delete(rule_snapshots).where(*mine))


def _row_of(place: Place) -> dict[str, object]:
    return {"segment": place.segment, "incarnation": place.incarnation, "seq": place.seq}


def _has_given_up(connection: sa.Connection, run_id: str, rank: int) -> bool:
    query = sa.select(_s.seq).where(_s.run_id == run_id, _s.rank == rank, _s.top_step == _NEVER)
    return connection.execute(query).first() is not None


def _cut(starts: Mapping[int, int], segment: int, before_segment: int, up_to_step: int) -> int:
    """Up to which step the points of a segment count."""
    return min([up_to_step, *(step for later, step in starts.items() if segment < later < before_segment)])


def _newest_first(connection: sa.Connection, run_id: str, rank: int) -> list[tuple[Place, int]]:
    """Places and the greatest step before each."""
    lives = lives_of(connection, run_id)
    query = sa.select(_s.segment, _s.incarnation, _s.seq, _s.top_step).where(_s.run_id == run_id, _s.rank == rank)
    rows = connection.execute(query).all()
    rows = sorted(rows, key=lambda row: (row.segment, lives.get((rank, row.incarnation), 0), row.seq), reverse=True)
    return [(Place(row.segment, row.incarnation, row.seq), row.top_step) for row in rows]


def _remove(connection: sa.Connection, run_id: str, rank: int, places: Iterable[Place]) -> None:
    for place in places:
        connection.execute(sa.delete(rule_snapshots).where(*_at(run_id, rank, place)))


def _at(run_id: str, rank: int, place: Place) -> tuple[sa.ColumnElement[bool], ...]:
    of_place = (_s.segment == place.segment, _s.incarnation == place.incarnation, _s.seq == place.seq)
    return _s.run_id == run_id, _s.rank == rank, *of_place


def _tops(connection: sa.Connection, run_id: str, rank: int, segment: int) -> dict[str, int]:
    """By series: the greatest step of the points of a rank in a segment."""
    c, b = point_chunks.c, point_batches.c
    sealed = sa.select(c.series, sa.func.max(c.last_step)).where(c.run_id == run_id, c.segment == segment, c.rank == rank)
    tops = {name: int(step) for name, step in connection.execute(sealed.group_by(c.series))}
    tail = sa.select(b.body).where(b.run_id == run_id, b.segment == segment, b.rank == rank)
    for body in connection.execute(tail).scalars():
        for name, block in unpack_batch(body):
            tops[name] = max(tops.get(name, 0), int(block[STEP].max()))
    return tops
