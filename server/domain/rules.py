"""Alert rules: what they say. What makes one valid is in `rule_flaws`, how one is changed in `rule_changes`."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from trainer_agent.wire.codec import WireError, from_json, to_json
from trainer_agent.wire.vocabulary import DataMode, Severity

from .detectors import DETECTORS, with_defaults
from .detectors.base import DetectorKind

__all__ = [
    "CHANGEABLE",
    "COSMETIC",
    "Action",
    "ActionKind",
    "AlertRule",
    "DetectorKind",
    "Scope",
    "ScopeKind",
    "meaning",
    "rule_from_json",
    "rule_to_json",
    "settings_of",
]

MAX_SERIES: Final = 200
"""The most series of one rank of a run that a pattern watches. What comes after them is not judged, and the rule says so."""
SEEN_BY_STEPS: Final = 200
"""Steps of a run after which a rule whose series has not come yet says so."""


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
    dry_run: bool = False
    """The countdown and its end say what would be done, and nothing is done."""


class ScopeKind(StrEnum):
    """Which runs a rule watches."""

    ALL = "all"
    PROJECT = "project"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a rule holds. `name` is the project or the id of the run; empty for all."""

    kind: ScopeKind = ScopeKind.ALL
    name: str = ""

    def covers(self, run_id: str, project: str) -> bool:
        """Whether a run lies in it."""
        return self.kind is ScopeKind.ALL or self.name == (project if self.kind is ScopeKind.PROJECT else run_id)


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
    """A name, or a pattern in which `*` stands for any characters: `train/grad_norm*`."""
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
    scope: Scope = field(default_factory=Scope)
    trial: bool = False
    """Log-only: its alerts are shown, but nobody is told, nothing is done and no checkpoint is judged by them."""
    edited: bool = False
    """A person has changed it or made it, so that no newer default pack replaces it."""

    @property
    def is_pattern(self) -> bool:
        """Whether it may watch several series."""
        return "*" in self.series

    def watches(self, name: str) -> bool:
        """Whether a series is one of its own."""
        return fnmatchcase(name, self.series) if self.is_pattern else name == self.series


COSMETIC: Final = ("name", "title", "reason")
"""What may change without touching what the rule judges: nothing starts afresh, no alert closes."""
CHANGEABLE: Final = (
    *COSMETIC,
    "series",
    "detector",
    "settings",
    "for_points",
    "keep_firing_for_points",
    "severity",
    "action",
    "enabled",
    "scope",
    "trial",
)
"""What a person says of a rule. Its id and its version are the server's to give."""


def settings_of(rule: AlertRule) -> dict[str, float]:
    """The rule's settings, filled up with its detector's defaults."""
    return with_defaults(rule.detector, rule.settings)


def meaning(kind: DetectorKind) -> str:
    """What the condition says, in a sentence: its own, or the first of the file that it stands in."""
    detector = DETECTORS[kind]
    text = detector.meaning or sys.modules[detector.step.__module__].__doc__ or ""
    return f"{' '.join(text.split()).partition('. ')[0].rstrip('.')}."


def rule_to_json(rule: AlertRule) -> dict[str, Any]:
    """The rule as strict JSON."""
    parsed: dict[str, Any] = to_json(rule)
    return parsed


def rule_from_json(parsed: Mapping[str, Any]) -> AlertRule:
    """The rule out of parsed JSON.

    Raises:
        ValueError: a field is missing or of the wrong type; the text names it.
    """
    try:
        return from_json(AlertRule, dict(parsed))
    except WireError as error:
        raise ValueError(str(error)) from None
