"""One step of a state machine, written down and told: the row by compare-and-set, then the event, in the caller's unit of work.

These are the only places where an alert, a countdown or a command changes its state, so no change goes untold and none is told
that did not happen. Each answers what stands in the database afterwards.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import commands as commands_domain
from server.domain import countdowns as countdowns_domain
from server.domain.alerts import Alert, CloseReason
from server.domain.commands import SERVER, Hand, IssuedCommand
from server.domain.countdowns import Countdown, CountdownInput
from server.domain.events import Event, EventType
from server.domain.wording.clauses import clause
from server.domain.wording.event_words import COUNTDOWN_NAME, DRY_RUN_NAME, command_told, told
from server.domain.wording.words import Both, by_language
from server.store import alerts as alerts_store
from server.store import commands as commands_store
from server.store import countdowns as countdowns_store
from server.store.touched import touch
from trainer_agent.wire.vocabulary import AlertState, CommandState, Severity

from . import incidents
from .recording import record


def fire(connection: Connection, alert: Alert, now: datetime, *, is_new: bool) -> None:
    """An episode fires, at once (`is_new`) or after it was pending. One that was cut off meanwhile does not."""
    if is_new:
        alerts_store.add_alert(connection, alert)
    elif not alerts_store.save_alert(connection, alert, AlertState.PENDING):
        return
    record(connection, alert_event(EventType.ALERT_FIRING, alert, alert.firing_step, now))
    incidents.join(connection, alert, now)


def resolve(connection: Connection, alert: Alert, before: AlertState, now: datetime) -> None:
    """An episode that fired has recovered."""
    if alerts_store.save_alert(connection, alert, before):
        record(connection, alert_event(EventType.ALERT_RESOLVED, alert, alert.resolved_step, now))
        incidents.leave(connection, alert, now)


def cut_off(connection: Connection, alert: Alert, because: CloseReason, now: datetime, step: int | None = None) -> None:
    """An open episode ends without having recovered. Nobody is told "resolved"; one that was only pending is forgotten.

    `step` is where the run stands, for an episode that is cut off in the middle of its segment.
    """
    if alert.state is AlertState.PENDING:
        alerts_store.remove_alert(connection, alert.run_id, alert.alert_id)
        return
    closed = replace(alert, state=AlertState.RESOLVED, resolved_step=step, resolved_at=now, closed_because=because)
    if not alerts_store.save_alert(connection, closed, alert.state):
        return
    if because is CloseReason.REWOUND:
        record(connection, alert_event(EventType.ALERT_REWOUND, closed, None, now))
    incidents.leave(connection, closed, now)


def alert_event(kind: EventType, alert: Alert, step: int | None, now: datetime) -> Event:
    """What is told of an alert: everything a message or a chart mark needs."""
    data = {
        "alert_id": alert.alert_id,
        "rule_id": alert.rule_id,
        "rule_name": alert.rule_name,
        "title": alert.title,
        "severity": alert.severity,
        "series": alert.series,
        "rank": alert.rank,
        "value": alert.value,
        "limit": alert.limit,
        "onset_step": alert.onset_step,
        "text": alert.text if kind is not EventType.ALERT_RESOLVED else f"Over: {alert.text}",
    }
    return Event(kind, now, alert.run_id, step, alert.segment, data)


def start_countdown(connection: Connection, countdown: Countdown, text: Both, rule: str) -> None:
    """A countdown begins, and people are told while there is time to say no. `rule` is the rule's title."""
    countdowns_store.add_countdown(connection, countdown)
    name = DRY_RUN_NAME if countdown.action.dry_run else COUNTDOWN_NAME
    said = told(EventType.COUNTDOWN_STARTED, {"text": text}, rule=rule, name=name) | {"severity": Severity.WARNING}
    record(connection, _countdown_event(EventType.COUNTDOWN_STARTED, countdown, countdown.started_at, said))


