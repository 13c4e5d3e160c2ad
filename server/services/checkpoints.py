"""Checkpoints: taking the agent's facts, judging them, judging them again when more comes to light, and pinning them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import checkpoints as domain
from server.domain.alerts import Alert
from server.domain.checkpoints import Candidate, Choice, Judged
from server.domain.commands import Hand
from server.domain.events import Event, EventType
from server.domain.points import agent_time
from server.domain.wording.clauses import clause
from server.domain.wording.event_words import told
from server.domain.wording.words import by_language
from server.store import alerts as alerts_store
from server.store import checkpoints as store
from server.store import standing
from server.store.checkpoints import Checkpoint
from trainer_agent.wire.messages import CheckpointSaved, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, Severity

from .errors import Conflict, NotFound
from .recording import record

VERDICTS_IN_A_REPLY = 20
PINS_IN_A_REPLY = 120
MOST_PINNED = 100
"""Fewer than are told with each reply, so that what was unpinned lately is told too."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where a rollback would go now, why not to something newer, and the onset of the earliest open trouble (None: none)."""

    choice: Choice
    first_sign_step: int | None


def take(connection: Connection, run_id: str, facts: CheckpointSaved, now: datetime) -> None:
    """Keep what the agent says of a checkpoint, and judge it by what is known now. The same facts again change nothing.

    The first word on why one is gone stands: a process that goes on finds it missing, and does not know any more who removed it.
    """
    known = store.read_checkpoint(connection, run_id, facts.checkpoint_id)
    if known is not None and (known.facts == facts or _are_gone(known.facts, facts)):
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
    if again and known.pinned:  # what was pinned is gone
        taken = _pinned(connection, taken, Hand("trainer"), now, pinned=False, why="its name was used for another checkpoint")
    if known.judged == judged:
        store.save_checkpoint(connection, taken)
    else:
        _save(connection, replace(taken, judged=judged, changed_at=now), known.judged, now)


def _are_gone(before: CheckpointSaved, now: CheckpointSaved) -> bool:
    is_same = (before.segment, before.step) == (now.segment, now.step)
    return is_same and before.state is now.state is CheckpointState.DELETED


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
    data: dict[str, Any] = {
        "checkpoint_id": facts.checkpoint_id,
        "state": judged.state,
        "before": None if before is None else before.state,
    }
    reason = clause(judged.reason)
    if judged.state is CheckpointState.CORRUPT:
        told_of = told(EventType.CHECKPOINT_CHANGED, {"reason": reason}, step=facts.step, reason=reason)
        data |= {"severity": Severity.CRITICAL, **told_of}
    else:
        data |= by_language(reason=reason)
    record(connection, Event(EventType.CHECKPOINT_CHANGED, now, checkpoint.run_id, facts.step, facts.segment, data))


def verdicts(connection: Connection, run_id: str) -> tuple[Verdict, ...]:
    """The verdicts that changed last, and all pins, for the agent to go by when the server is away."""
    told = store.last_changed(connection, run_id, VERDICTS_IN_A_REPLY)
    known = {each.checkpoint_id for each in told}
    pins = store.last_pinned(connection, run_id, PINS_IN_A_REPLY)
    both = (*told, *(each for each in pins if each.checkpoint_id not in known))
    return tuple(Verdict(each.checkpoint_id, each.judged.state, each.judged.reason, each.pinned) for each in both)


def pin(connection: Connection, run_id: str, checkpoint_id: str, by: Hand, now: datetime, *, pinned: bool) -> Checkpoint:
    """The checkpoint, pinned or no longer. Saying it again changes nothing.

    Raises:
        NotFound: the run has no such checkpoint.
        Conflict: there is nothing left of it to keep, or too many are pinned.
    """
    standing.read_standing(connection, run_id)  # locks the run: the agent may be telling that it is gone
    known = store.read_checkpoint(connection, run_id, checkpoint_id)
    if known is None:
        raise NotFound("this run has no such checkpoint", "look at the run as it is now")
    if known.pinned == pinned:
        return known
    if pinned:
        _check_can_be_pinned(connection, known)
    changed = _pinned(connection, known, by, now, pinned=pinned)
    store.save_checkpoint(connection, changed)
    return changed


def _check_can_be_pinned(connection: Connection, checkpoint: Checkpoint) -> None:
    if checkpoint.judged.state is CheckpointState.DELETED:
        raise Conflict("the checkpoint is deleted already", "pin another one")
    held = sum(each.pinned for each in store.last_pinned(connection, checkpoint.run_id, MOST_PINNED))
    if held >= MOST_PINNED:
        raise Conflict(f"{MOST_PINNED} checkpoints of this run are pinned already", "unpin one first")


def _pinned(
    connection: Connection, checkpoint: Checkpoint, by: Hand, now: datetime, *, pinned: bool, why: str = ""
) -> Checkpoint:
    """The checkpoint as it is to be saved. That it was pinned or unpinned is told."""
    facts = checkpoint.facts
    what = EventType.CHECKPOINT_PINNED if pinned else EventType.CHECKPOINT_UNPINNED
    text = f"Checkpoint of step {facts.step} {'pinned' if pinned else 'unpinned'} by {by.name}" + (f": {why}" if why else "")
    data = {"checkpoint_id": facts.checkpoint_id, "by": by.name, "place": by.place, "reason": why, "text": text}
    record(connection, Event(what, now, checkpoint.run_id, facts.step, facts.segment, data))
    return replace(checkpoint, pinned=pinned, pinned_by=by.name if pinned else "", pin_changed_at=now)


def propose(connection: Connection, run_id: str) -> Proposal:
    """Where a rollback would go now. Reads only."""
    from_steps = standing.read_from_steps(connection, run_id)
    open_alerts = alerts_store.open_alerts(connection, run_id)
    return proposal(store.read_checkpoints(connection, run_id), open_alerts, from_steps)


def proposal(checkpoints: Iterable[Checkpoint], open_alerts: Iterable[Alert], from_steps: dict[int, int]) -> Proposal:
    """The same out of what has been read already."""
    sign = domain.first_sign(open_alerts)
    return Proposal(domain.choose_target(map(candidate, checkpoints), sign, from_steps), sign)


def candidate(checkpoint: Checkpoint) -> Candidate:
    """A checkpoint as the choice of a target sees it."""
    facts = checkpoint.facts
    return Candidate(facts.checkpoint_id, facts.segment, facts.step, checkpoint.judged)
