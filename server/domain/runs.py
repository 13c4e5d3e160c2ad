"""The life of a run.

    created -> running <-> paused
    running, paused <-> lost            no word by the deadline; any word brings it back
    any of these -> finished | failed | stopped
    any of these -> itself              an earlier process turns out to have ended; told, and nothing else

`heard` is any message of the agent; `started` is the start of an incarnation, which also reopens an ended run (a restart in
the same folder goes on with the same run). Late records after an end are stored and change nothing here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainer_agent.wire.vocabulary import EndReason, RunState

from .events import EventType

LOST_AFTER = timedelta(seconds=60)
"""A heartbeat comes every 10 s; six missed in a row are not a hiccup."""


class RunInput(StrEnum):
    """What can happen to a run."""

    STARTED = "started"
    HEARD = "heard"
    SILENT = "silent"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    EARLIER_ENDED = "earlier_ended"


NO_WORD = frozenset({RunInput.SILENT, RunInput.EARLIER_ENDED})
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
    (RunState.LOST, RunInput.HEARD): (RunState.RUNNING, EventType.RUN_FOUND),
    (RunState.RUNNING, RunInput.SILENT): (RunState.LOST, EventType.RUN_LOST),
    (RunState.PAUSED, RunInput.SILENT): (RunState.LOST, EventType.RUN_LOST),
    **{(state, end): outcome for end, outcome in _ENDS.items() for state in RunState if state not in ENDED},
    **{(state, RunInput.EARLIER_ENDED): (state, EventType.RUN_INCARNATION_ENDED) for state in RunState},
}

END_INPUT = {
    EndReason.FINISHED: RunInput.FINISHED,
    EndReason.FAILED: RunInput.FAILED,
    EndReason.STOPPED_BY_COMMAND: RunInput.STOPPED,
    EndReason.STOPPED_BY_GUARD: RunInput.STOPPED,
}


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
