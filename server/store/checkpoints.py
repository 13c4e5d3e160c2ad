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
_LAST_CHANGED = (  # asked with every reply
    sa.select(_c.checkpoint_id, _c.state, _c.reason)
    .where(_c.run_id == sa.bindparam("of_run"))
    .order_by(_c.changed_at.desc(), _c.step.desc(), _c.checkpoint_id)
    .limit(sa.bindparam("at_most", type_=sa.Integer))
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts and verdict. `changed_at` is when the verdict last changed."""

    run_id: str
    facts: CheckpointSaved
    judged: Judged
    saved_at: datetime
    changed_at: datetime


def _checkpoint(row: sa.Row[Any]) -> Checkpoint:
    facts = from_json(CheckpointSaved, json.loads(row.facts))
    return Checkpoint(row.run_id, facts, Judged(CheckpointState(row.state), row.reason), row.saved_at, row.changed_at)


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


def last_changed(connection: sa.Connection, run_id: str, limit: int) -> tuple[tuple[str, Judged], ...]:
    """Id and verdict of the checkpoints whose verdicts changed last, the newest first."""
    rows = connection.execute(_LAST_CHANGED, {"of_run": run_id, "at_most": limit})
    return tuple((row.checkpoint_id, Judged(CheckpointState(row.state), row.reason)) for row in rows)
