"""The life of a run.

    created -> running <-> paused       as the agent's heartbeats say
    running, paused <-> lost            no word by the deadline; any word brings it back, to paused where it says so
    any of these -> finished | failed | stopped
    failed -> running                   a process that was called killed speaks (see `was_called_killed`)
    any of these -> itself              an earlier process turns out to have ended, or to live; told, and nothing else

`heard` is any message of the agent that does not say what it does; `paused` and `resumed` are those that do. `started` is the
start of an incarnation, which also reopens an ended run (a restart in the same folder goes on with the same run). Late records
after an end are stored and change nothing here. A paused run stands still by order: no step of it is missing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainer_agent.wire.vocabulary import KILLED, EndReason, RunState

from .events import EventType

LOST_AFTER = timedelta(seconds=60)
"""A heartbeat comes every 10 s; six missed in a row are not a hiccup."""


class RunInput(StrEnum):
    """What can happen to a run."""

    STARTED = "started"
    HEARD = "heard"
    PAUSED = "paused"
    RESUMED = "resumed"
    """It does something, whatever that is, and is not paused."""
    SILENT = "silent"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    EARLIER_ENDED = "earlier_ended"
    LIVES = "lives"
    """The process that was called killed."""
    EARLIER_LIVES = "earlier_lives"


NO_WORD = frozenset({RunInput.SILENT, RunInput.EARLIER_ENDED, RunInput.EARLIER_LIVES})
"""What does not say that the run is alive."""

ENDED = frozenset({RunState.FINISHED, RunState.FAILED, RunState.STOPPED})

_ENDS = {
    RunInput.FINISHED: (RunState.FINISHED, EventType.RUN_FINISHED),
    RunInput.FAILED: (RunState.FAILED, EventType.RUN_FAILED),
    RunInput.STOPPED: (RunState.STOPPED, EventType.RUN_STOPPED),
}

TRANSITIONS: dict[tuple[RunState, RunInput], tuple[RunState, EventType | None]] = {
    **{(state, RunInput.STARTED): (RunState.RUNNING, EventType.RUN_STARTED) for state in RunState},
    (RunState.CREATED, RunInput.HEARD): (RunState.RUNNING, None),
    (RunState.CREATED, RunInput.RESUMED): (RunState.RUNNING, None),
    (RunState.CREATED, RunInput.PAUSED): (RunState.PAUSED, EventType.RUN_PAUSED),
    (RunState.RUNNING, RunInput.PAUSED): (RunState.PAUSED, EventType.RUN_PAUSED),
    (RunState.PAUSED, RunInput.RESUMED): (RunState.RUNNING, EventType.RUN_RESUMED),
    (RunState.LOST, RunInput.HEARD): (RunState.RUNNING, EventType.RUN_FOUND),
    (RunState.LOST, RunInput.RESUMED): (RunState.RUNNING, EventType.RUN_FOUND),
    (RunState.LOST, RunInput.PAUSED): (RunState.PAUSED, EventType.RUN_FOUND),
    (RunState.RUNNING, RunInput.SILENT): (RunState.LOST, EventType.RUN_LOST),
    (RunState.PAUSED, RunInput.SILENT): (RunState.LOST, EventType.RUN_LOST),
    **{(state, end): outcome for end, outcome in _ENDS.items() for state in RunState if state not in ENDED},
    (RunState.FAILED, RunInput.LIVES): (RunState.RUNNING, EventType.RUN_LIVES),
    **{(state, RunInput.EARLIER_ENDED): (state, EventType.RUN_INCARNATION_ENDED) for state in RunState},
    **{(state, RunInput.EARLIER_LIVES): (state, EventType.RUN_LIVES) for state in RunState},
}

END_INPUT = {
    EndReason.FINISHED: RunInput.FINISHED,
    EndReason.FAILED: RunInput.FAILED,
    EndReason.STOPPED_BY_COMMAND: RunInput.STOPPED,
    EndReason.STOPPED_BY_GUARD: RunInput.STOPPED,
}


def was_called_killed(reason: str) -> bool:
    """Whether an end for this `reason` was said by another process, from what it found: the dead one could not say it itself."""
    return reason == KILLED


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands, and by when the server wants to hear of it (None once it has ended)."""

    state: RunState = RunState.CREATED
    deadline_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The next status, and the event that tells of it; None when nothing worth telling happened."""

    status: RunStatus
    event: EventType | None = None


def step(status: RunStatus, what: RunInput, now: datetime) -> RunOutcome:
    """The run after `what`. An input without an arrow changes nothing but, if it was a word, the deadline."""
    state, event = TRANSITIONS.get((status.state, what), (status.state, None))
    if state in ENDED:
        return RunOutcome(RunStatus(state, None), event)
    deadline = status.deadline_at if what in NO_WORD else now + LOST_AFTER
    return RunOutcome(RunStatus(state, None if state is RunState.LOST else deadline), event)
