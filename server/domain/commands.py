"""The life of a command, and what may be commanded.

    queued -> delivered -> running -> succeeded | failed | unconfirmed
    queued, delivered -> cancelled | expired | superseded
    queued, delivered -> rejected            the agent refused it
    unconfirmed -> succeeded | failed        the agent's word came after all

The agent's reports may overtake each other (a quick command is *running* before its *delivered* is read), so a later
report from an earlier state is taken. Ends are final, `unconfirmed` excepted.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from trainer_agent.wire.vocabulary import CommandKind, CommandState, RunState

from .runs import ENDED as RUN_ENDED

DELIVER_WITHIN = timedelta(minutes=10)
EXECUTE_WITHIN = {CommandKind.STOP: timedelta(minutes=15), CommandKind.ROLLBACK: timedelta(minutes=30)}

_S = CommandState
TRANSITIONS: dict[CommandState, frozenset[CommandState]] = {
    _S.QUEUED: frozenset(_S) - {_S.QUEUED, _S.UNCONFIRMED},
    _S.DELIVERED: frozenset(_S) - {_S.QUEUED, _S.DELIVERED, _S.UNCONFIRMED},
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.UNCONFIRMED}),
    _S.UNCONFIRMED: frozenset({_S.SUCCEEDED, _S.FAILED}),
    **{end: frozenset() for end in (_S.SUCCEEDED, _S.FAILED, _S.REJECTED, _S.CANCELLED, _S.EXPIRED, _S.SUPERSEDED)},
}

ACTIVE = frozenset({_S.QUEUED, _S.DELIVERED, _S.RUNNING})
BY_REPORT = frozenset({_S.DELIVERED, _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.REJECTED})
"""The states an agent may report."""


def may_follow(state: CommandState, following: CommandState) -> bool:
    """Whether a command in `state` may become `following`. Saying the same again is not an arrow: callers drop it."""
    return following in TRANSITIONS[state]


class Refusal(StrEnum):
    """Why a command was not made. The values are read by people."""

    NOT_LIVE = "the run is not running, so nothing would obey"
    NOT_CAPABLE = "this integration cannot do that"
    ALREADY_ACTIVE = "another command is active on this run"
    UNKNOWN_CHECKPOINT = "this run has no such checkpoint"
    UNSOUND_CHECKPOINT = "the checkpoint is not sound"
    MOVED_ON = "the run has moved on since the page was drawn"
    NO_SOUND_CHECKPOINT = "there is no sound checkpoint older than the first sign"


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a run decides whether a command may be made now."""

    state: RunState
    segment: int
    capabilities: frozenset[CommandKind]
    active_command: tuple[str, CommandKind, CommandState] | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a command is made. `same_as` names the active command that already says it; `supersedes` one it replaces."""

    refusal: Refusal | None = None
    same_as: str | None = None
    supersedes: str | None = None


def admit(kind: CommandKind, standing: Standing, seen_segment: int | None) -> Admission:
    """Decide on a new command. `seen_segment` is the segment its author was looking at."""
    if standing.state in RUN_ENDED or standing.state is RunState.CREATED:
        return Admission(Refusal.NOT_LIVE)
    if kind not in standing.capabilities:
        return Admission(Refusal.NOT_CAPABLE)
    if standing.active_command is None:
        moved = seen_segment is not None and seen_segment != standing.segment
        return Admission(Refusal.MOVED_ON if moved else None)
    active_id, active_kind, active_state = standing.active_command
    if active_kind is kind:
        return Admission(same_as=active_id)
    if kind is CommandKind.STOP and active_state is not CommandState.RUNNING:
        return Admission(supersedes=active_id)
    return Admission(Refusal.ALREADY_ACTIVE)
