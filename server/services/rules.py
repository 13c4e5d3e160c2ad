"""Rules: read by everything, changed by people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import rules as domain
from server.domain.alerts import CloseReason
from server.domain.events import Event, EventType
from server.domain.rules import AlertRule
from server.store import alerts as alerts_store
from server.store import rules as store
from server.store import runs as run_store
from server.store import standing as standings
from server.store.touched import touch

from . import countdowns, transitions
from .errors import Conflict, Invalid, NotFound
from .recording import record


def change(connection: Connection, rule_id: str, changes: Mapping[str, Any], by: str, now: datetime) -> AlertRule:
    """The rule with `changes` (parsed JSON, see `domain.rules.CHANGEABLE`) under its next version.

    It starts afresh: its open alerts close as `rule_changed`, with no word that they are over, and it fires again by itself if
    the new condition holds. A change that changes nothing does nothing.

    Raises:
        NotFound: there is no such rule.
        Invalid: the text lists all that is wrong with the change.
        Conflict: somebody else has changed the rule at the same moment.
    """
    rule = store.read_rule(connection, rule_id)
    if rule is None:
        raise NotFound(f"there is no rule {rule_id[:80]!r}", "read the list of rules")
    try:
        following = domain.changed(rule, changes)
    except ValueError as error:
        raise Invalid(str(error), "correct the named fields and send the change again") from None
    if following.version == rule.version:
        return rule
    if not store.save_rule(connection, following, rule.version):
        raise Conflict("somebody else has changed this rule at the same moment", "read the rule and decide again")
    run_store.lock_live(connection)  # whoever still judges by the old version finishes first, so that its alerts close too
    _start_afresh(connection, rule_id, now)
    data = {"rule_id": rule_id, "rule_name": rule.name, "version": following.version, "by": by, "changes": dict(changes)}
    record(connection, Event(EventType.RULE_CHANGED, now, data=data))
    return following


def _start_afresh(connection: Connection, rule_id: str, now: datetime) -> None:
    for alert in alerts_store.open_alerts(connection, rule_id=rule_id):
        standing = standings.read_standing(connection, alert.run_id)
        step = alert.onset_step if standing is None else max(standing.step, alert.onset_step)
        transitions.cut_off(connection, alert, CloseReason.RULE_CHANGED, now, step)
        countdowns.dismiss(connection, alert, CloseReason.RULE_CHANGED, now, step)
        touch(connection, alert.run_id)
