"""Alert rules: what they say, what makes one valid, and the pack that is on from the first run."""

from dataclasses import dataclass, field
from enum import StrEnum

from trainer_agent.wire.vocabulary import DataMode, Severity


class DetectorKind(StrEnum):
    """The conditions a rule can state."""

    THRESHOLD = "threshold"
    NONFINITE = "nonfinite"
    CONSECUTIVE_RISE = "consecutive_rise"
    SPIKE = "spike"
    SKIP_STREAK = "skip_streak"


class ActionKind(StrEnum):
    """What a firing rule does beside telling people."""

    NOTIFY = "notify"
    STOP = "stop"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Action:
    """What follows when the rule fires. A stop or rollback comes after a countdown that a person can cancel."""

    kind: ActionKind = ActionKind.NOTIFY
    countdown_seconds: float = 60.0
    data: DataMode = DataMode.SKIP
    max_grad_norm: float | None = None


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A condition on one series, how long it must hold, and what it does.

    `for_points` and `keep_firing_for_points` count points of that series. A changed rule has a new `version` and starts afresh.
    """

    rule_id: str
    name: str
    title: str
    """Short words for the Health cell: "Grad norm ramps"."""
    series: str
    detector: DetectorKind
    settings: dict[str, float] = field(default_factory=dict)
    for_points: int = 1
    keep_firing_for_points: int = 10
    severity: Severity = Severity.WARNING
    action: Action = field(default_factory=Action)
    enabled: bool = True
    version: int = 1
    reason: str = ""
    """Why the rule exists and where its numbers come from."""
