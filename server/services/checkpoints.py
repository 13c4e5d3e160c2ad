"""Checkpoints: taking the agent's facts, judging them, judging them again when more comes to light."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import checkpoints as domain
from server.domain.alerts import Alert
from server.domain.checkpoints import Candidate, Choice, Judged
from server.domain.events import Event, EventType
from server.domain.points import agent_time
from server.store import alerts as alerts_store
from server.store import checkpoints as store
from server.store import standing
from server.store.checkpoints import Checkpoint
from trainer_agent.wire.messages import CheckpointSaved, Verdict

from .recording import record

VERDICTS_IN_A_REPLY = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where a rollback would go now, why not to something newer, and the onset of the earliest open trouble (None: none)."""

    choice: Choice
    first_sign_step: int | None


def take(connection: Connection, run_id: str, facts: CheckpointSaved, now: datetime) -> None:
    """Keep what the agent says of a checkpoint, and judge it by what is known now. The same facts again change nothing."""
    known = store.read_checkpoint(connection, run_id, facts.checkpoint_id)
    if known is not None and known.facts == facts:
        return
    from_steps = standing.read_from_steps(connection, run_id)
    sign = domain.sign_against(facts.segment, facts.step, alerts_store.signs(connection, run_id), from_steps)
    judged = domain.judge(facts, sign, needs_scaler=standing.has_loss_scaler(connection, run_id))
    saved_at = agent_time(facts.time, now)  # a checkpoint told of late, by an agent that was cut off, was not saved late
    if known is None:
        _save(connection, Checkpoint(run_id, facts, judged, saved_at, now), None, now)
        return
    again = (known.facts.segment, known.facts.step) != (facts.segment, facts.step)  # the name was used anew
    taken = replace(known, facts=facts, saved_at=saved_at if again else known.saved_at)
    if known.judged == judged:
        store.save_checkpoint(connection, taken)
    else:
        _save(connection, replace(taken, judged=judged, changed_at=now), known.judged, now)


def rejudge(connection: Connection, run_id: str, now: datetime) -> None:
    """Lower the verdicts that no longer stand, after an onset has come to light. None is ever raised."""
    fit = [each for each in store.read_checkpoints(connection, run_id) if each.judged.state in domain.FIT]
    if not fit:
        return
    signs, from_steps = alerts_store.signs(connection, run_id), standing.read_from_steps(connection, run_id)
    needs_scaler = standing.has_loss_scaler(connection, run_id)
    for checkpoint in fit:
        facts = checkpoint.facts
        sign = domain.sign_against(facts.segment, facts.step, signs, from_steps)
        judged = domain.worsened(checkpoint.judged, facts, sign, needs_scaler=needs_scaler)
        if judged != checkpoint.judged:
            _save(connection, replace(checkpoint, judged=judged, changed_at=now), checkpoint.judged, now)


def _save(connection: Connection, checkpoint: Checkpoint, before: Judged | None, now: datetime) -> None:
    store.save_checkpoint(connection, checkpoint)
    facts, judged = checkpoint.facts, checkpoint.judged
    data = {
        "checkpoint_id": facts.checkpoint_id,
        "state": judged.state,
        "before": None if before is None else before.state,
        "reason": judged.reason,
    }
    record(connection, Event(EventType.CHECKPOINT_CHANGED, now, checkpoint.run_id, facts.step, facts.segment, data))


def verdicts(connection: Connection, run_id: str) -> tuple[Verdict, ...]:
    """The verdicts that changed last, for the agent to go by when the server is away."""
    changed = store.last_changed(connection, run_id, VERDICTS_IN_A_REPLY)
    return tuple(Verdict(checkpoint_id, judged.state, judged.reason) for checkpoint_id, judged in changed)


def propose(connection: Connection, run_id: str) -> Proposal:
    """Where a rollback would go now. Reads only."""
    from_steps = standing.read_from_steps(connection, run_id)
    open_alerts = alerts_store.open_alerts(connection, run_id)
    return proposal(store.read_checkpoints(connection, run_id), open_alerts, from_steps)


def proposal(checkpoints: Iterable[Checkpoint], open_alerts: Iterable[Alert], from_steps: dict[int, int]) -> Proposal:
    """The same out of what has been read already."""
    sign = domain.first_sign(open_alerts)
    candidates = [Candidate(each.facts.checkpoint_id, each.facts.segment, each.facts.step, each.judged) for each in checkpoints]
    return Proposal(domain.choose_target(candidates, sign, from_steps), sign)
