"""Checkpoints with their verdicts, where a rollback would go, and pinning, as a run's page shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import Connection

from server.domain import admission
from server.domain import checkpoints as domain
from server.services import checkpoints as service
from server.services.checkpoints import Proposal
from server.services.errors import NotFound
from server.store import checkpoints as store
from server.store import standing
from server.store.checkpoints import Checkpoint
from trainer_agent.wire.vocabulary import DataMode

from .deps import Context, In, Out, RunId, Whose
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs/{run_id}/checkpoints", route_class=PeopleRoute, tags=["checkpoints"])

CheckpointId = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^/\x00-\x1f]+$")]


class CheckpointOut(Out):
    """A checkpoint with its verdict."""

    checkpoint_id: str
    segment: int
    step: int
    state: str
    reason: str
    saved_at: datetime
    size_bytes: int
    directory: str
    superseded: bool
    why: str
    """Why a rollback would not go here now; empty of the target."""
    pinned: bool
    pinned_by: str
    pin_changed_at: datetime | None
    parts: list[str]
    world_size: int
    versions: dict[str, str]
    signals: dict[str, float]
    vocabulary: str
    save_seconds: float | None
    nonfinite_weights: int | None
    nonfinite_optimizer: int | None


class PassedOver(Out):
    """A checkpoint newer than the proposed one, and why it is not it."""

    checkpoint_id: str
    step: int
    reason: str


class ProposalOut(Out):
    """Where a rollback would go now."""

    target: str | None
    passed_over: list[PassedOver]
    first_sign_step: int | None
    data: str
    """What is done with the data where nobody says."""


def checkpoint_out(checkpoint: Checkpoint, proposal: Proposal, from_steps: Mapping[int, int]) -> CheckpointOut:
    """A checkpoint as the API shows it."""
    facts = checkpoint.facts
    return CheckpointOut(
        checkpoint_id=facts.checkpoint_id,
        segment=facts.segment,
        step=facts.step,
        state=checkpoint.judged.state.value,
        reason=checkpoint.judged.reason,
        saved_at=checkpoint.saved_at,
        size_bytes=facts.size_bytes,
        directory=facts.directory,
        superseded=domain.is_superseded(facts.segment, facts.step, from_steps),
        why=domain.why_not(service.candidate(checkpoint), proposal.choice, from_steps),
        pinned=checkpoint.pinned,
        pinned_by=checkpoint.pinned_by,
        pin_changed_at=checkpoint.pin_changed_at,
        parts=list(facts.parts),
        world_size=facts.world_size,
        versions=facts.versions,
        signals=facts.signals,
        vocabulary=facts.vocabulary,
        save_seconds=facts.save_seconds,
        nonfinite_weights=facts.nonfinite_weights,
        nonfinite_optimizer=facts.nonfinite_optimizer,
    )


def proposal_out(proposal: Proposal, modes: Sequence[DataMode]) -> ProposalOut:
    """Where a rollback would go now, as the API shows it."""
    target = proposal.choice.target
    passed = [
        PassedOver(checkpoint_id=each.checkpoint_id, step=each.step, reason=reason)
        for each, reason in proposal.choice.passed_over
    ]
    target_id = None if target is None else target.checkpoint_id
    data = admission.default_data(modes, has_sign=proposal.first_sign_step is not None).value
    return ProposalOut(target=target_id, passed_over=passed, first_sign_step=proposal.first_sign_step, data=data)


@router.post("/{checkpoint_id}/pin")
def pin_checkpoint(run_id: RunId, checkpoint_id: CheckpointId, context: In, whose: Whose) -> CheckpointOut:
    """Have the trainer keep it, whatever its own rotation says."""
    now = context.now()
    context.database.writer.submit(lambda c: service.pin(c, run_id, checkpoint_id, whose, now, pinned=True))
    return _shown(context, run_id, checkpoint_id)


@router.post("/{checkpoint_id}/unpin")
def unpin_checkpoint(run_id: RunId, checkpoint_id: CheckpointId, context: In, whose: Whose) -> CheckpointOut:
    """Leave it to the rotation again."""
    now = context.now()
    context.database.writer.submit(lambda c: service.pin(c, run_id, checkpoint_id, whose, now, pinned=False))
    return _shown(context, run_id, checkpoint_id)


def _shown(context: Context, run_id: str, checkpoint_id: str) -> CheckpointOut:
    with context.database.reading() as connection:
        return _read(connection, run_id, checkpoint_id)


def _read(connection: Connection, run_id: str, checkpoint_id: str) -> CheckpointOut:
    checkpoint = store.read_checkpoint(connection, run_id, checkpoint_id)
    if checkpoint is None:
        raise NotFound("this run has no such checkpoint", "look at the run as it is now")
    return checkpoint_out(checkpoint, service.propose(connection, run_id), standing.read_from_steps(connection, run_id))
