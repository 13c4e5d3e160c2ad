"""Commands: made, cancelled, handed out, reported on, expired.

One command of a run is active at a time, which an index sees to; whoever loses a race reads again and decides anew. A person's
command ends a countdown: what a person wants is known then.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from server.domain import checkpoints as checkpoints_domain
from server.domain import commands as domain
from server.domain.commands import IssuedCommand, Refusal, Standing
from server.domain.countdowns import CountdownInput
from server.store import checkpoints as checkpoints_store
from server.store import commands as store
from server.store import countdowns as countdowns_store
from server.store import standing as standings
from server.store.standing import RunStanding
from trainer_agent.wire.codec import to_json
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Report
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode

from . import checkpoints, transitions
from .errors import Conflict, Invalid, NotFound, Refused, Stale
from .recording import record

RULE_PREFIX = "rule:"
"""`issued_by` of a command that no person gave; the rule's id follows."""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """What somebody asks for. `checkpoint_id` None is the proposal; `max_grad_norm` None leaves clipping as it is."""

    run_id: str
    kind: CommandKind
    idempotency_key: str
    issued_by: str
    seen_segment: int | None = None
    reason: str = ""
    checkpoint_id: str | None = None
    data: DataMode = DataMode.SKIP
    max_grad_norm: float | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """The command that now says what was asked for, and whether it was made by this request."""

    command: IssuedCommand
    created: bool


def issue(connection: Connection, new: NewCommand, now: datetime) -> Issued:
    """Make a command, or give the one that already says the same.

    Raises:
        NotFound: no such run.
        Invalid: the idempotency key was used for another request, or clipping is not a number above 0.
        Stale: the run is in another segment than its author saw.
        Refused: it may not be made now; `refusal` says why.
    """
    _check(new)
    for _ in range(2):  # the loser of a race finds the winner's command the second time
        standing = standings.read_standing(connection, new.run_id)
        if standing is None:
            raise NotFound("there is no such run", "open the list of runs")
        if (earlier := _earlier(connection, new)) is not None:
            return Issued(earlier, created=False)
        if (issued := _try(connection, new, standing, now)) is not None:
            return issued
    raise Conflict("another command was given at the same moment", "look at the run as it is now and decide again")


def _check(new: NewCommand) -> None:
    if not new.idempotency_key or len(new.idempotency_key) > 256:
        raise Invalid("the idempotency key is missing or longer than 256 characters", "send a fresh random one")
    limit = new.max_grad_norm
    if limit is not None and not 0 < limit < float("inf"):
        raise Invalid(f"max_grad_norm is {limit}", "give a finite number above 0, or leave it out to keep clipping as it is")


def _earlier(connection: Connection, new: NewCommand) -> IssuedCommand | None:
    known = store.by_key(connection, new.run_id, new.idempotency_key)
    if known is not None and known.request_digest != _digest(new):
        raise Invalid("this idempotency key was used for another request", "use a new key for each new request")
    return known


def _digest(new: NewCommand) -> str:
    """What was asked for, by whom and when left out."""
    asked = to_json(new)
    for name in ("idempotency_key", "issued_by"):
        del asked[name]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _try(connection: Connection, new: NewCommand, standing: RunStanding, now: datetime) -> Issued | None:
    """The command as admitted; None when somebody else was quicker."""
    active = store.active_command(connection, new.run_id)
    where = Standing(standing.state, standing.segment, standing.capabilities, active)
    admission = domain.admit(new.kind, where, new.seen_segment, new.checkpoint_id)
    if admission.refusal is not None:
        raise _refused(admission.refusal, standing, active)
    if admission.same_as is not None:
        return Issued(admission.same_as, created=False)
    rollback = _payload(connection, new, standing) if new.kind is CommandKind.ROLLBACK else None
    if admission.supersedes is not None:
        said = f"replaced by a {new.kind} of {new.issued_by}"
        transitions.move_command(connection, admission.supersedes, CommandState.SUPERSEDED, said, now)
    command = _made(new, standing, rollback, now)
    if not store.add_command(connection, command):
        return None
    record(connection, transitions.command_event(command, new.reason, now))
    if not new.issued_by.startswith(RULE_PREFIX):
        _overtake_countdown(connection, command, now)
    return Issued(command, created=True)


