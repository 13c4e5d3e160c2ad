"""The life of a command.

    queued -> delivered -> running -> succeeded | failed | unconfirmed
    queued, delivered -> cancelled | expired | superseded
    queued, delivered -> rejected            the agent refused it
    unconfirmed -> succeeded | failed        the agent's word came after all, of a newer process too: it has read the journal

The agent's reports may overtake each other (a quick command is *running* before its *delivered* is read), so a later
report from an earlier state is taken. Ends are final, `unconfirmed` excepted.

What may be commanded when is decided in `admission`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState

DELIVER_WITHIN = timedelta(minutes=10)
EXECUTE_WITHIN = dict.fromkeys(CommandKind, timedelta(minutes=15)) | {CommandKind.ROLLBACK: timedelta(minutes=30)}

AFTER_RESTART = timedelta(seconds=10)
"""How long a command of a process that is gone waits for the word of the next one. It reads its journal before its first step:
what it does not find there was never begun."""

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
OPEN = ACTIVE | {_S.UNCONFIRMED}
"""Those that a word of the agent can still end."""
BY_JOURNAL = frozenset({_S.RUNNING, _S.SUCCEEDED, _S.FAILED})
"""What a later process may report of a command of an earlier one: how it ended, and that it is still being done."""
SETTERS = frozenset({CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM})
"""The kinds that carry a value."""
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
        "the trainer fetched it and did not say in time that it began"
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
    value: float | None = None
    behind: str | None = None
    """The running command that this one waits for; see the docstring of the module."""
    issued_from: str = ""
    """The address the request came from, and by which door."""
    version: int = 1
    """Raised by every change; a change that was made to an older version is not saved."""


@dataclass(frozen=True, slots=True)
class Hand:
    """Who changes a command, and from where: a person at an address, the trainer as a process, or the server itself."""

    name: str
    place: str = ""


SERVER = Hand("server")


def trainer(incarnation: str) -> Hand:
    """The process that reports."""
    return Hand("trainer", incarnation)
