"""Rules: read by everything, made and changed by people, and kept up with the default pack."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import rule_changes
from server.domain.alerts import CloseReason
from server.domain.default_rules import DEFAULT_RULES
from server.domain.events import Event, EventType
from server.domain.rule_flaws import WrongRuleError
from server.domain.rules import AlertRule, ScopeKind, rule_to_json
from server.store import alerts as alerts_store
from server.store import rules as store
from server.store import runs as run_store
from server.store import standing as standings
from server.store.touched import touch

from . import countdowns, transitions
from .errors import Conflict, Invalid, NotFound
from .recording import record

MAX_OWN_RULES = 200
SERVER = "LossGuard"
"""Who changes rules where no person does."""
_FIX = "correct the named fields and send it again"
_OVERTAKEN = ("somebody else has changed this rule at the same moment", "read the rule and decide again")


def ensure_rules(connection: Connection, now: datetime, pack: Iterable[AlertRule] = DEFAULT_RULES) -> None:
    """Put the pack's rules in place: 1 those of an older pack that nobody has edited are replaced, 2 new ones are added.

    A rule that is in the pack no more goes, unless somebody has edited it.
    """
    newest = {rule.rule_id: rule for rule in pack}
    for stored in store.read_rules(connection):
        if not stored.edited:
            _follow_pack(connection, stored, newest.get(stored.rule_id), now)
    store.add_missing(connection, newest.values())
    store.place(connection, newest)


def _follow_pack(connection: Connection, stored: AlertRule, newest: AlertRule | None, now: datetime) -> None:
    if newest is None:
        _forget(connection, stored, _Deed("taken out of the default pack", SERVER, now))
        return
    following = rule_changes.replace_by(stored, newest)
    if following != stored:
        _put(connection, stored, following, _Deed("updated with the default pack", SERVER, now))


def create(connection: Connection, given: Mapping[str, Any], by: str, now: datetime) -> AlertRule:
    """A new rule out of parsed JSON, see `rule_changes.made`. It judges from the next point on.

    Raises:
        Invalid: its `errors` list all wrong fields; or there are too many rules.
    """
    if sum(rule.rule_id not in _default_ids() for rule in store.read_rules(connection)) >= MAX_OWN_RULES:
        raise Invalid(f"there are {MAX_OWN_RULES} rules beside the defaults already", "delete one that is not needed any more")
    try:
        rule = rule_changes.made(given, f"rule_{secrets.token_hex(6)}")
    except WrongRuleError as wrong:
        raise _invalid(wrong) from None
    _check_scope(connection, rule)
    store.add_rule(connection, rule)
    _tell(connection, rule, _Deed("made", by, now), {"changes": rule_to_json(rule)})
    return rule


def change(
    connection: Connection, rule_id: str, changes: Mapping[str, Any], by: str, now: datetime, *, version: int | None = None
) -> AlertRule:
    """The rule with `changes` (parsed JSON, see `rule_changes.changed`) under its next version.

    It starts afresh: its open alerts close as `rule_changed`, with no word that they are over, and it fires again by itself if
    the new condition holds. Other words for the same rule close nothing. A change that changes nothing does nothing.

    Args:
        connection: of the unit of work.
        rule_id: which.
        changes: what is to be different.
        by: who says so.
        now: the time.
        version: the one that the change was made on, where that is known.

    Raises:
        NotFound: there is no such rule.
        Invalid: its `errors` list all that is wrong with the change.
        Conflict: the rule has another version by now.
    """
    rule = _require(connection, rule_id)
    if version is not None and version != rule.version:
        fix = "read the rule and decide again"
        raise Conflict(f"the rule has been changed meanwhile: it is at version {rule.version}, not {version}", fix)
    try:
        following = rule_changes.changed(rule, changes)
    except WrongRuleError as wrong:
        raise _invalid(wrong) from None
    if following.version == rule.version:
        return rule
    _check_scope(connection, following)
    return _put(connection, rule, following, _Deed("changed", by, now))


def reset(connection: Connection, rule_id: str, by: str, now: datetime) -> AlertRule:
    """A default rule as the pack has it, whatever was made of it.

    Raises:
        NotFound: there is no such rule.
        Conflict: it is none of the pack, or somebody else was quicker.
    """
    rule = _require(connection, rule_id)
    default = next((each for each in DEFAULT_RULES if each.rule_id == rule_id), None)
    if default is None:
        raise Conflict("this is no default rule, so there is nothing to go back to", "change it, or delete it")
    following = rule_changes.replace_by(rule, default)
    return rule if following == rule else _put(connection, rule, following, _Deed("reset", by, now))


def remove(connection: Connection, rule_id: str, by: str, now: datetime) -> None:
    """Forget a person's own rule. Its open alerts close as `rule_changed`; those that are over stay.

    Raises:
        NotFound: there is no such rule.
        Conflict: it is a default rule.
    """
    rule = _require(connection, rule_id)
    if rule_id in _default_ids():
        raise Conflict("a default rule cannot be deleted: the next start would bring it back", "disable it instead")
    _forget(connection, rule, _Deed("deleted", by, now))


def is_default(rule_id: str) -> bool:
    """Whether a rule is one of the default pack, edited or not."""
    return rule_id in _default_ids()


def _default_ids() -> frozenset[str]:
    return frozenset(rule.rule_id for rule in DEFAULT_RULES)


def _require(connection: Connection, rule_id: str) -> AlertRule:
    rule = store.read_rule(connection, rule_id)
    if rule is None:
        raise NotFound(f"there is no rule {rule_id[:80]!r}", "read the list of rules")
    return rule


def _invalid(wrong: WrongRuleError) -> Invalid:
    return Invalid(str(wrong), _FIX, [(flaw.field, flaw.message) for flaw in wrong.flaws])


def _check_scope(connection: Connection, rule: AlertRule) -> None:
    """A rule for one run that does not exist would watch nothing, without a word."""
    name = rule.scope.name
    if rule.scope.kind is ScopeKind.RUN and run_store.get(connection, name) is None:
        message = f"is no run that the server knows: {name[:80]!r}"
        fix = "give the id of a run, as it stands in the address of its page"
        raise Invalid(f"scope.name {message}", fix, [("scope.name", message)])


@dataclass(frozen=True, slots=True)
class _Deed:
    """What was done to a rule, by whom and when: "changed", or any other word that fits "the rule X was ... by Y"."""

    what: str
    by: str
    at: datetime


def _put(connection: Connection, rule: AlertRule, following: AlertRule, deed: _Deed) -> AlertRule:
    """Write the following version of a rule down, and do what a change brings."""
    afresh = rule_changes.starts_afresh(rule, following)
    if not (store.save_rule if afresh else store.rename)(connection, following, rule.version):
        raise Conflict(*_OVERTAKEN)
    from_steps = _start_afresh(connection, rule.rule_id, deed.at) if afresh else {}
    different = rule_changes.differences(rule, following)
    data = {
        "changes": {name: after for name, (_, after) in different.items()},
        "before": {name: before for name, (before, _) in different.items()},
        "starts_afresh": afresh,
        "from_steps": from_steps,
    }
    _tell(connection, following, deed, data)
    return following


def _forget(connection: Connection, rule: AlertRule, deed: _Deed) -> None:
    _start_afresh(connection, rule.rule_id, deed.at)
    store.remove_rule(connection, rule.rule_id)
    _tell(connection, rule, deed, {})


def _tell(connection: Connection, rule: AlertRule, deed: _Deed, more: Mapping[str, Any]) -> None:
    ending = ", and starts afresh" if more.get("starts_afresh") else ""
    data = {
        "rule_id": rule.rule_id,
        "rule_name": rule.name,
        "version": rule.version,
        "what": deed.what,
        "by": deed.by,
        "text": f"The rule {rule.name} was {deed.what} by {deed.by}{ending}",
        **more,
    }
    record(connection, Event(EventType.RULE_CHANGED, deed.at, data=data))


def _start_afresh(connection: Connection, rule_id: str, now: datetime) -> dict[str, int]:
    """Close the rule's open alerts on all runs. The step of each live run from which on the next version judges."""
    # Whoever still judges by the old version finishes first, so that its alerts close too.
    steps = run_store.lock_live(connection)
    for alert in alerts_store.open_alerts(connection, rule_id=rule_id):
        standing = standings.read_standing(connection, alert.run_id)
        step = alert.onset_step if standing is None else max(standing.step, alert.onset_step)
        transitions.cut_off(connection, alert, CloseReason.RULE_CHANGED, now, step)
        countdowns.dismiss(connection, alert, CloseReason.RULE_CHANGED, now, step)
        touch(connection, alert.run_id)
    return steps