def _refused(refusal: Refusal, standing: RunStanding, active: IssuedCommand | None) -> Refused | Stale:
    if refusal is Refusal.MOVED_ON:
        return Stale(standing.segment)
    if refusal is Refusal.NOT_CAPABLE:
        detail = f"{refusal}: {standing.incapable_because}" if standing.incapable_because else refusal.value
        return Refused(refusal, detail, "do it by hand where the run was started")
    if refusal is Refusal.ALREADY_ACTIVE and active is not None:
        detail = f"a {active.kind} is {active.state} on this run"
        return Refused(refusal, detail, "wait for it, or cancel it while it is not yet running", active.command_id)
    return Refused(refusal, f"{refusal}: it is {standing.state}", "start the run again; it takes up where it was")


def _made(new: NewCommand, standing: RunStanding, rollback: RollbackPayload | None, now: datetime) -> IssuedCommand:
    unique = json.dumps([new.run_id, new.idempotency_key]).encode()
    return IssuedCommand(
        run_id=new.run_id,
        command_id=f"c_{hashlib.sha256(unique).hexdigest()[:24]}",
        kind=new.kind,
        state=CommandState.QUEUED,
        incarnation=standing.incarnation,
        segment=standing.segment,
        reason=new.reason,
        issued_by=new.issued_by,
        rollback=rollback,
        outcome="",
        step=None,
        idempotency_key=new.idempotency_key,
        request_digest=_digest(new),
        issued_at=now,
        updated_at=now,
        deadline_at=domain.deadline(new.kind, CommandState.QUEUED, now),
    )


def _payload(connection: Connection, new: NewCommand, standing: RunStanding) -> RollbackPayload:
    """Where the rollback goes, and the window of data it passes over."""
    proposal = checkpoints.propose(connection, new.run_id)
    if new.checkpoint_id is None:
        target = proposal.choice.target
        if target is None:
            reasons = "; ".join(f"step {each.step}: {why}" for each, why in proposal.choice.passed_over[:3])
            said = f"{Refusal.NO_SOUND_CHECKPOINT}{f' ({reasons})' if reasons else ''}"
            raise Refused(Refusal.NO_SOUND_CHECKPOINT, said, "stop the run, or wait for a checkpoint")
        checkpoint_id, step = target.checkpoint_id, target.step
    else:
        checkpoint_id, step = new.checkpoint_id, _asked_for(connection, new.run_id, new.checkpoint_id, standing.from_steps)
    skips = new.data is DataMode.SKIP
    return RollbackPayload(
        checkpoint_id=checkpoint_id,
        target_step=step,
        new_segment=standing.segment + 1,
        data=new.data,
        skip_from_step=checkpoints_domain.skip_from(step, proposal.first_sign_step) if skips else None,
        max_grad_norm=new.max_grad_norm,
    )


def _asked_for(connection: Connection, run_id: str, checkpoint_id: str, from_steps: Mapping[int, int]) -> int:
    """The step of a checkpoint that a person chose, if it may be gone back to."""
    checkpoint = checkpoints_store.read_checkpoint(connection, run_id, checkpoint_id)
    choose = "choose a sound checkpoint, or leave the choice to the server"
    if checkpoint is None:
        raise Refused(Refusal.UNKNOWN_CHECKPOINT, f"this run has no checkpoint {checkpoint_id[:80]!r}", choose)
    facts, judged = checkpoint.facts, checkpoint.judged
    if judged.state is not CheckpointState.SOUND:
        said = f"checkpoint {checkpoint_id} (step {facts.step}) is {judged.state}: {judged.reason}"
        raise Refused(Refusal.UNSOUND_CHECKPOINT, said, choose)
    if checkpoints_domain.is_superseded(facts.segment, facts.step, from_steps):
        raise Refused(Refusal.SUPERSEDED_CHECKPOINT, fix=choose)
    return facts.step


def _overtake_countdown(connection: Connection, command: IssuedCommand, now: datetime) -> None:
    countdown = countdowns_store.active_countdown(connection, command.run_id)
    if countdown is not None:
        said = f"{command.issued_by} gave the command {command.kind}"
        transitions.end_countdown(connection, countdown, CountdownInput.OVERTAKE, said, now)


