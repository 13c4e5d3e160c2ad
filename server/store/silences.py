"""Silences."""

from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.silences import Silence

from .tables import silences

_c = silences.c
_RUNNING = _c.ended_at.is_(None)


def _silence(row: sa.Row[Any]) -> Silence:
    return Silence(**row._mapping)  # noqa: SLF001  the documented way to a row's columns by name


def add_silence(connection: sa.Connection, silence: Silence) -> None:
    """Keep a new silence."""
    connection.execute(sa.insert(silences), {field.name: getattr(silence, field.name) for field in fields(silence)})


def read_silence(connection: sa.Connection, silence_id: str) -> Silence | None:
    """One silence; None when there is none of that id."""
    row = connection.execute(sa.select(silences).where(_c.silence_id == silence_id)).one_or_none()
    return None if row is None else _silence(row)


def end_silence(connection: sa.Connection, silence_id: str, at: datetime, by: str) -> bool:
    """Write the end of a silence that has none yet; False when it has."""
    mine = (_c.silence_id == silence_id, _RUNNING)
    return connection.execute(sa.update(silences).where(*mine).values(ended_at=at, ended_by=by)).rowcount == 1


def running(connection: sa.Connection) -> tuple[Silence, ...]:
    """Those whose end is not written down, the first to end first. Whether one still holds is its own to say."""
    query = sa.select(silences).where(_RUNNING).order_by(_c.ends_at, _c.silence_id)
    return tuple(_silence(row) for row in connection.execute(query))


def over(connection: sa.Connection, now: datetime) -> tuple[Silence, ...]:
    """Those whose time is up and whose end is not written down yet."""
    query = sa.select(silences).where(_RUNNING, _c.ends_at <= now).order_by(_c.ends_at, _c.silence_id)
    return tuple(_silence(row) for row in connection.execute(query))


def read_silences(connection: sa.Connection, limit: int = 200) -> tuple[Silence, ...]:
    """All silences, the newest first."""
    query = sa.select(silences).order_by(_c.starts_at.desc(), _c.silence_id).limit(limit)
    return tuple(_silence(row) for row in connection.execute(query))
