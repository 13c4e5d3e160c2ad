"""What of a run decides whether something may be done to it: read together, because it must be of one moment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CommandKind, DataMode, Phase, RunState

from .tables import incarnations, runs, segments, series_summaries


@dataclass(frozen=True, slots=True)
class RunStanding:
    """Where a run stands. `step` is the newest the server knows of; `from_steps` is by segment, see `domain/checkpoints`."""

    run_id: str
    state: RunState
    segment: int
    step: int
    incarnation: str
    """The newest life of rank 0, which alone takes commands; empty when there is none."""
    capabilities: frozenset[CommandKind]
    incapable_because: str
    automatic_rollback: bool
    has_step: bool = False
    was_paused: bool = False
    """Whether the last heartbeat said so."""
    data_modes: tuple[DataMode, ...] = ()
    data_modes_because: str = ""
    from_steps: Mapping[int, int] = field(default_factory=dict)
    hold: Mapping[str, Any] | None = None
    """As it is stored: see `domain/holds.py`."""


def read_standing(connection: sa.Connection, run_id: str) -> RunStanding | None:
    """The run as it stands, kept so until the end of the transaction; None when there is no such run.

    What is decided by it must not be overtaken by a batch that another server process takes meanwhile: hence the lock.
    """
    row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id).with_for_update()).one_or_none()
    if row is None:
        return None
    from_steps = read_from_steps(connection, run_id)
    capable = frozenset(CommandKind(kind) for kind in json.loads(row.capabilities))
    return RunStanding(
        run_id=run_id,
        state=RunState(row.state),
        segment=max([row.segment, *from_steps]),
        step=row.step or 0,
        incarnation=_newest_incarnation(connection, run_id),
        capabilities=capable,
        incapable_because=row.incapable_because,
        automatic_rollback=row.automatic_rollback,
        has_step=row.step is not None,
        was_paused=row.phase == Phase.PAUSED,
        data_modes=tuple(DataMode(mode) for mode in json.loads(row.data_modes)),
        data_modes_because=row.data_modes_because,
        from_steps=from_steps,
        hold=None if row.hold is None else json.loads(row.hold),
    )


def _newest_incarnation(connection: sa.Connection, run_id: str) -> str:
    c = incarnations.c
    query = sa.select(c.incarnation).where(c.run_id == run_id, c.rank == 0).order_by(c.started_at.desc(), c.incarnation)
    return connection.execute(query.limit(1)).scalar_one_or_none() or ""


def read_from_steps(connection: sa.Connection, run_id: str) -> dict[int, int]:
    """The step from which each segment started."""
    query = sa.select(segments.c.segment, segments.c.from_step).where(segments.c.run_id == run_id)
    return {row.segment: row.from_step for row in connection.execute(query)}


def has_loss_scaler(connection: sa.Connection, run_id: str) -> bool:
    """Whether the run has ever logged a loss scale: a rollback of it must restore the scaler too."""
    c = series_summaries.c
    query = sa.select(c.series).where(c.run_id == run_id, c.series == series.LOSS_SCALE)
    return connection.execute(query).first() is not None
