"""Commands: at most one of a run is active, and at most one waits behind it, which two indexes of the database see to."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.commands import ACTIVE, IssuedCommand
from trainer_agent.wire.codec import from_json, to_json
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState

from .tables import command_keys, commands, events

_IN_LINE = commands.c.state.in_([state.value for state in ACTIVE])
_ACTIVE = sa.and_(_IN_LINE, commands.c.behind.is_(None))
_WAITING = sa.and_(_IN_LINE, commands.c.behind.is_not(None))
_NEWEST_FIRST = (commands.c.issued_at.desc(), commands.c.command_id)
_QUEUED = (  # asked with every reply
    sa.select(commands)
    .where(commands.c.run_id == sa.bindparam("of_run"), commands.c.incarnation == sa.bindparam("of_incarnation"))
    .where(commands.c.state == CommandState.QUEUED.value, commands.c.behind.is_(None))
    .order_by(*_NEWEST_FIRST)
)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a command's history: from which state into which, when, why, by whom and from where.

    What an earlier version wrote has no `before`, `by` and `place`.
    """

    state: CommandState
    at: datetime
    reason: str
    before: CommandState | None = None
    by: str = ""
    place: str = ""


def _row(command: IssuedCommand) -> dict[str, Any]:
    row: dict[str, Any] = to_json(command)
    payload = row.pop("rollback")
    times = {name: getattr(command, name) for name in ("issued_at", "updated_at", "deadline_at")}
    return {**row, **times, "payload": None if payload is None else json.dumps(payload, allow_nan=False)}


def _command(row: sa.Row[Any]) -> IssuedCommand:
    columns = dict(row._mapping)  # noqa: SLF001  the documented way to a row's columns by name
    payload = columns.pop("payload")
    rollback = None if payload is None else from_json(RollbackPayload, json.loads(payload))
    kind, state = CommandKind(columns["kind"]), CommandState(columns["state"])
    return IssuedCommand(**{**columns, "kind": kind, "state": state, "rollback": rollback})


def add_command(connection: sa.Connection, command: IssuedCommand) -> bool:
    """Keep a new command; False when the run has got another one of its place, or this idempotency key, in the meantime."""
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(commands), _row(command))
    except sa.exc.IntegrityError:
        return False
    return True


def save_command(connection: sa.Connection, command: IssuedCommand) -> bool:
    """Replace the row of a command by its next version; False when somebody else has made that version already."""
    mine = (
        commands.c.run_id == command.run_id,
        commands.c.command_id == command.command_id,
        commands.c.version == command.version - 1,
    )
    return connection.execute(sa.update(commands).where(*mine).values(_row(command))).rowcount == 1


def _read(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> tuple[IssuedCommand, ...]:
    query = sa.select(commands).where(*conditions).order_by(*_NEWEST_FIRST)
    return tuple(_command(row) for row in connection.execute(query))


def read_command(connection: sa.Connection, run_id: str, command_id: str) -> IssuedCommand | None:
    """One command; None when the run has none of that id."""
    return next(iter(_read(connection, commands.c.run_id == run_id, commands.c.command_id == command_id)), None)


def read_commands(connection: sa.Connection, run_id: str) -> tuple[IssuedCommand, ...]:
    """All commands of a run, newest first."""
    return _read(connection, commands.c.run_id == run_id)


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered with a command, which it may have made or found."""

    request_digest: str
    command_id: str


def answered(connection: sa.Connection, run_id: str, idempotency_key: str) -> Answered | None:
    """What a request with this key was answered with; None when there was none."""
    c = command_keys.c
    query = sa.select(c.request_digest, c.command_id).where(c.run_id == run_id, c.idempotency_key == idempotency_key)
    row = connection.execute(query).one_or_none()
    return None if row is None else Answered(*row)


def keep_answer(connection: sa.Connection, command: IssuedCommand, idempotency_key: str, digest: str, at: datetime) -> None:
    """Remember what a request was answered with. For good: a command is small, and a retry may come late."""
    row = {
        "run_id": command.run_id,
        "idempotency_key": idempotency_key,
        "request_digest": digest,
        "command_id": command.command_id,
        "at": at,
    }
    connection.execute(sa.insert(command_keys), row)


def active_command(connection: sa.Connection, run_id: str) -> IssuedCommand | None:
    """The run's command that is queued, delivered or running and waits for no other; None when there is none."""
    return next(iter(_read(connection, commands.c.run_id == run_id, _ACTIVE)), None)


def waiting_command(connection: sa.Connection, run_id: str) -> IssuedCommand | None:
    """The run's command that waits behind another one; None when there is none."""
    return next(iter(_read(connection, commands.c.run_id == run_id, _WAITING)), None)


def in_line(connection: sa.Connection, run_ids: Collection[str]) -> tuple[IssuedCommand, ...]:
    """The active and the waiting commands of these runs."""
    return _read(connection, commands.c.run_id.in_(run_ids), _IN_LINE)


def queued_for(connection: sa.Connection, run_id: str, incarnation: str) -> tuple[IssuedCommand, ...]:
    """What waits to be handed to this incarnation."""
    rows = connection.execute(_QUEUED, {"of_run": run_id, "of_incarnation": incarnation})
    return tuple(_command(row) for row in rows)


def renew_deadlines(connection: sa.Connection, deadline_at: datetime) -> None:
    """Give every command that the agent has at least until `deadline_at`."""
    fetched = commands.c.state.in_([CommandState.DELIVERED.value, CommandState.RUNNING.value])
    early = commands.c.deadline_at < deadline_at
    connection.execute(sa.update(commands).where(fetched, early).values(deadline_at=deadline_at))


def overdue_commands(connection: sa.Connection, now: datetime) -> tuple[IssuedCommand, ...]:
    """Active commands whose deadline has passed."""
    return _read(connection, commands.c.deadline_at <= now, _ACTIVE)


def read_histories(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, tuple[Change, ...]]:
    """What happened to each command of these runs, oldest first, out of the events."""
    query = sa.select(events.c.at, events.c.data).where(events.c.run_id.in_(run_ids), events.c.type.like("command.%"))
    found: dict[str, list[Change]] = {}
    for at, data in connection.execute(query.order_by(events.c.event_id)):
        told = json.loads(data)
        found.setdefault(told["command_id"], []).append(_change(at, told))
    return {command_id: tuple(changes) for command_id, changes in found.items()}


def _change(at: datetime, told: dict[str, Any]) -> Change:
    before = told.get("before")
    return Change(
        state=CommandState(told["state"]),
        at=at,
        reason=told.get("reason", ""),
        before=None if before is None else CommandState(before),
        by=told.get("by", ""),
        place=told.get("place", ""),
    )
