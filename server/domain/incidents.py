"""The firing alerts of one run, as a person handles them.

    (none) -> triggered -> acknowledged -> resolved        triggered -> resolved

alert        an alert that concerns people fires: it opens an incident, or joins the one that is open; a run has at most one
acknowledge  a person takes it on: it is repeated to nobody any more. What joins later is told all the same
over         the last open alert of it is over, in whatever way

An incident that is resolved stays so; the next alert opens another.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainer_agent.wire.vocabulary import Severity

from .alerts import Alert, CloseReason

MAX_NOTE = 2_000


class IncidentState(StrEnum):
    """Where an incident stands."""

    TRIGGERED = "triggered"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class IncidentInput(StrEnum):
    """What can happen to an incident."""

    ALERT = "alert"
    ACKNOWLEDGE = "acknowledge"
    OVER = "over"


_S, _I = IncidentState, IncidentInput
TRANSITIONS: dict[tuple[IncidentState | None, IncidentInput], IncidentState] = {
    (None, _I.ALERT): _S.TRIGGERED,
    (_S.TRIGGERED, _I.ACKNOWLEDGE): _S.ACKNOWLEDGED,
    (_S.TRIGGERED, _I.OVER): _S.RESOLVED,
    (_S.ACKNOWLEDGED, _I.OVER): _S.RESOLVED,
}
"""Where a pair is missing, nothing changes."""


def step(state: IncidentState | None, what: IncidentInput) -> IncidentState | None:
    """The incident after `what`; None is no incident."""
    return TRANSITIONS.get((state, what), state)


@dataclass(frozen=True, slots=True)
class Talk:
    """What has been said of an incident, and what decides when the next is said. Times are the server's.

    `spoken_at` and `urgent_at` are of the run: its newest incident carries them on from the one before.
    """

    messages: int = 0
    since: datetime | None = None
    """Since when something waits to be told; None where nothing does."""
    not_before: datetime | None = None
    """A backlog is draining: what follows may end what it tells of."""
    is_late: bool = False
    """It fired in a backlog."""
    spoken_at: datetime | None = None
    """The last message that was not urgent."""
    urgent_at: datetime | None = None
    in_flight: bool = False
    """A message is on its way and has reached nobody yet."""
    repeat_from: datetime | None = None
    """The last message that reached somebody, or was given up."""
    is_done: bool = False
    """It is resolved and all is told."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident as it is stored and shown. `severity` and `title` are those of its gravest alert so far."""

    run_id: str
    incident_id: str
    number: int
    """Within the run, from 1."""
    state: IncidentState
    severity: Severity
    title: str
    first_step: int
    """The onset of its first sign."""
    segment: int
    opened_at: datetime
    acknowledged_at: datetime | None = None
    acknowledged_by: str = ""
    note: str = ""
    resolved_at: datetime | None = None
    closed_because: CloseReason | None = None
    """How the last of its alerts ended."""
    notify_at: datetime | None = None
    """When to look whether something is to be told; None where nothing will be."""
    notified_at: datetime | None = None
    talk: Talk = Talk()
    version: int = 1

    @property
    def is_open(self) -> bool:
        """Whether it is still going on."""
        return self.state is not IncidentState.RESOLVED


_LOUDNESS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def gravest_first(alerts: Iterable[Alert]) -> list[Alert]:
    """The alerts in the order in which a person wants to read them: open before closed, then the gravest, then the earliest."""
    return sorted(alerts, key=lambda each: (not each.is_open, -_LOUDNESS[each.severity], each.onset_step, each.alert_id))


def is_graver(severity: Severity, than: Severity) -> bool:
    """Whether one severity is above another."""
    return _LOUDNESS[severity] > _LOUDNESS[than]


def gravest(severities: Iterable[Severity]) -> Severity:
    """The highest of several; information where there are none."""
    return max(severities, key=_LOUDNESS.__getitem__, default=Severity.INFO)
