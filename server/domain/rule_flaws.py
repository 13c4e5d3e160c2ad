"""What keeps a rule from being used: each wrong field, as a person who wrote it can read it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import DataMode, Severity

from .detectors import DETECTORS
from .detectors.absence import ABSENCES
from .detectors.base import DetectorKind, Setting
from .rules import ActionKind, AlertRule, ScopeKind, settings_of

MAX_POINTS: Final = 100_000
MAX_COUNTDOWN_SECONDS: Final = 86_400.0
MAX_NAME: Final = 200
MAX_REASON: Final = 4_000
RULE_DATA: Final = (DataMode.SKIP, DataMode.REPLAY)
"""What a rollback that a rule orders may do with the data. Which samples to leave out only a person can say."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one field, named as it is sent (`settings.above`), and what to write instead."""

    field: str
    message: str
    is_joint: bool = False
    """It says that this field and others do not go together: nothing to say where one of them could not be read."""

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


class WrongRuleError(ValueError):
    """A rule that cannot be used. `flaws` has one entry for each wrong field, and the text lists them all."""

    def __init__(self, flaws: tuple[Flaw, ...]) -> None:
        super().__init__("; ".join(map(str, flaws)))
        self.flaws = flaws


def problems(rule: AlertRule) -> tuple[Flaw, ...]:
    """What keeps the rule from being used. Empty when it is valid."""
    found = (*_of_words(rule), *_of_series(rule), *_of_settings(rule), *_of_counts(rule), *_of_scope(rule), *_of_action(rule))
    return (*(Flaw(where, message) for where, message in found), *(Flaw(*each, is_joint=True) for each in _of_pairs(rule)))


_Found = Iterator[tuple[str, str]]


def _of_words(rule: AlertRule) -> _Found:
    for name in ("rule_id", "name", "title"):
        said = getattr(rule, name)
        if not said.strip():
            yield name, "is empty: give the rule one"
        elif len(said) > MAX_NAME:
            yield name, f"is longer than {MAX_NAME} characters"
    if len(rule.reason) > MAX_REASON:
        yield "reason", f"is longer than {MAX_REASON} characters"


def _of_series(rule: AlertRule) -> _Found:
    companions = DETECTORS[rule.detector].companions
    if not rule.is_pattern and not series.is_valid(rule.series):
        yield "series", f"{rule.series[:80]!r} is not group/name in lower case, such as {series.LOSS}"
    elif rule.is_pattern and not _is_pattern(rule.series):
        yield "series", f"{rule.series[:80]!r} is not a pattern of group/name in lower case with * for any characters: train/*"
    elif rule.is_pattern and companions:
        yield "series", f"must be one name: the {rule.detector} detector reads {', '.join(companions)} beside it"


def _is_pattern(pattern: str) -> bool:
    """Whether something in the grammar of series may match it."""
    return any(series.is_valid(pattern.replace("*", some, 1).replace("*", "a")) for some in ("a", "a/a"))


def _of_settings(rule: AlertRule) -> _Found:
    known = DETECTORS[rule.detector].settings
    for name, value in rule.settings.items():
        if name not in known:
            offered = ", ".join(known) or "no settings"
            yield f"settings.{name[:80]}", f"is not known to the {rule.detector} detector, which takes {offered}"
        elif (problem := _of_number(value, known[name])) is not None:
            yield f"settings.{name}", problem
    if rule.detector is DetectorKind.THRESHOLD and not {"above", "below"} & rule.settings.keys():
        yield "settings", "must give above or below: the value past which the threshold holds"


def _of_pairs(rule: AlertRule) -> _Found:
    """Settings that are each sound and together never hold, or always do."""
    if any(_of_settings(rule)):
        return
    told = settings_of(rule)
    if {"need", "of"} <= told.keys() and told["need"] > told["of"]:
        yield (
            "settings.need",
            f"is {told['need']:g}, more than the {told['of']:g} points that `of` looks at: it can never be reached",
        )
    if {"history", "window"} <= told.keys() and told["history"] > told["window"] and not told.get("young_times"):
        yield (
            "settings.history",
            f"is {told['history']:g}, more than a window of {told['window']:g} ever holds: nothing would be judged",
        )
    if {"above", "below"} <= told.keys() and told["below"] > told["above"]:
        yield "settings.below", f"is {told['below']:g}, higher than above ({told['above']:g}): every value would hold"
    if rule.detector is DetectorKind.ENDED and not any(told.values()):
        yield "settings", "must have 1 for at least one kind of end: with 0 for all of them nothing would be told"


def _of_number(value: float, setting: Setting) -> str | None:
    if not math.isfinite(value):
        return "must be a finite number"
    if not setting.minimum <= value <= setting.maximum:
        return f"must lie between {setting.minimum:g} and {setting.maximum:g}"
    if setting.whole and value != int(value):
        return "must be a whole number"
    return None


def _of_counts(rule: AlertRule) -> _Found:
    if not 1 <= rule.for_points <= MAX_POINTS:
        yield "for_points", f"must lie between 1 and {MAX_POINTS}: 1 fires at the first point at which the condition holds"
    if not 0 <= rule.keep_firing_for_points <= MAX_POINTS:
        yield "keep_firing_for_points", f"must lie between 0 and {MAX_POINTS}"


def _of_scope(rule: AlertRule) -> _Found:
    scope = rule.scope
    if scope.kind is ScopeKind.ALL and scope.name:
        yield "scope.name", "must be empty for a rule of all runs, or scope.kind be project or run"
    elif scope.kind is not ScopeKind.ALL and not scope.name.strip():
        yield "scope.name", f"is empty: give the {'name of the project' if scope.kind is ScopeKind.PROJECT else 'id of the run'}"
    elif len(scope.name) > MAX_NAME:
        yield "scope.name", f"is longer than {MAX_NAME} characters"


def _of_action(rule: AlertRule) -> _Found:
    action = rule.action
    if action.kind is not ActionKind.NOTIFY and rule.severity is Severity.INFO:
        yield "severity", "must be warning or critical for a rule that acts: information says nothing against a checkpoint"
    if action.kind is not ActionKind.NOTIFY and rule.detector in ABSENCES:
        yield "action.kind", "must be notify: a run that does not answer can be ordered nothing"
    if not 0 <= action.countdown_seconds <= MAX_COUNTDOWN_SECONDS:  # NaN fails too
        yield "action.countdown_seconds", f"must lie between 0 and {MAX_COUNTDOWN_SECONDS:g}"
    if action.data not in RULE_DATA:
        yield "action.data", f"must be {' or '.join(RULE_DATA)}: a rule cannot name the samples to leave out"
    limit = action.max_grad_norm
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        yield "action.max_grad_norm", "must be a finite number above 0, or null to leave clipping as it is"
