"""Runs, and the incarnations that speak for them."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from server.domain.detectors.base import DetectorKind
from server.domain.runs import ENDED, RunStatus
from trainer_agent.wire.codec import to_json
from trainer_agent.wire.messages import Scalar
from trainer_agent.wire.vocabulary import CommandKind, DataMode, Phase, RunState

from .tables import alerts, incarnations, runs

_JSON = frozenset({"capabilities", "data_modes", "attributes", "latest", "save_failure", "pace", "hold"})
_LIVE = (RunState.RUNNING.value, RunState.PAUSED.value)

# Made once: these are run with every batch, and building a statement costs more than running it.
_ONE = sa.select(runs).where(runs.c.run_id == sa.bindparam("of_run"))
_LOCK, _LOCK_FREE = _ONE.with_for_update(), _ONE.with_for_update(skip_locked=True)
_SET = sa.update(runs).where(runs.c.run_id == sa.bindparam("of_run"))
_i = incarnations.c
_mine = (
    _i.run_id == sa.bindparam("of_run"),
    _i.incarnation == sa.bindparam("of_incarnation"),
    _i.rank == sa.bindparam("of_rank"),
)
_INCARNATION = sa.select(incarnations).where(*_mine)
_SET_INCARNATION = sa.update(incarnations).where(*_mine)
_NEWEST_INCARNATION = (
    sa.select(_i.incarnation).where(_i.run_id == sa.bindparam("of_run"), _i.rank == 0).order_by(_i.started_at.desc()).limit(1)
)


@dataclass(frozen=True, slots=True)
class Run:
    """One training job under watch, as it stands."""

    run_id: str
    owner_token_id: str
    project: str
    name: str
    state: RunState
    state_reason: str
    deadline_at: datetime | None
    phase: Phase | None
    step: int | None
    total_steps: int | None
    segment: int
    world_size: int
    host: str
    integration: str
    capabilities: tuple[CommandKind, ...]
    incapable_because: str
    data_modes: tuple[DataMode, ...]
    data_modes_because: str
    automatic_rollback: bool
    attributes: dict[str, Scalar]
    """Numbers that are not finite are strings here."""
    latest: dict[str, dict[str, Any]]
    """Series to `{"value", "step"}` of the last heartbeat, values as strict JSON carries them. Shown, never judged."""
    dropped_records: int
    save_failure: dict[str, Any] | None
    """Segment, step, time and reason of the last save that failed; None once a later one has succeeded."""
    created_at: datetime
    heard_at: datetime
    stepped_at: datetime | None
    """When the newest step came, by the server's clock."""
    phase_since: datetime | None
    pace: dict[str, Any] | None
    """What the limit for a stall follows from."""
    look_at: datetime | None
    """When the worker looks at it again."""
    hold: dict[str, Any] | None
    """Who has said that nothing is done automatically, until when and why; None where nobody has."""
    ended_at: datetime | None
    revision: int

    @property
    def status(self) -> RunStatus:
        """What the machine of `domain/runs.py` works on."""
        return RunStatus(self.state, self.deadline_at)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of one trainer process."""

    run_id: str
    incarnation: str
    rank: int
    next_seq: int
    host: str
    pid: int
    started_at: datetime
    heard_at: datetime
    made_seq: int = 0
    """The last record that it is known to have made; what is stored may be behind."""


def get(connection: sa.Connection, run_id: str) -> Run | None:
    """The run, or None."""
    row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).mappings().one_or_none()
    return None if row is None else _run(row)


def lock(connection: sa.Connection, run_id: str, *, wait: bool = True) -> Run | None:
    """The run, kept from every other writer until the end of the transaction, or None.

    Without `wait` also None where another server process is busy with the run.
    """
    row = connection.execute(_LOCK if wait else _LOCK_FREE, {"of_run": run_id}).mappings().one_or_none()
    return None if row is None else _run(row)


def lock_live(connection: sa.Connection) -> dict[str, int]:
    """Keep every run that may still be judged from all other writers until the end of the transaction. The step of each."""
    ended = [state.value for state in ENDED]
    live = sa.select(runs.c.run_id, runs.c.step).where(runs.c.state.not_in(ended)).order_by(runs.c.run_id)
    return {row.run_id: row.step or 0 for row in connection.execute(live.with_for_update())}


def list_all(connection: sa.Connection) -> list[Run]:
    """Every run: those that are running first, then by when they were heard of, the newest first."""
    asleep = sa.case((runs.c.state.in_(_LIVE), 0), else_=1)
    rows = connection.execute(sa.select(runs).order_by(asleep, runs.c.heard_at.desc(), runs.c.run_id))
    return [_run(row) for row in rows.mappings()]


def names(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, str]:
    """What each run is called."""
    rows = connection.execute(sa.select(runs.c.run_id, runs.c.name).where(runs.c.run_id.in_(list(run_ids))))
    return {run_id: name for run_id, name in rows}  # noqa: C416 -- a Row is a tuple, which the types do not say


def projects(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, str]:
    """The project of each run."""
    rows = connection.execute(sa.select(runs.c.run_id, runs.c.project).where(runs.c.run_id.in_(list(run_ids))))
    return {run_id: project for run_id, project in rows}  # noqa: C416 -- a Row is a tuple, which the types do not say


def overdue(connection: sa.Connection, now: datetime) -> list[Run]:
    """Live runs past their deadline, locked. Those that another server process is busy with are left to it."""
    query = sa.select(runs).where(runs.c.deadline_at < now, runs.c.state.in_(_LIVE))
    rows = connection.execute(query.order_by(runs.c.deadline_at).with_for_update(skip_locked=True))
    return [_run(row) for row in rows.mappings()]


def renew_deadlines(connection: sa.Connection, deadline_at: datetime) -> None:
    """Give every live run at least until `deadline_at`."""
    early = (runs.c.deadline_at < deadline_at, runs.c.state.in_(_LIVE))
    connection.execute(sa.update(runs).where(*early).values(deadline_at=deadline_at))


def watch_afresh(connection: sa.Connection, now: datetime) -> None:
    """Have the time count from `now` in which a live run may go without a step; not of one that is told to be stalled."""
    told = sa.select(alerts.c.run_id).where(alerts.c.detector == DetectorKind.STALLED.value, alerts.c.resolved_at.is_(None))
    mine = (runs.c.state.in_(_LIVE), runs.c.run_id.not_in(told))
    connection.execute(sa.update(runs).where(*mine).values(phase_since=now, look_at=now))


def due_for_a_look(connection: sa.Connection, now: datetime, limit: int = 100) -> list[Run]:
    """Live runs to look at, locked. Those that another server process is busy with are left to it."""
    query = sa.select(runs).where(runs.c.look_at <= now, runs.c.state.in_(_LIVE)).order_by(runs.c.look_at).limit(limit)
    return [_run(row) for row in connection.execute(query.with_for_update(skip_locked=True)).mappings()]


def revisions(connection: sa.Connection) -> dict[str, int]:
    """The revision of every run."""
    rows = connection.execute(sa.select(runs.c.run_id, runs.c.revision))
    return {run_id: revision for run_id, revision in rows}  # noqa: C416 -- a Row is a tuple, which the types do not say


def insert(connection: sa.Connection, run_id: str, values: dict[str, Any]) -> bool:
    """Add a run. False when somebody else added one of this id meanwhile."""
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(runs), {"run_id": run_id, **_stored(values)})
    except sa.exc.IntegrityError:
        return False
    return True


def update(connection: sa.Connection, run_id: str, values: dict[str, Any]) -> None:
    """Change columns of a run."""
    connection.execute(_SET, {"of_run": run_id, **_stored(values)})


def get_incarnation(connection: sa.Connection, run_id: str, incarnation: str, rank: int) -> Incarnation | None:
    """The incarnation of that rank, or None."""
    which = {"of_run": run_id, "of_incarnation": incarnation, "of_rank": rank}
    row = connection.execute(_INCARNATION, which).mappings().one_or_none()
    return None if row is None else Incarnation(**row)


def newest_incarnation(connection: sa.Connection, run_id: str) -> str | None:
    """The one that speaks for the run: of rank 0, started last."""
    return connection.execute(_NEWEST_INCARNATION, {"of_run": run_id}).scalar()


def newest_lives(connection: sa.Connection, run_id: str, rank: int | None = None) -> tuple[Incarnation, ...]:
    """The life of each rank of the run that began last; or of one rank."""
    query = sa.select(incarnations).where(_i.run_id == run_id).order_by(_i.started_at)
    rows = connection.execute(query if rank is None else query.where(_i.rank == rank)).mappings()
    return tuple({row["rank"]: Incarnation(**row) for row in rows}.values())


def is_newer(connection: sa.Connection, run_id: str, incarnation: str, than: str) -> bool:
    """Whether a life of rank 0 began after another."""
    mine = (_i.run_id == run_id, _i.rank == 0, _i.incarnation.in_([incarnation, than]))
    query = sa.select(_i.incarnation, _i.started_at).where(*mine)
    began = {row.incarnation: row.started_at for row in connection.execute(query)}
    return len(began) == 2 and began[incarnation] > began[than]


def add_incarnation(connection: sa.Connection, life: Incarnation) -> None:
    """Add an incarnation, as the newest of its run: it starts after every other, if only by a microsecond."""
    last = sa.select(sa.func.max(incarnations.c.started_at)).where(incarnations.c.run_id == life.run_id)
    newest: datetime | None = connection.execute(last).scalar()
    started_at = life.started_at if newest is None else max(life.started_at, newest + timedelta(microseconds=1))
    row = {name: getattr(life, name) for name in Incarnation.__slots__}
    connection.execute(sa.insert(incarnations), {**row, "started_at": started_at})


def update_incarnation(connection: sa.Connection, life: Incarnation, *, next_seq: int, heard_at: datetime, made_seq: int) -> None:
    """Remember the record that is expected next, the last one that was made, and when the incarnation last spoke."""
    which = {"of_run": life.run_id, "of_incarnation": life.incarnation, "of_rank": life.rank}
    connection.execute(_SET_INCARNATION, {**which, "next_seq": next_seq, "heard_at": heard_at, "made_seq": made_seq})


def _stored(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_text(value) if name in _JSON and value is not None else value for name, value in values.items()}


def _as_text(value: object) -> str:
    return json.dumps(to_json(value), allow_nan=False)


def _run(row: sa.RowMapping) -> Run:
    values = dict(row)
    values["state"] = RunState(row["state"])
    values["phase"] = None if row["phase"] is None else Phase(row["phase"])
    values["capabilities"] = tuple(CommandKind(kind) for kind in json.loads(row["capabilities"]))
    values["data_modes"] = tuple(DataMode(mode) for mode in json.loads(row["data_modes"]))
    for name in ("attributes", "latest", "save_failure", "pace", "hold"):
        values[name] = None if row[name] is None else json.loads(row[name])
    return Run(**values)
