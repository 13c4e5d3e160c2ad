"""Absence, in three kinds that are never mixed: nothing is heard, nothing is done, or the training said that it is over.

lost       no word by the deadline: what `domain/runs.py` calls a lost run
stalled    heard of, and no new step for longer than what it does may take
ended      the training said so

These do not look at points. What they look at is a *pulse*: where the run stands, and since when, by the server's own clock.
So a clock of the training that is wrong changes nothing, and none of them says anything about a metric. Their rules name the
series `run/heartbeat`, `run/step` and `run/end`, which nobody logs; a point of that name is not judged.

The limit for a stall follows the run's own pace: so many times the median of the last gaps between steps, as they came here,
and never under a floor. What is not training has a limit of its own, and so has everything before the third step: loading,
compiling, the first batches. Where a person or a dead run makes it wait, it never stalls.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from types import MappingProxyType
from typing import Final

from server.domain import runs
from server.domain.points import Point
from server.domain.runs import ENDED
from server.domain.values import frozen
from trainer_agent.wire.vocabulary import Phase, RunState

from .base import CLEAR, DetectorKind, Setting, Settings, Verdict

HEARTBEAT, STEP, END = "run/heartbeat", "run/step", "run/end"
FEW_GAPS: Final = 3
"""With fewer than so many gaps the pace is not known, and the budget for a start holds."""
HEARD_SECONDS = 25.0
"""Two heartbeats and a half. Of a run that is silent for longer nobody knows whether it steps: it may be about to be lost."""

ABSENCES: Final = frozenset({DetectorKind.LOST, DetectorKind.STALLED, DetectorKind.ENDED})

LOST_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType({})
_DAY = 86_400.0
STALLED_SETTINGS: Final = {
    "floor_seconds": Setting(120.0, 1.0, _DAY, meaning="never a stall in less, however fast the steps are"),
    "times": Setting(10.0, 1.0, 1000.0, meaning="so many times the median gap between steps"),
    "startup_seconds": Setting(1800.0, 1.0, 7 * _DAY, meaning="before the third step: loading, compiling"),
    "evaluating_seconds": Setting(3600.0, 1.0, 7 * _DAY, meaning="while it evaluates"),
    "saving_seconds": Setting(1800.0, 1.0, 7 * _DAY, meaning="while it saves"),
    "rolling_back_seconds": Setting(1800.0, 1.0, 7 * _DAY, meaning="while it rolls back"),
    "ending_seconds": Setting(1800.0, 1.0, 7 * _DAY, meaning="after the last step, before the process says that it is over"),
}
ENDED_SETTINGS: Final = {
    "failed": Setting(1.0, 0.0, 1.0, whole=True, meaning="1: tells of a training that failed"),
    "stopped": Setting(0.0, 0.0, 1.0, whole=True, meaning="1: tells of one that was stopped"),
    "finished": Setting(0.0, 0.0, 1.0, whole=True, meaning="1: tells of one that came to its end"),
}


@dataclass(frozen=True, slots=True)
class Pulse:
    """Where a run stands, by the server's clock. `gaps` are seconds between its last steps, oldest first."""

    state: RunState
    phase: Phase | None
    heard_at: datetime
    stepped_at: datetime | None
    """When the newest step came; None before the first of this process."""
    phase_since: datetime
    """Since when it does what it does, or since when it can be watched, if that is later."""
    gaps: tuple[float, ...] = ()

    @property
    def still_since(self) -> datetime:
        """Since when it has made no step and has not begun anything else."""
        return self.phase_since if self.stepped_at is None else max(self.stepped_at, self.phase_since)


@frozen
class AbsenceState:
    """Nothing: a pulse has all that is needed."""


def step(state: AbsenceState, point: Point, settings: Settings) -> tuple[AbsenceState, Verdict]:
    """No point is judged: see the head of the file."""
    del settings
    return state, Verdict(None, point.value)


def lost(pulse: Pulse, settings: Settings, now: datetime) -> Verdict:
    """Whether nothing is heard of a run that has not ended."""
    del settings
    silent, limit = (now - pulse.heard_at).total_seconds(), runs.LOST_AFTER.total_seconds()
    known = {RunState.LOST: True, RunState.RUNNING: False, RunState.PAUSED: False}
    return Verdict(known.get(pulse.state), silent, limit)


def stalled(pulse: Pulse, settings: Settings, now: datetime) -> Verdict:
    """Whether a run that is heard of makes no step, for longer than what it does may take."""
    still, limit = (now - pulse.still_since).total_seconds(), stall_limit(pulse, settings)
    if pulse.state not in (RunState.RUNNING, RunState.PAUSED):
        return Verdict(None, still)
    if pulse.state is RunState.PAUSED or limit is None:
        return Verdict(CLEAR, still)
    is_heard = (now - pulse.heard_at).total_seconds() < HEARD_SECONDS
    return Verdict((is_heard or None) if still >= limit else False, still, limit, _evidence(pulse))


def _evidence(pulse: Pulse) -> tuple[tuple[str, float], ...]:
    """The median gap, and what it is doing, as a name with 1."""
    pace = (("median", median(pulse.gaps)),) if len(pulse.gaps) >= FEW_GAPS else ()
    return (*pace, ((pulse.phase or Phase.TRAINING).value, 1.0))


def stall_limit(pulse: Pulse, settings: Settings) -> float | None:
    """Seconds that it may go without a step; None where it waits by order. Never under the floor."""
    if pulse.phase in (Phase.PAUSED, Phase.HOLDING):
        return None
    floor = settings["floor_seconds"]
    pace = max(floor, settings["times"] * median(pulse.gaps)) if len(pulse.gaps) >= FEW_GAPS else settings["startup_seconds"]
    own = settings.get(f"{pulse.phase}_seconds", floor)  # of training there is none
    if pulse.phase is Phase.STARTING:
        own = settings["startup_seconds"]
    return max(floor, pace, own)


def stall_due_at(pulse: Pulse, settings: Settings) -> datetime | None:
    """When it will be stalled if nothing happens; None where that cannot be."""
    limit = stall_limit(pulse, settings) if pulse.state is RunState.RUNNING else None
    return None if limit is None else pulse.still_since + timedelta(seconds=limit)


def ended(pulse: Pulse, settings: Settings, now: datetime) -> Verdict:
    """Whether the training has said that it is over, in one of the ways that the rule tells of."""
    del now
    if pulse.state not in ENDED:
        return Verdict(None, 0.0)
    return Verdict(settings[pulse.state.value] > 0, 1.0, None, ((pulse.state.value, 1.0),))


JUDGES: Final[Mapping[DetectorKind, Callable[[Pulse, Settings, datetime], Verdict]]] = {
    DetectorKind.LOST: lost,
    DetectorKind.STALLED: stalled,
    DetectorKind.ENDED: ended,
}
