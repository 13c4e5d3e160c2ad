"""The life of a command, and what may be commanded.

    queued -> delivered -> running -> succeeded | failed | unconfirmed
    queued, delivered -> cancelled | expired | superseded
    queued, delivered -> rejected            the agent refused it
    unconfirmed -> succeeded | failed        the agent's word came after all

The agent's reports may overtake each other (a quick command is *running* before its *delivered* is read), so a later
report from an earlier state is taken. Ends are final, `unconfirmed` excepted.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState, RunState

from .runs import ENDED as RUN_ENDED

DELIVER_WITHIN = timedelta(minutes=10)
EXECUTE_WITHIN = dict.fromkeys(CommandKind, timedelta(minutes=15)) | {CommandKind.ROLLBACK: timedelta(minutes=30)}

_S = CommandState
TRANSITIONS: dict[CommandState, frozenset[CommandState]] = {
    _S.QUEUED: frozenset(_S) - {_S.QUEUED, _S.UNCONFIRMED},
    _S.DELIVERED: frozenset(_S) - {_S.QUEUED, _S.DELIVERED, _S.UNCONFIRMED},
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.UNCONFIRMED}),
    _S.UNCONFIRMED: frozenset({_S.SUCCEEDED, _S.FAILED}),
    **{end: frozenset() for end in (_S.SUCCEEDED, _S.FAILED, _S.REJECTED, _S.CANCELLED, _S.EXPIRED, _S.SUPERSEDED)},
}

ACTIVE = frozenset({_S.QUEUED, _S.DELIVERED, _S.RUNNING})
ON_THE_WAY = frozenset({_S.QUEUED, _S.DELIVERED})
"""Not yet begun: may still be cancelled, superseded or expire."""
BY_REPORT = frozenset({_S.DELIVERED, _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.REJECTED})
"""The states an agent may report."""


def may_follow(state: CommandState, following: CommandState) -> bool:
    """Whether a command in `state` may become `following`. Saying the same again is not an arrow: callers drop it."""
    return following in TRANSITIONS[state]


def deadline(kind: CommandKind, state: CommandState, now: datetime) -> datetime | None:
    """By when a command that has just come into `state` must have left it; None once it has ended."""
    if state is CommandState.QUEUED:
        return now + DELIVER_WITHIN
    return now + EXECUTE_WITHIN[kind] if state in ACTIVE else None


def overdue(state: CommandState) -> CommandState:
    """What a command becomes whose deadline has passed: what has begun may have been done, so its end is only unknown."""
    return CommandState.UNCONFIRMED if state is CommandState.RUNNING else CommandState.EXPIRED


def why_overdue(state: CommandState) -> str:
    """Why a command ended that was in `state` when its deadline passed."""
    if state is CommandState.QUEUED:
        return "the trainer did not fetch it in time"
    return (
        "the trainer fetched it and did not begin in time"
        if state is CommandState.DELIVERED
        else "the trainer began and never said how it ended"
    )


def contradicts(state: CommandState, reported: CommandState) -> bool:
    """Whether a report says of a command that ended unbegun (`state`) that it was begun after all."""
    unbegun = (CommandState.CANCELLED, CommandState.EXPIRED, CommandState.SUPERSEDED)
    return state in unbegun and reported in (CommandState.RUNNING, CommandState.SUCCEEDED, CommandState.FAILED)


def too_late(reported: CommandState, step: int | None) -> str:
    """What to add to the outcome of such a command."""
    return f"too late: the trainer had it already and reports {reported}" + (f" at step {step}" if step is not None else "")


@dataclass(frozen=True, slots=True)
class IssuedCommand:
    """A command as it is stored and shown; the wire's `Command` is what of it travels."""

    run_id: str
    command_id: str
    kind: CommandKind
    state: CommandState
    incarnation: str
    segment: int
    reason: str
    issued_by: str
    rollback: RollbackPayload | None
    outcome: str
    """Why it ended so; empty before."""
    step: int | None
    idempotency_key: str
    request_digest: str
    issued_at: datetime
    updated_at: datetime
    deadline_at: datetime | None


class Refusal(StrEnum):
    """Why a command was not made. The values are read by people."""

    NOT_LIVE = "the run is not running, so nothing would obey"
    NOT_CAPABLE = "this integration cannot do that"
    ALREADY_ACTIVE = "another command is active on this run"
    UNKNOWN_CHECKPOINT = "this run has no such checkpoint"
    UNSOUND_CHECKPOINT = "the checkpoint is not sound"
    SUPERSEDED_CHECKPOINT = "the checkpoint lies on a stretch that a rollback has left behind"
    MOVED_ON = "the run has moved on since the page was drawn"
    NO_SOUND_CHECKPOINT = "there is no sound checkpoint older than the first sign"


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a run decides whether a command may be made now."""

    state: RunState
    segment: int
    capabilities: frozenset[CommandKind]
    active_command: IssuedCommand | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a command is made. `same_as` is the active command that already says it; `supersedes` one that it replaces."""

    refusal: Refusal | None = None
    same_as: IssuedCommand | None = None
    supersedes: IssuedCommand | None = None


def admit(kind: CommandKind, standing: Standing, seen_segment: int | None, checkpoint_id: str | None = None) -> Admission:
    """Decide on a new command. `seen_segment` is the segment its author was looking at, `checkpoint_id` the target asked for.

    A second click on the same button is the first command; a rollback to another checkpoint than the active one's is another
    command. A stop replaces a rollback that has not begun, and waits for one that has.
    """
    if not is_live(standing.state):
        return Admission(Refusal.NOT_LIVE)
    if kind not in standing.capabilities:
        return Admission(Refusal.NOT_CAPABLE)
    return _beside(standing.active_command, kind, checkpoint_id, moved=seen_segment not in (None, standing.segment))


def is_live(state: RunState) -> bool:
    """Whether a trainer may still be there to obey. A lost one may: being lost is the server's belief."""
    return state not in RUN_ENDED and state is not RunState.CREATED


def _beside(active: IssuedCommand | None, kind: CommandKind, checkpoint_id: str | None, *, moved: bool) -> Admission:
    if active is not None and active.kind is kind and _same_target(active, checkpoint_id):
        return Admission(same_as=active)
    if moved:
        return Admission(Refusal.MOVED_ON)
    if active is None:
        return Admission()
    if kind is CommandKind.STOP and active.state in ON_THE_WAY:
        return Admission(supersedes=active)
    return Admission(Refusal.ALREADY_ACTIVE)


def _same_target(active: IssuedCommand, checkpoint_id: str | None) -> bool:
    return checkpoint_id is None or active.rollback is None or active.rollback.checkpoint_id == checkpoint_id
