"""Checkpoints: the agent's facts as they came, and the server's verdict."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.checkpoints import Judged
from trainer_agent.wire.codec import from_json, to_json
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from .tables import checkpoints
from .upserts import upsert

_c = checkpoints.c
_TOLD = sa.select(_c.checkpoint_id, _c.state, _c.reason, _c.pinned).where(_c.run_id == sa.bindparam("of_run"))
_AT_MOST = sa.bindparam("at_most", type_=sa.Integer)
_LAST_CHANGED = _TOLD.order_by(_c.changed_at.desc(), _c.step.desc(), _c.checkpoint_id).limit(_AT_MOST)  # asked with every reply
_LAST_PINNED = (  # and this: what was ever pinned, what is pinned now first
    _TOLD.where(_c.pin_changed_at.is_not(None))
    .order_by(_c.pinned.desc(), _c.pin_changed_at.desc(), _c.checkpoint_id)
    .limit(_AT_MOST)
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts and verdict. `changed_at` is when the verdict last changed, `pin_changed_at` when a pin was last set or taken off."""

    run_id: str
    facts: CheckpointSaved
    judged: Judged
    saved_at: datetime
    changed_at: datetime
    pinned: bool = False
    pinned_by: str = ""
    pin_changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent is told of a checkpoint."""

    checkpoint_id: str
    judged: Judged
    pinned: bool


def _checkpoint(row: sa.Row[Any]) -> Checkpoint:
    facts = from_json(CheckpointSaved, json.loads(row.facts))
    judged = Judged(CheckpointState(row.state), row.reason)
    pin = (row.pinned, row.pinned_by, row.pin_changed_at)
    return Checkpoint(row.run_id, facts, judged, row.saved_at, row.changed_at, *pin)


def save_checkpoint(connection: sa.Connection, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, replacing what was known of it."""
    facts = checkpoint.facts
    row = {
        "run_id": checkpoint.run_id,
        "checkpoint_id": facts.checkpoint_id,
        "segment": facts.segment,
        "step": facts.step,
        "state": checkpoint.judged.state.value,
        "reason": checkpoint.judged.reason,
        "facts": json.dumps(to_json(facts), allow_nan=False),
        "saved_at": checkpoint.saved_at,
        "changed_at": checkpoint.changed_at,
        "pinned": checkpoint.pinned,
        "pinned_by": checkpoint.pinned_by,
        "pin_changed_at": checkpoint.pin_changed_at,
    }
    upsert(connection, checkpoints, [row])


def read_checkpoint(connection: sa.Connection, run_id: str, checkpoint_id: str) -> Checkpoint | None:
    """One checkpoint; None when the run has none of that id."""
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id, checkpoints.c.checkpoint_id == checkpoint_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _checkpoint(row)


def read_checkpoints(connection: sa.Connection, run_id: str) -> tuple[Checkpoint, ...]:
    """All checkpoints of a run, deleted ones too, newest first by segment and step."""
    query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id)
    order = (checkpoints.c.segment.desc(), checkpoints.c.step.desc(), checkpoints.c.checkpoint_id)
    return tuple(_checkpoint(row) for row in connection.execute(query.order_by(*order)))


def last_changed(connection: sa.Connection, run_id: str, limit: int) -> tuple[Told, ...]:
    """The checkpoints whose verdicts changed last, the newest first."""
    return _told(connection, _LAST_CHANGED, run_id, limit)


def last_pinned(connection: sa.Connection, run_id: str, limit: int) -> tuple[Told, ...]:
    """The checkpoints that are pinned, then those that no longer are, each by when that changed, the newest first."""
    return _told(connection, _LAST_PINNED, run_id, limit)


def _told(connection: sa.Connection, query: sa.Select[Any], run_id: str, limit: int) -> tuple[Told, ...]:
    rows = connection.execute(query, {"of_run": run_id, "at_most": limit})
    return tuple(Told(row.checkpoint_id, Judged(CheckpointState(row.state), row.reason), row.pinned) for row in rows)
