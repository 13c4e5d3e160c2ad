"""Alert rules: what they say, what makes one valid, and the pack that is on from the first run."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from trainer_agent.wire import series
from trainer_agent.wire.codec import WireError, from_json, to_json
from trainer_agent.wire.vocabulary import DataMode, Severity

from .detectors import DETECTORS, with_defaults
from .detectors.base import DetectorKind, Setting

__all__ = [
    "CHANGEABLE",
    "DEFAULT_RULES",
    "Action",
    "ActionKind",
    "AlertRule",
    "DetectorKind",
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


DEFAULT_RULES: Final = (
    AlertRule(
        rule_id="loss-not-finite",
        name="Loss is not finite",
        title="Loss is NaN",
        series=series.LOSS,
        detector=DetectorKind.NONFINITE,
        severity=Severity.CRITICAL,
        reason=(
            "A NaN loss is the end of a run unless a loss scaler skips the step, and the sign that is seen last. It fires "
            "at the very step, on the raw loss before any filter. It only tells: the agent's own guard stops a dead run "
            "at once, without a network, and knows whether a scaler protects the weights, which a rule cannot see. Give "
            "it an action if nobody guards the run."
        ),
    ),
    AlertRule(
        rule_id="steps-skipped",
        name="Optimizer steps skipped in a row",
        title="Steps are skipped",
        series=series.OVERFLOW,
        detector=DetectorKind.SKIP_STREAK,
        settings={"streak": 4},
        severity=Severity.CRITICAL,
        reason=(
            "A run dead in fp16 may keep finite weights and even a finite loss: every step is skipped and the loss scale "
            "slides to 0. One skip in about 2,000 steps is normal and must stay quiet; four in a row came within 3 steps "
            "of death in 4 of 4 measured runs and never in healthy ones. In the first 100 steps the scaler searches, and "
            "16 in a row are allowed."
        ),
    ),
    AlertRule(
        rule_id="grad-norm-spike",
        name="Gradient norm far above its recent past",
        title="Grad norm spikes",
        series=series.GRAD_NORM,
        detector=DetectorKind.SPIKE,
        settings={"times": 3.0, "spreads": 6.0},
        severity=Severity.WARNING,
        reason=(
            "The earliest sign measured: over 3 times the median of the last 128 points and 6 robust spreads above it, it "
            "warned 21 to 29 steps before death in 4 of 4 runs and never in their 4 healthy twins. It sees the shock, not "
            "whether the run absorbs it: most spikes heal by themselves, so it only tells unless it is given an action."
        ),
    ),
    AlertRule(
        rule_id="loss-scale-collapse",
        name="Loss scale under 1",
        title="Loss scale collapses",
        series=series.LOSS_SCALE,
        detector=DetectorKind.THRESHOLD,
        settings={"below": 1.0},
        severity=Severity.WARNING,
        reason=(
            "A scale under 1 shrinks the gradients that it should lift out of fp16's underflow. It is what is left when "
            "skipped steps come often but not in a row: the scale halves at each and doubles only after 2,000 clean "
            "steps."
        ),
    ),
    AlertRule(
        rule_id="grad-norm-over-10",
        name="Gradient norm over 10",
        title="Grad norm over 10",
        series=series.GRAD_NORM,
        detector=DetectorKind.THRESHOLD,
        settings={"above": 10.0},
        severity=Severity.INFO,
        reason=(
            "The simple rule most people begin with. A healthy norm depends on the model, so a fixed limit cries wolf on "
            "many runs: it is shown on page and chart, and nobody is paged until you raise its severity. In the measured "
            "runs it came 7 to 14 steps before death, the spike rule 21 to 29."
        ),
    ),
    AlertRule(
        rule_id="loss-rises-5",
        name="Loss rises 5 times in a row",
        title="Loss rises",
        series=series.LOSS,
        detector=DetectorKind.CONSECUTIVE_RISE,
        settings={"rises": 5},
        severity=Severity.INFO,
        reason=(
            "Simple to say, and noise does it too: it fired falsely in a healthy stretch and missed 1 of 4 deaths. It is "
            "shown, and nobody is paged until you raise its severity."
        ),
    ),
)
"""The most serious first; the page lists them in this order. All are `enabled`, none acts until somebody gives it an action."""