def cancel(connection: Connection, run_id: str, command_id: str, by: str, now: datetime) -> IssuedCommand:
    """The command, cancelled. Cancelling it twice is cancelling it once.

    Raises:
        NotFound: the run has no such command.
        Conflict: it is running or has ended.
    """
    command = store.read_command(connection, run_id, command_id)
    if command is None:
        raise NotFound("this run has no such command", "look at the run as it is now")
    cancelled = transitions.move_command(connection, command, CommandState.CANCELLED, f"cancelled by {by}", now)
    if cancelled.state is not CommandState.CANCELLED:
        raise Conflict(f"the command is {cancelled.state} already", "look at the run as it is now")
    return cancelled


def pending_for(connection: Connection, run_id: str, incarnation: str, now: datetime) -> tuple[Command, ...]:
    """What waits to be handed to this incarnation, as it travels: limits are the seconds that remain."""
    return tuple(
        Command(
            command_id=each.command_id,
            kind=each.kind,
            incarnation=each.incarnation,
            segment=each.segment,
            deliver_within_seconds=(each.deadline_at - now).total_seconds(),
            execute_within_seconds=domain.EXECUTE_WITHIN[each.kind].total_seconds(),
            reason=each.reason,
            issued_by=each.issued_by,
            rollback=each.rollback,
        )
        for each in store.queued_for(connection, run_id, incarnation)
        if each.deadline_at is not None and each.deadline_at > now
    )


def take_report(connection: Connection, run_id: str, incarnation: str, report: Report, now: datetime) -> None:
    """Take the agent's word on a command. A word of another incarnation, or said before, changes nothing.

    A word that comes too late for its arrow (the command was cancelled while the agent had it) does not change the state, but
    is added to the outcome: nobody is to read "cancelled" of what was done.
    """
    command = store.read_command(connection, run_id, report.command_id)
    if command is None or command.incarnation != incarnation or report.state not in domain.BY_REPORT:
        return
    if domain.may_follow(command.state, report.state):
        details = {"weights_sha256": report.weights_sha256} if report.weights_sha256 else None
        transitions.move_command(connection, command, report.state, report.reason, now, step=report.step, details=details)
    elif domain.contradicts(command.state, report.state):
        transitions.amend_command(connection, command, domain.too_late(report.state, report.step), now)


def expire_due(connection: Connection, now: datetime) -> int:
    """End the commands whose time is up: not begun is expired, begun is unconfirmed. How many."""
    due = store.overdue_commands(connection, now)
    for command in due:
        following = domain.overdue(command.state)
        transitions.move_command(connection, command, following, domain.why_overdue(command.state), now)
    return len(due)


def leave_behind(connection: Connection, run_id: str, segment: int, own_command_id: str | None, now: datetime) -> None:
    """The run goes on in `segment`: what was meant for an earlier one and has not begun will never be done.

    `own_command_id` is the command that opened the segment. One that is running may still be reported on, but not where a new
    process goes on: the one that began it is dead, and its command would stand in the way until its time is up.
    """
    command = store.active_command(connection, run_id)
    if command is None or command.segment >= segment or command.command_id == own_command_id:
        return
    if command.state in domain.ON_THE_WAY:
        said = f"the run went on in segment {segment} before it was begun"
        transitions.move_command(connection, command, CommandState.EXPIRED, said, now)
    elif _is_orphaned(connection, command):
        said = f"the trainer started again in segment {segment} before it said how it ended"
        transitions.move_command(connection, command, domain.overdue(command.state), said, now)


def _is_orphaned(connection: Connection, command: IssuedCommand) -> bool:
    """Whether a newer life of the run has taken over from the one that the command was given to."""
    standing = standings.read_standing(connection, command.run_id)
    return standing is not None and standing.incarnation != command.incarnation


def end_with_run(connection: Connection, run_id: str, now: datetime) -> None:
    """The run is over: what is not done now will not be done, and what had begun was not reported on."""
    command = store.active_command(connection, run_id)
    if command is not None:
        begun = command.state is CommandState.RUNNING
        said = "the run ended without a word on it" if begun else "the run ended before it was begun"
        transitions.move_command(connection, command, domain.overdue(command.state), said, now)
