"""Commands: at most one of a run is active, which an index of the database sees to."""

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

from .tables import commands, events

_ACTIVE = commands.c.state.in_([state.value for state in ACTIVE])
_NEWEST_FIRST = (commands.c.issued_at.desc(), commands.c.command_id)
_QUEUED = (  # asked with every reply
    sa.select(commands)
    .where(commands.c.run_id == sa.bindparam("of_run"), commands.c.incarnation == sa.bindparam("of_incarnation"))
    .where(commands.c.state == CommandState.QUEUED.value)
    .order_by(*_NEWEST_FIRST)
)


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a command's history: the state it came into, when, and why."""

    state: CommandState
    at: datetime
    reason: str


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
    """Keep a new command; False when the run has got an active one, or this idempotency key, in the meantime."""
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(commands), _row(command))
    except sa.exc.IntegrityError:
        return False
    return True


def save_command(connection: sa.Connection, command: IssuedCommand, before: CommandState) -> bool:
    """Replace the row of a command that still stands in `before`; False when it does not."""
    mine = (
        commands.c.run_id == command.run_id,
        commands.c.command_id == command.command_id,
        commands.c.state == before.value,
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


def by_key(connection: sa.Connection, run_id: str, idempotency_key: str) -> IssuedCommand | None:
    """The command made by an earlier request with this key; None when there was none."""
    return next(iter(_read(connection, commands.c.run_id == run_id, commands.c.idempotency_key == idempotency_key)), None)


def active_command(connection: sa.Connection, run_id: str) -> IssuedCommand | None:
    """The run's command that is queued, delivered or running; None when there is none."""
    return next(iter(_read(connection, commands.c.run_id == run_id, _ACTIVE)), None)


def active_commands(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, IssuedCommand]:
    """The active commands by run; runs without one are left out."""
    return {each.run_id: each for each in _read(connection, commands.c.run_id.in_(run_ids), _ACTIVE)}


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
        found.setdefault(told["command_id"], []).append(Change(CommandState(told["state"]), at, told.get("reason", "")))
    return {command_id: tuple(changes) for command_id, changes in found.items()}
