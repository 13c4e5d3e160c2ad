"""The life of an alert: one episode of one rule on one series of one rank.

    (none) -> pending -> firing <-> recovering -> resolved        pending -> (none) when it clears early

`for_points` and `keep_firing_for_points` count points of that series, not time: a rule that needs one point goes from (none)
to firing at once. A point that cannot be judged changes nothing. Whatever is open also ends, quietly, when a rollback rewinds
its onset, when the run ends, and when its rule is changed: none of these says that the trouble is over, so none is told as
"resolved". A pending episode that ends leaves no trace.

The *onset* is the first point of the episode at which the condition held; checkpoints are judged by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from server.domain.values import frozen
from trainer_agent.wire.vocabulary import AlertState, Severity

from .detectors.base import Verdict
from .rules import AlertRule


class AlertInput(StrEnum):
    """What a point, or the world, does to an episode."""

    HOLDS = "holds"
    """The condition holds, but for fewer than `for_points` points in a row."""
    HOLDS_LONG = "holds_long"
    CLEAR = "clear"
    """It does not hold, for fewer than `keep_firing_for_points` points in a row."""
    CLEAR_LONG = "clear_long"
    UNKNOWN = "unknown"
    """The point cannot be judged."""
    CLOSED = "closed"
    """The episode is cut off: see `CloseReason`."""


class CloseReason(StrEnum):
    """Why an episode that fired is over."""

    RECOVERED = "recovered"
    REWOUND = "rewound"
    RUN_ENDED = "run_ended"
    RULE_CHANGED = "rule_changed"


class Told(StrEnum):
    """What has become of the message about an episode that fired."""

    NAMED = "named"
    """A message has named it."""
    HUSHED = "hushed"
    """It was over before it was to be told: silenced, inhibited, rewound."""


_PENDING, _FIRING, _RECOVERING, _RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING, AlertState.RESOLVED
_I = AlertInput

TRANSITIONS: dict[tuple[AlertState | None, AlertInput], AlertState | None] = {
    (None, _I.HOLDS): _PENDING,
    (None, _I.HOLDS_LONG): _FIRING,
    (_PENDING, _I.HOLDS_LONG): _FIRING,
    (_PENDING, _I.CLEAR): None,
    (_PENDING, _I.CLEAR_LONG): None,
    (_PENDING, _I.CLOSED): None,
    (_FIRING, _I.CLEAR): _RECOVERING,
    (_FIRING, _I.CLEAR_LONG): _RESOLVED,
    (_FIRING, _I.CLOSED): _RESOLVED,
    (_RECOVERING, _I.HOLDS): _FIRING,
    (_RECOVERING, _I.HOLDS_LONG): _FIRING,
    (_RECOVERING, _I.CLEAR_LONG): _RESOLVED,
    (_RECOVERING, _I.CLOSED): _RESOLVED,
}
"""Where a pair is missing, nothing changes."""

OPEN = frozenset({_PENDING, _FIRING, _RECOVERING})
FIRED = frozenset({_FIRING, _RECOVERING})


@frozen
class AlertStatus:
    """Where the episode stands. `state` is None between episodes; the others are then empty."""

    state: AlertState | None = None
    alert_id: str = ""
    onset_step: int = 0
    held: int = 0
    """While pending: points in a row at which the condition held, up to the last one."""
    clear: int = 0
    """While recovering: points in a row at which it did not."""
    step: int = 0
    """The last step that was counted. A step counts once, whatever more is logged at it."""


@frozen
class AlertOutcome:
    """The next status, and what became of the episode: `before` and `after` differ when there is something to write down.

    `status` is already that of the next episode when this one is over.
    """

    status: AlertStatus
    before: AlertState | None
    after: AlertState | None

    @property
    def changed(self) -> bool:
        """Whether the episode went on to another state."""
        return self.before is not self.after


def step(status: AlertStatus, verdict: Verdict, rule: AlertRule, at_step: int, new_id: Callable[[], str]) -> AlertOutcome:
    """The alert after one judged point. `new_id` is asked when an episode begins here."""
    holds = None if _is_counted(status, verdict.holds, at_step) else verdict.holds
    held, clear = _counted(status, holds)
    after = _next(status.state, _input(held, clear, holds, rule))
    if after is None or after is _RESOLVED:
        return AlertOutcome(AlertStatus(), status.state, after)
    alert_id, onset_step = (new_id(), at_step) if status.state is None else (status.alert_id, status.onset_step)
    # Without the count that its state does not need, so that a point which changes nothing leaves nothing to write down.
    held, clear = held if after is _PENDING else 0, clear if after is _RECOVERING else 0
    reached = status.step if holds is None else max(status.step, at_step)
    return AlertOutcome(AlertStatus(after, alert_id, onset_step, held, clear, reached), status.state, after)


def _is_counted(status: AlertStatus, holds: bool | None, at_step: int) -> bool:  # noqa: FBT001  a verdict's own three values
    """Whether the step has had its say. The worst that is logged at a step counts: bad news at one that looked good is news."""
    is_repeat = status.state is not None and at_step <= status.step
    return is_repeat and not (holds and status.state is _RECOVERING)


def close(status: AlertStatus) -> AlertOutcome:
    """The alert after its episode was cut off."""
    return AlertOutcome(AlertStatus(), status.state, _next(status.state, AlertInput.CLOSED))


def _next(state: AlertState | None, what: AlertInput) -> AlertState | None:
    return TRANSITIONS.get((state, what), state)


def _counted(status: AlertStatus, holds: bool | None) -> tuple[int, int]:  # noqa: FBT001  a verdict's own three values
    """Points in a row, with this one, at which the condition held, and at which it did not."""
    if holds is None:
        return status.held, status.clear
    return (status.held + 1, 0) if holds else (0, status.clear + 1)


def _input(held: int, clear: int, holds: bool | None, rule: AlertRule) -> AlertInput:  # noqa: FBT001
    if holds is None:
        return AlertInput.UNKNOWN
    if holds:
        return AlertInput.HOLDS_LONG if held >= rule.for_points else AlertInput.HOLDS
    return AlertInput.CLEAR_LONG if clear >= rule.keep_firing_for_points else AlertInput.CLEAR


@dataclass(frozen=True, slots=True)
class Alert:
    """An episode as it is stored and shown. `value` and `limit` are those of the point that fired it (or began it)."""

    run_id: str
    alert_id: str
    rule_id: str
    rule_version: int
    rule_name: str
    title: str
    severity: Severity
    series: str
    rank: int
    segment: int
    state: AlertState
    onset_step: int
    onset_at: datetime
    value: float
    limit: float | None
    evidence: Mapping[str, float]
    text: str
    firing_step: int | None = None
    firing_at: datetime | None = None
    resolved_step: int | None = None
    resolved_at: datetime | None = None
    closed_because: CloseReason | None = None
    detector: str = ""
    """Whose sentence the text is: a `DetectorKind`, or empty where no detector has spoken."""
    trial: bool = False
    incident_id: str | None = None
    """None while nothing of it concerns people: pending, information, on trial."""
    again_after: int | None = None
    """The segment of the rollback after which the same rule fires once more."""
    told: Told | None = None
    """None as long as no message has named it."""

    @property
    def concerns_people(self) -> bool:
        """Whether it opens an incident, is told, acted on and held against checkpoints: more than information, not on trial."""
        return self.severity is not Severity.INFO and not self.trial

    @property
    def is_open(self) -> bool:
        """Whether the episode is still going on."""
        return self.state in OPEN
