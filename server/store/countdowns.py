"""Countdowns: at most one of a run is counting."""

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.countdowns import Countdown, CountdownState
from server.domain.rules import Action
from trainer_agent.wire.codec import from_json, to_json

from .tables import countdowns

_COUNTING = countdowns.c.state == CountdownState.COUNTING.value


def _row(countdown: Countdown) -> dict[str, Any]:
    row: dict[str, Any] = to_json(countdown)
    times = {name: getattr(countdown, name) for name in ("started_at", "due_at", "ended_at")}
    return {**row, **times, "action": json.dumps(row["action"], allow_nan=False)}


def _countdown(row: sa.Row[Any]) -> Countdown:
    columns = dict(row._mapping)  # noqa: SLF001  the documented way to a row's columns by name
    action = from_json(Action, json.loads(columns["action"]))
    return Countdown(**{**columns, "state": CountdownState(columns["state"]), "action": action})


def add_countdown(connection: sa.Connection, countdown: Countdown) -> None:
    """Keep a new countdown."""
    connection.execute(sa.insert(countdowns), _row(countdown))


def end_countdown(connection: sa.Connection, ended: Countdown) -> bool:
    """Write the end of a countdown that still counts; False when it does not."""
    mine = (countdowns.c.run_id == ended.run_id, countdowns.c.countdown_id == ended.countdown_id, _COUNTING)
    return connection.execute(sa.update(countdowns).where(*mine).values(_row(ended))).rowcount == 1


def say(connection: sa.Connection, countdown: Countdown, outcome: str) -> None:
    """Write down of a countdown that still counts what it waits for."""
    mine = (countdowns.c.run_id == countdown.run_id, countdowns.c.countdown_id == countdown.countdown_id, _COUNTING)
    connection.execute(sa.update(countdowns).where(*mine).values(outcome=outcome))


def active_countdown(connection: sa.Connection, run_id: str) -> Countdown | None:
    """The countdown of the run that still counts; None when none does."""
    query = sa.select(countdowns).where(countdowns.c.run_id == run_id, _COUNTING)
    row = connection.execute(query.order_by(countdowns.c.started_at)).first()
    return None if row is None else _countdown(row)


def active_countdowns(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Countdown]:
    """The countdowns that still count, by run; runs without one are left out."""
    rows = connection.execute(sa.select(countdowns).where(countdowns.c.run_id.in_(run_ids), _COUNTING))
    return {row.run_id: _countdown(row) for row in rows}


def read_countdowns(connection: sa.Connection, run_id: str) -> tuple[Countdown, ...]:
    """All countdowns of a run, the newest first."""
    query = sa.select(countdowns).where(countdowns.c.run_id == run_id)
    rows = connection.execute(query.order_by(countdowns.c.started_at.desc(), countdowns.c.countdown_id))
    return tuple(_countdown(row) for row in rows)


def read_countdown(connection: sa.Connection, run_id: str, countdown_id: str) -> Countdown | None:
    """One countdown; None when there is none of that id."""
    query = sa.select(countdowns).where(countdowns.c.run_id == run_id, countdowns.c.countdown_id == countdown_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else _countdown(row)


def postpone(connection: sa.Connection, until: datetime) -> None:
    """Let no countdown be due before `until`."""
    connection.execute(sa.update(countdowns).where(_COUNTING, countdowns.c.due_at < until).values(due_at=until))


def due_countdowns(connection: sa.Connection, now: datetime, limit: int = 100) -> tuple[Countdown, ...]:
    """Countdowns whose time is up, the most overdue first."""
    query = sa.select(countdowns).where(countdowns.c.due_at <= now, _COUNTING).order_by(countdowns.c.due_at).limit(limit)
    return tuple(_countdown(row) for row in connection.execute(query))
