"""Rules as people make and change them: read field by field out of what was sent, and what a change starts afresh."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from trainer_agent.wire import series
from trainer_agent.wire.codec import WireError, from_json

from .detectors.base import DetectorKind
from .rule_flaws import MAX_NAME, Flaw, WrongRuleError, problems
from .rules import CHANGEABLE, COSMETIC, Action, AlertRule, Scope, rule_to_json

NEEDED: Final = ("name", "series", "detector")
_PARTS: Final[Mapping[str, type]] = {"action": Action, "scope": Scope}
_BLANK: Final = AlertRule("rule", "Rule", "Rule", series.LOSS, DetectorKind.NONFINITE)


def made(given: Mapping[str, Any], rule_id: str) -> AlertRule:
    """A new rule of a person's own out of parsed JSON, keys of `CHANGEABLE`; a title left out is the name.

    Raises:
        WrongRuleError: a field is missing, unknown or wrong; all of them are listed.
    """
    missing = tuple(Flaw(name, "is missing: a rule needs it") for name in NEEDED if name not in given)
    rule, flaws = _read(_titled(given), replace(_BLANK, rule_id=rule_id, edited=True))
    return _sound(rule, (*missing, *flaws))


def _titled(given: Mapping[str, Any]) -> dict[str, Any]:
    """With the name for a title where there is none. A name that cannot be one is told of once, as the name."""
    name, title = given.get("name"), given.get("title", given.get("name"))
    rest = {part: said for part, said in given.items() if part != "title"}
    if title == name and not (isinstance(name, str) and name.strip() and len(name) <= MAX_NAME):
        return rest
    return {**rest, "title": title}


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
    flaws += tuple(flaw for flaw in problems(rule) if not _is_blamed(flaw, blamed, {each.field for each in flaws}))
    if flaws:
        raise WrongRuleError(flaws)
    return rule


def _is_blamed(flaw: Flaw, blamed: set[str], unread: set[str]) -> bool:
    """Whether a flaw may come of what could not be read. Each setting is read by itself, so the others are told of."""
    top, _, setting = flaw.field.partition(".")
    if top != "settings" or {"settings", "detector"} & unread:
        return top in blamed
    return top in blamed and (flaw.is_joint or not setting or flaw.field in unread)


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
