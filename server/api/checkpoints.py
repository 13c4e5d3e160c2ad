"""Checkpoints with their verdicts, and where a rollback would go, as a run's page shows them."""

from collections.abc import Mapping
from datetime import datetime

from server.domain import checkpoints as domain
from server.services.checkpoints import Proposal
from server.store.checkpoints import Checkpoint

from .deps import Out


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


def checkpoint_out(checkpoint: Checkpoint, from_steps: Mapping[int, int]) -> CheckpointOut:
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
    )


def proposal_out(proposal: Proposal) -> ProposalOut:
    """Where a rollback would go now, as the API shows it."""
    target = proposal.choice.target
    passed = [
        PassedOver(checkpoint_id=each.checkpoint_id, step=each.step, reason=reason)
        for each, reason in proposal.choice.passed_over
    ]
    target_id = None if target is None else target.checkpoint_id
    return ProposalOut(target=target_id, passed_over=passed, first_sign_step=proposal.first_sign_step)
