"""Where a rollback goes, and what is different afterwards: the payload of its command."""

from collections.abc import Mapping
from dataclasses import replace

from sqlalchemy import Connection

from server.domain import admission
from server.domain import checkpoints as domain
from server.domain.admission import Refusal, Request
from server.store import checkpoints as store
from server.store.standing import RunStanding
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CheckpointState, DataMode

from . import checkpoints
from .checkpoints import Proposal
from .errors import Refused

_CHOOSE = "choose a sound checkpoint, or leave the choice to the server"


def payload(connection: Connection, request: Request, standing: RunStanding) -> RollbackPayload:
    """What of a rollback travels.

    Raises:
        Refused: the run cannot do that with its data, or there is no such target.
    """
    proposal = checkpoints.propose(connection, standing.run_id)
    data = data_mode(request, standing, has_sign=proposal.first_sign_step is not None)
    made = RollbackPayload(
        checkpoint_id="",
        target_step=0,
        new_segment=standing.segment + 1,
        data=data,
        exclude_samples=request.exclude_samples,
        exclude_documents=request.exclude_documents,
        max_grad_norm=request.max_grad_norm,
        learning_rate_factor=request.learning_rate_factor,
        first_sign_step=proposal.first_sign_step,
    )
    checkpoint_id, step = _target(connection, request, standing, proposal)
    skips = data is DataMode.SKIP
    window = domain.skip_from(step, proposal.first_sign_step) if skips else None
    return replace(made, checkpoint_id=checkpoint_id, target_step=step, skip_from_step=window)


def data_mode(request: Request, standing: RunStanding, *, has_sign: bool) -> DataMode:
    """What is done with the data: as asked, or what fits and the run can do. `has_sign`: of open trouble.

    Raises:
        Refused: the run cannot do what is asked.
    """
    names_samples = bool(request.exclude_samples or request.exclude_documents)
    data = request.data or admission.default_data(standing.data_modes, has_sign=has_sign, names_samples=names_samples)
    if data in standing.data_modes:
        return data
    because = f" ({standing.data_modes_because})" if standing.data_modes_because else ""
    said = f"{Refusal.CANNOT_DATA}: {data}{because}"
    can = ", ".join(standing.data_modes) or "nothing"
    raise Refused(Refusal.CANNOT_DATA, said, f"choose what it can do: {can}")


def _target(connection: Connection, request: Request, standing: RunStanding, proposal: Proposal) -> tuple[str, int]:
    """Id and step of the checkpoint asked for, or of the proposal."""
    if request.checkpoint_id is not None:
        step = _asked_for(connection, standing.run_id, request.checkpoint_id, standing.from_steps)
        return request.checkpoint_id, step
    target = proposal.choice.target
    if target is None:
        reasons = "; ".join(f"step {each.step}: {why}" for each, why in proposal.choice.passed_over[:3])
        said = f"{Refusal.NO_SOUND_CHECKPOINT}{f' ({reasons})' if reasons else ''}"
        raise Refused(Refusal.NO_SOUND_CHECKPOINT, said, "stop the run, or wait for a checkpoint")
    return target.checkpoint_id, target.step


def _asked_for(connection: Connection, run_id: str, checkpoint_id: str, from_steps: Mapping[int, int]) -> int:
    """The step of a checkpoint that a person chose, if it may be gone back to."""
    checkpoint = store.read_checkpoint(connection, run_id, checkpoint_id)
    if checkpoint is None:
        raise Refused(Refusal.UNKNOWN_CHECKPOINT, f"this run has no checkpoint {checkpoint_id[:80]!r}", _CHOOSE)
    facts, judged = checkpoint.facts, checkpoint.judged
    if judged.state is not CheckpointState.SOUND:
        said = f"checkpoint {checkpoint_id} (step {facts.step}) is {judged.state}: {judged.reason}"
        raise Refused(Refusal.UNSOUND_CHECKPOINT, said, _CHOOSE)
    if domain.is_superseded(facts.segment, facts.step, from_steps):
        raise Refused(Refusal.SUPERSEDED_CHECKPOINT, fix=_CHOOSE)
    return facts.step
