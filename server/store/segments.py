"""Segments: the stretches of a run between starts and rollbacks."""

import json
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from trainer_agent.wire.codec import to_json
from trainer_agent.wire.messages import Scalar, SegmentStarted
from trainer_agent.wire.vocabulary import SegmentCause

from .tables import incarnations, segments

_c = segments.c
_REACHED = (
    sa.update(segments)
    .where(_c.run_id == sa.bindparam("of_run"), _c.segment == sa.bindparam("of_segment"))
    .where(sa.or_(_c.last_step.is_(None), _c.last_step < sa.bindparam("step", type_=sa.BigInteger)))
    .values(last_step=sa.bindparam("step", type_=sa.BigInteger))
)


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps from `from_step` on, exclusive. `last_step` is of the points of rank 0, None as long as there are none."""

    run_id: str
    segment: int
    incarnation: str
    from_step: int
    cause: SegmentCause
    parent: int | None
    command_id: str | None
    checkpoint_id: str | None
    attributes: dict[str, Scalar]
    last_step: int | None
    started_at: datetime


def read_segments(connection: sa.Connection, run_id: str) -> list[Segment]:
    """All segments of a run, in the order of their numbers."""
    rows = connection.execute(sa.select(segments).where(segments.c.run_id == run_id).order_by(segments.c.segment))
    return [_segment(row) for row in rows.mappings()]


def get(connection: sa.Connection, run_id: str, segment: int) -> Segment | None:
    """One segment, or None."""
    query = sa.select(segments).where(segments.c.run_id == run_id, segments.c.segment == segment)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _segment(row)


def insert(connection: sa.Connection, run_id: str, incarnation: str, started: SegmentStarted, now: datetime) -> None:
    """Write a segment down as the agent announced it."""
    row = {
        "run_id": run_id,
        "segment": started.segment,
        "incarnation": incarnation,
        "from_step": started.from_step,
        "cause": started.cause.value,
        "parent": started.parent,
        "command_id": started.command_id,
        "checkpoint_id": started.checkpoint_id,
        "attributes": json.dumps(to_json(started.attributes), allow_nan=False),
        "started_at": now,
    }
    connection.execute(sa.insert(segments), row)


def last_rollback(connection: sa.Connection, run_id: str, up_to: int) -> int | None:
    """The newest segment up to one that a rollback has begun; None where none has."""
    mine = (_c.run_id == run_id, _c.segment <= up_to, _c.cause == SegmentCause.ROLLBACK.value)
    newest: int | None = connection.execute(sa.select(sa.func.max(_c.segment)).where(*mine)).scalar()
    return newest


def take_over(connection: sa.Connection, run_id: str, segment: int, incarnation: str, now: datetime) -> None:
    """A later process goes on with a segment that an earlier one had opened and not got to use."""
    mine = (_c.run_id == run_id, _c.segment == segment)
    connection.execute(sa.update(segments).where(*mine).values(incarnation=incarnation, started_at=now))


def reach(connection: sa.Connection, run_id: str, segment: int, step: int) -> None:
    """The segment has a point at `step`."""
    connection.execute(_REACHED, {"of_run": run_id, "of_segment": segment, "step": step})


def left_by(connection: sa.Connection, run_id: str, incarnation: str, rank: int) -> int | None:
    """The segment that the run was in when an earlier incarnation of a rank ended; None for one of the newest start.

    All ranks start together, each once: so the n-th incarnation of a rank was there with the n-th one of rank 0.
    """
    of_rank, of_leader = _incarnations_of(connection, run_id, rank), _incarnations_of(connection, run_id, 0)
    number = of_rank.index(incarnation) if incarnation in of_rank else len(of_leader)
    if number + 1 >= len(of_leader):
        return None
    last = sa.select(sa.func.max(_c.segment)).where(_c.run_id == run_id, _c.incarnation == of_leader[number])
    return connection.execute(last).scalar() or 1


def _incarnations_of(connection: sa.Connection, run_id: str, rank: int) -> list[str]:
    """The incarnations of a rank, in the order in which they started."""
    i = incarnations.c
    query = sa.select(i.incarnation).where(i.run_id == run_id, i.rank == rank).order_by(i.started_at)
    return list(connection.execute(query).scalars())


def _segment(row: sa.RowMapping) -> Segment:
    values = dict(row)
    values["cause"] = SegmentCause(row["cause"])
    values["attributes"] = json.loads(row["attributes"])
    return Segment(**values)


def starts_of(connection: sa.Connection, run_id: str) -> list[tuple[int, int]]:
    """Of each segment of a run its number and the step that it goes on from."""
    query = sa.select(segments.c.segment, segments.c.from_step).where(segments.c.run_id == run_id)
    return [(segment, from_step) for segment, from_step in connection.execute(query)]


def lives_of(connection: sa.Connection, run_id: str) -> dict[tuple[int, str], int]:
    """By rank and incarnation: which life of the run it is, from 1, in the order in which they began."""
    i = incarnations.c
    query = sa.select(i.rank, i.incarnation).where(i.run_id == run_id).order_by(i.started_at, i.incarnation)
    return {(rank, incarnation): place for place, (rank, incarnation) in enumerate(connection.execute(query), 1)}