def end_countdown(connection: Connection, countdown: Countdown, what: CountdownInput, outcome: str, now: datetime) -> Countdown:
    """The countdown after `what`; as it was when it has ended already."""
    after = countdowns_domain.step(countdown.state, what)
    ended = replace(countdown, state=after, ended_at=now, outcome=outcome)
    if after is countdown.state or not countdowns_store.end_countdown(connection, ended):
        return countdowns_store.read_countdown(connection, countdown.run_id, countdown.countdown_id) or countdown
    said = by_language(outcome=clause(outcome), text=clause(outcome))
    record(connection, _countdown_event(EventType.COUNTDOWN_ENDED, ended, now, said))
    return ended


def _countdown_event(kind: EventType, countdown: Countdown, now: datetime, said: dict[str, Any]) -> Event:
    data = {
        "countdown_id": countdown.countdown_id,
        "state": countdown.state,
        "kind": countdown.action.kind,
        "rule_id": countdown.rule_id,
        "rule_name": countdown.rule_name,
        "alert_id": countdown.alert_id,
        "due_at": countdown.due_at.isoformat(),
        "total_seconds": countdown.action.countdown_seconds,
        "checkpoint_id": countdown.checkpoint_id,
        "target_step": countdown.target_step,
        "dry_run": countdown.action.dry_run,
    }
    return Event(kind, now, countdown.run_id, countdown.target_step, countdown.segment, data | said)


def move_command(
    connection: Connection,
    command: IssuedCommand,
    following: CommandState,
    outcome: str,
    now: datetime,
    *,
    by: Hand = SERVER,
    step: int | None = None,
    details: dict[str, Any] | None = None,
) -> IssuedCommand:
    """The command in its `following` state; as it stands when there is no such arrow or it has moved on meanwhile."""
    if not commands_domain.may_follow(command.state, following):
        return command
    moved = replace(
        command,
        state=following,
        outcome=outcome if following not in commands_domain.ACTIVE else command.outcome,
        step=step if step is not None else command.step,
        updated_at=now,
        deadline_at=commands_domain.deadline(command.kind, following, now),
        version=command.version + 1,
    )
    if not commands_store.save_command(connection, moved):
        return commands_store.read_command(connection, command.run_id, command.command_id) or command
    record(connection, command_event(moved, outcome, now, by=by, before=command.state, details=details))
    return moved


def change_command(connection: Connection, command: IssuedCommand, now: datetime, **changes: Any) -> bool:
    """Change a command without changing its state; False when it has moved on meanwhile. The page is told, nobody is paged."""
    changed = replace(command, updated_at=now, version=command.version + 1, **changes)
    if not commands_store.save_command(connection, changed):
        return False
    touch(connection, command.run_id)
    return True


def amend_command(connection: Connection, command: IssuedCommand, addition: str, now: datetime) -> None:
    """Add to the outcome of a command that has ended, once; its state stays."""
    if addition not in command.outcome:
        change_command(connection, command, now, outcome=f"{command.outcome}; {addition}")


def command_event(
    command: IssuedCommand,
    reason: str,
    now: datetime,
    *,
    by: Hand,
    before: CommandState | None = None,
    details: dict[str, Any] | None = None,
) -> Event:
    """What is told of a command: which, what became of it, why, by whom and from where."""
    rollback = command.rollback
    target = None if rollback is None else rollback.target_step
    data = {
        "command_id": command.command_id,
        "kind": command.kind,
        "state": command.state,
        "before": before,
        "issued_by": command.issued_by,
        "by": by.name,
        "place": by.place,
        "checkpoint_id": rollback.checkpoint_id if rollback is not None else None,
        "target_step": target,
        "new_segment": rollback.new_segment if rollback is not None else None,
        "value": command.value,
        **command_told(command.kind, command.state, target, command.value, clause(reason)),
    }
    kind = EventType(f"command.{command.state}")
    return Event(kind, now, command.run_id, command.step, command.segment, data | (details or {}))
