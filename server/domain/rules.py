"""Alert rules: what they say and what makes one valid. The pack that is on from the first run is in `default_rules`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from trainer_agent.wire import series
from trainer_agent.wire.codec import WireError, from_json, to_json
from trainer_agent.wire.vocabulary import DataMode, Severity

from .detectors import DETECTORS, with_defaults
from .detectors.base import DetectorKind, Setting

__all__ = [
    "CHANGEABLE",
    "Action",
    "ActionKind",
    "AlertRule",
    "DetectorKind",
    "Scope",
    "ScopeKind",
    "changed",
    "problems",
    "rule_from_json",
    "rule_to_json",
    "settings_of",
]

MAX_POINTS: Final = 100_000
MAX_COUNTDOWN_SECONDS: Final = 86_400.0


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


CHANGEABLE: Final = ("settings", "for_points", "keep_firing_for_points", "severity", "enabled", "action")
"""What a person may change of a rule. Another series or detector would be another rule."""


def settings_of(rule: AlertRule) -> dict[str, float]:
    """The rule's settings, filled up with its detector's defaults."""
    return with_defaults(rule.detector, rule.settings)


def problems(rule: AlertRule) -> list[str]:
    """What keeps the rule from being used, each a sentence that says what to write instead. Empty when it is valid."""
    return [*_of_words(rule), *_of_settings(rule), *_of_counts(rule), *_of_action(rule)]


def _of_words(rule: AlertRule) -> Iterator[str]:
    for name in ("rule_id", "name", "title"):
        if not getattr(rule, name).strip():
            yield f"{name} is empty: give the rule one"
    if not series.is_valid(rule.series):
        yield f"series {rule.series[:80]!r} is not group/name in lower case, such as {series.LOSS}"


def _of_settings(rule: AlertRule) -> Iterator[str]:
    known = DETECTORS[rule.detector].settings
    for name, value in rule.settings.items():
        if name not in known:
            offered = ", ".join(known) or "no settings"
            yield f"settings.{name[:80]} is not known to the {rule.detector} detector, which takes {offered}"
        elif (problem := _of_number(value, known[name])) is not None:
            yield f"settings.{name} {problem}"
    if rule.detector is DetectorKind.THRESHOLD and not {"above", "below"} & rule.settings.keys():
        yield "settings must give above or below: the value past which the threshold holds"


def _of_number(value: float, setting: Setting) -> str | None:
    if not math.isfinite(value):
        return "must be a finite number"
    if not setting.minimum <= value <= setting.maximum:
        return f"must lie between {setting.minimum:g} and {setting.maximum:g}"
    if setting.whole and value != int(value):
        return "must be a whole number"
    return None


def _of_counts(rule: AlertRule) -> Iterator[str]:
    if not 1 <= rule.for_points <= MAX_POINTS:
        yield f"for_points must lie between 1 and {MAX_POINTS}: 1 fires at the first point at which the condition holds"
    if not 0 <= rule.keep_firing_for_points <= MAX_POINTS:
        yield f"keep_firing_for_points must lie between 0 and {MAX_POINTS}"


def _of_action(rule: AlertRule) -> Iterator[str]:
    action = rule.action
    if action.kind is not ActionKind.NOTIFY and rule.severity is Severity.INFO:
        yield "severity must be warning or critical for a rule that acts: information says nothing against a checkpoint"
    if not 0 <= action.countdown_seconds <= MAX_COUNTDOWN_SECONDS:  # NaN fails too
        yield f"action.countdown_seconds must lie between 0 and {MAX_COUNTDOWN_SECONDS:g}"
    limit = action.max_grad_norm
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        yield "action.max_grad_norm must be a finite number above 0, or null to leave clipping as it is"


def changed(rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """The rule with `changes` (parsed JSON, keys of `CHANGEABLE`) and the next version; the same rule when nothing differs.

    Given settings and action fields replace those named and leave the others.

    Raises:
        ValueError: a field that may not be changed, or a value that makes the rule invalid; the text lists all that is wrong.
    """
    unknown = sorted(set(changes) - set(CHANGEABLE))
    if unknown:
        raise ValueError(f"{', '.join(unknown)} cannot be changed; only {', '.join(CHANGEABLE)} can")
    before = rule_to_json(rule)
    after = before | dict(changes)
    for name in ("settings", "action"):
        if isinstance(changes.get(name), Mapping):
            after[name] = before[name] | dict(changes[name])
    following = rule_from_json(after)
    if wrong := problems(following):
        raise ValueError("; ".join(wrong))
    return rule if following == rule else replace(following, version=rule.version + 1)


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
