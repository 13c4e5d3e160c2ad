"""Guard rails: what limits a rule that would act on a run, and the alert that calls people where the breaker opens."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import countdowns as domain
from server.domain import wording
from server.domain.alerts import Alert
from server.domain.countdowns import BREAKER_RULE_ID, Cause, Decision, PastRollback, Rails
from server.domain.rules import Action, AlertRule
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import countdowns as store
from server.store.standing import RunStanding
from trainer_agent.wire.vocabulary import AlertState, CommandKind, CommandState, Severity

from . import checkpoints, transitions
from .commands import RULE_PREFIX

KEY = "countdown:"
"""What the idempotency key of a rule's command begins with; the id of its countdown follows."""
_UNDONE = frozenset({CommandState.REJECTED, CommandState.CANCELLED, CommandState.EXPIRED, CommandState.SUPERSEDED})


def decide(connection: Connection, action: Action, alert: Alert, standing: RunStanding, step_now: int) -> Decision:
    """What a rule does by `action` now that `alert` fires, and what of the run's guard rails keeps it from more."""
    return domain.decide(action, _cause(alert), step_now, _rails(connection, standing))


def _cause(alert: Alert) -> Cause:
    return Cause(alert.rule_id, alert.series, alert.detector)


def _rails(connection: Connection, standing: RunStanding) -> Rails:
    return Rails(
        capabilities=standing.capabilities,
        incapable_because=standing.incapable_because,
        automatic_rollback=standing.automatic_rollback,
        has_target=checkpoints.propose(connection, standing.run_id).choice.target is not None,
        past=tuple(_past(connection, standing.run_id)),
    )


def _past(connection: Connection, run_id: str) -> Iterator[PastRollback]:
    """The rollbacks that rules have made in the life of the run, whatever those are called now."""
    for each in commands_store.read_commands(connection, run_id):
        if each.rollback is None or not each.issued_by.startswith(RULE_PREFIX) or each.state in _UNDONE:
            continue
        counted = store.read_countdown(connection, run_id, each.idempotency_key.removeprefix(KEY))
        alert = None if counted is None else alerts_store.read_alert(connection, run_id, counted.alert_id)
        cause = Cause(each.issued_by.removeprefix(RULE_PREFIX)) if alert is None else _cause(alert)
        yield PastRollback(cause, each.rollback.target_step)


def open_breaker(connection: Connection, rule: AlertRule, cause: Alert, decision: Decision, now: datetime) -> bool:
    """Call people, with a critical alert: the rule would have acted and must not. Once, until that alert is over: whether now."""
    if any(each.rule_id == BREAKER_RULE_ID for each in alerts_store.open_alerts(connection, cause.run_id)):
        return False
    seconds = rule.action.countdown_seconds if decision.kind is CommandKind.STOP else None
    called = replace(
        cause,
        alert_id=_breaker_id(cause),
        rule_id=BREAKER_RULE_ID,
        rule_name="Automatic actions halted",
        title="Needs a person",
        severity=Severity.CRITICAL,
        state=AlertState.FIRING,
        firing_at=now,
        incident_id=None,
        again_after=None,
        text=f"{wording.called(rule.action.kind, decision.because, seconds)} {cause.text}",
    )
    transitions.fire(connection, called, now, is_new=True)
    return True


def open_breaker_of(connection: Connection, cause: Alert) -> Alert | None:
    """The alert that called people because of `cause`, while it is open."""
    breaker = alerts_store.read_alert(connection, cause.run_id, _breaker_id(cause))
    return breaker if breaker is not None and breaker.is_open else None


def _breaker_id(cause: Alert) -> str:
    return derived_id("b", cause.run_id, cause.alert_id)


def derived_id(letter: str, *parts: str) -> str:
    """An id that follows from `parts`, so that whoever makes it again makes the same."""
    return f"{letter}_{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]}"
