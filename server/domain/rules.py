"""Alert rules: what they say, what makes one valid, what a change of one starts afresh. The pack is in `default_rules`."""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from trainer_agent.wire import series
from trainer_agent.wire.codec import WireError, from_json, to_json
from trainer_agent.wire.vocabulary import DataMode, Severity

from .detectors import DETECTORS, with_defaults
from .detectors.absence import ABSENCES
from .detectors.base import DetectorKind, Setting

__all__ = [
    "CHANGEABLE",
    "COSMETIC",
    "Action",
    "ActionKind",
    "AlertRule",
    "DetectorKind",
    "Flaw",
    "Scope",
    "ScopeKind",
    "WrongRuleError",
    "changed",
    "differences",
    "made",
    "meaning",
    "problems",
    "replace_by",
    "rule_from_json",
    "rule_to_json",
    "settings_of",
    "starts_afresh",
]

MAX_POINTS: Final = 100_000
MAX_COUNTDOWN_SECONDS: Final = 86_400.0
MAX_NAME: Final = 200
MAX_REASON: Final = 4_000
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
NEEDED: Final = ("name", "series", "detector")
_PARTS: Final[Mapping[str, type]] = {"action": Action, "scope": Scope}
_BLANK: Final = AlertRule("rule", "Rule", "Rule", series.LOSS, DetectorKind.NONFINITE)


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one field, named as it is sent (`settings.above`), and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


class WrongRuleError(ValueError):
    """A rule that cannot be used. `flaws` has one entry for each wrong field, and the text lists them all."""

    def __init__(self, flaws: tuple[Flaw, ...]) -> None:
        super().__init__("; ".join(map(str, flaws)))
        self.flaws = flaws


def settings_of(rule: AlertRule) -> dict[str, float]:
    """The rule's settings, filled up with its detector's defaults."""
    return with_defaults(rule.detector, rule.settings)


def meaning(kind: DetectorKind) -> str:
    """What the condition says, in a sentence: its own, or the first of the file that it stands in."""
    detector = DETECTORS[kind]
    text = detector.meaning or sys.modules[detector.step.__module__].__doc__ or ""
    return f"{' '.join(text.split()).partition('. ')[0].rstrip('.')}."


def problems(rule: AlertRule) -> tuple[Flaw, ...]:
    """What keeps the rule from being used. Empty when it is valid."""
    found = (*_of_words(rule), *_of_series(rule), *_of_settings(rule), *_of_counts(rule), *_of_scope(rule), *_of_action(rule))
    return tuple(Flaw(where, message) for where, message in found)


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
    limit = action.max_grad_norm
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        yield "action.max_grad_norm", "must be a finite number above 0, or null to leave clipping as it is"


def made(given: Mapping[str, Any], rule_id: str) -> AlertRule:
    """A new rule of a person's own out of parsed JSON, keys of `CHANGEABLE`; a title left out is the name.

    Raises:
        WrongRuleError: a field is missing, unknown or wrong; all of them are listed.
    """
    missing = tuple(Flaw(name, "is missing: a rule needs it") for name in NEEDED if name not in given)
    titled = {"title": given["name"], **given} if isinstance(given.get("name"), str) else given
    rule, flaws = _read(titled, replace(_BLANK, rule_id=rule_id, edited=True))
    return _sound(rule, (*missing, *flaws))


def changed(rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """The rule with `changes` (parsed JSON, keys of `CHANGEABLE`) and the next version; the same rule when nothing differs.

    Given settings and fields of action and scope replace those named and leave the others; a setting of null goes back to the
    detector's default. Another detector begins with its own defaults.

    Raises:
        WrongRuleError: a field that may not be changed, or a value that makes the rule invalid; all of them are listed.
    """
    base = replace(rule, settings={}) if changes.get("detector", rule.detector) != rule.detector else rule
    read, flaws = _read(changes, base)
    following = _sound(read, flaws)
    return rule if following == rule else replace(following, version=rule.version + 1, edited=True)


def _sound(rule: AlertRule, flaws: tuple[Flaw, ...]) -> AlertRule:
    """The rule, when neither reading it nor what it says brought up anything."""
    named = {flaw.field.partition(".")[0] for flaw in flaws}
    # What could not be read stands at its former value: what the rules of sense say of it is nobody's mistake.
    blamed = named | ({"settings"} if "detector" in named else set()) | ({"severity"} if "action" in named else set())
    flaws += tuple(flaw for flaw in problems(rule) if flaw.field.partition(".")[0] not in blamed)
    if flaws:
        raise WrongRuleError(flaws)
    return rule


def _read(given: Mapping[str, Any], base: AlertRule) -> tuple[AlertRule, tuple[Flaw, ...]]:
    """The rule with what can be read of `given`, each field by itself, and what cannot."""
    before, flaws, values = rule_to_json(base), list[Flaw](), dict[str, Any]()
    for name, value in given.items():
        if name not in CHANGEABLE:
            flaws.append(Flaw(str(name)[:80], f"is no field of a rule; there are {', '.join(CHANGEABLE)}"))
            continue
        merged, wrong = _merged(name, value, before)
        flaws += wrong
        try:
            values[name] = getattr(from_json(AlertRule, {**before, name: merged}), name)
        except WireError as error:
            flaws.append(Flaw(error.where, error.problem))
    return replace(base, **values), tuple(flaws)


def _merged(name: str, value: object, before: Mapping[str, Any]) -> tuple[object, list[Flaw]]:
    """A field as it is to be read: of one that has parts, the named parts over those that were there."""
    if name not in {"settings", *_PARTS} or not isinstance(value, Mapping):
        return value, []
    merged, flaws = dict(before[name]), list[Flaw]()
    for part, said in value.items():
        try:
            _read_part(name, str(part), said)
        except WireError as error:
            flaws.append(Flaw(error.where, error.problem))
        else:
            merged[part] = said
    return {part: said for part, said in merged.items() if said is not None or name != "settings"}, flaws


def _read_part(name: str, part: str, said: object) -> None:
    if name == "settings":
        if said is not None:
            from_json(AlertRule, {**rule_to_json(_BLANK), "settings": {part[:80]: said}})
        return
    kind = _PARTS[name]
    if part not in kind.__slots__:  # type: ignore[attr-defined]  # both are slotted dataclasses
        raise WireError(f"{name}.{part[:80]}", f"is not known; there are {', '.join(kind.__slots__)}")  # type: ignore[attr-defined]
    from_json(kind, {part: said}, name)


def replace_by(rule: AlertRule, default: AlertRule) -> AlertRule:
    """The default rule in the place of a stored one: under the next version, or as it is when it says the same already."""
    following = replace(default, version=rule.version, edited=False)
    return following if following == rule else replace(following, version=rule.version + 1)


def differences(before: AlertRule, after: AlertRule) -> dict[str, tuple[Any, Any]]:
    """What a person sees changed: for each such field its value before and after, as strict JSON."""
    old, new = rule_to_json(before), rule_to_json(after)
    return {name: (old[name], new[name]) for name in CHANGEABLE if old[name] != new[name]}


def starts_afresh(before: AlertRule, after: AlertRule) -> bool:
    """Whether the change touches what the rule judges or does, so that what it knew and what it said is over."""
    return any(name not in COSMETIC for name in differences(before, after))


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
