"""Backtests: one row a job, from the question to the result. Only the server process that has taken a job writes to it."""

import json
import zlib
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from server.domain.backtests import OPEN, Backtest, BacktestState, Request, Result
from trainer_agent.wire.codec import from_json, to_json

from .tables import backtests

_c = backtests.c
_OPEN = _c.state.in_([state.value for state in OPEN])
_HEAD = [column for column in backtests.columns if column.name not in {"logs", "result"}]

Logs = list[tuple[str, str]]
"""Name and text of each log that was brought along."""


def add(connection: sa.Connection, backtest: Backtest, logs: Logs) -> None:
    """Keep a new job."""
    row = {name: getattr(backtest, name) for name in Backtest.__slots__ if name not in {"state", "request"}}
    row |= {"state": backtest.state.value, "request": _dump(backtest.request), "logs": _packed(logs)}
    connection.execute(sa.insert(backtests), row)


def get(connection: sa.Connection, backtest_id: str) -> Backtest | None:
    """One job; None when there is none of that id."""
    row = connection.execute(sa.select(*_HEAD).where(_c.backtest_id == backtest_id)).mappings().one_or_none()
    return None if row is None else _backtest(row)


def newest(connection: sa.Connection, limit: int) -> list[Backtest]:
    """The jobs asked for last, the newest first."""
    query = sa.select(*_HEAD).order_by(_c.created_at.desc(), _c.backtest_id).limit(limit)
    return [_backtest(row) for row in connection.execute(query).mappings()]


def read_result(connection: sa.Connection, backtest_id: str) -> dict[str, Any] | None:
    """What came out, as strict JSON; None while nothing has."""
    text = connection.execute(sa.select(_c.result).where(_c.backtest_id == backtest_id)).scalar_one_or_none()
    parsed: dict[str, Any] | None = None if text is None else json.loads(text)
    return parsed


def read_logs(connection: sa.Connection, backtest_id: str) -> Logs:
    """The logs that were brought along."""
    body = connection.execute(sa.select(_c.logs).where(_c.backtest_id == backtest_id)).scalar_one_or_none()
    return [] if body is None else [(name, text) for name, text in json.loads(zlib.decompress(body))]


def count_open(connection: sa.Connection) -> int:
    """How many jobs wait or run."""
    return int(connection.execute(sa.select(sa.func.count()).where(_OPEN)).scalar_one())


def has_work(connection: sa.Connection, died_before: datetime) -> bool:
    """Whether there is a job to take."""
    return connection.execute(sa.select(_c.backtest_id).where(_free(died_before)).limit(1)).first() is not None


def take(connection: sa.Connection, worker: str, now: datetime, died_before: datetime) -> Backtest | None:
    """The oldest job that waits, or whose server has died, taken for the server process `worker`; None where there is none."""
    query = sa.select(*_HEAD).where(_free(died_before)).order_by(_c.created_at, _c.backtest_id).limit(1)
    row = connection.execute(query.with_for_update(skip_locked=True)).mappings().one_or_none()
    if row is None:
        return None
    values = {
        "state": BacktestState.RUNNING.value,
        "taken_by": worker,
        "attempts": row["attempts"] + 1,
        "heard_at": now,
        "started_at": now,
        "done": 0,
        "points": 0,
    }
    connection.execute(sa.update(backtests).where(_c.backtest_id == row["backtest_id"]).values(values))
    return _backtest({**row, **values})


def _free(died_before: datetime) -> sa.ColumnElement[bool]:
    orphaned = sa.and_(_c.state == BacktestState.RUNNING.value, _c.heard_at < died_before)
    return sa.or_(_c.state == BacktestState.QUEUED.value, orphaned)


def orphan(connection: sa.Connection, long_ago: datetime) -> None:
    """Take every running job from the server process that has it: that one is known to be gone."""
    connection.execute(sa.update(backtests).where(_c.state == BacktestState.RUNNING.value).values(heard_at=long_ago))


def save(connection: sa.Connection, backtest_id: str, worker: str, values: dict[str, Any]) -> bool:
    """Change a running job that `worker` still has; False when it has not: it was cancelled, or taken up by another."""
    mine = (_c.backtest_id == backtest_id, _c.taken_by == worker, _c.state == BacktestState.RUNNING.value)
    return connection.execute(sa.update(backtests).where(*mine).values(values)).rowcount == 1


def as_result(result: Result) -> str:
    """A result as it is kept."""
    return _dump(result)


def cancel(connection: sa.Connection, backtest_id: str, now: datetime) -> bool:
    """End a job that is not over yet; False when it is."""
    mine = (_c.backtest_id == backtest_id, _OPEN)
    values = {"state": BacktestState.CANCELLED.value, "ended_at": now}
    return connection.execute(sa.update(backtests).where(*mine).values(values)).rowcount == 1


def prune(connection: sa.Connection, keep: int) -> None:
    """Forget the oldest jobs that are over, beyond `keep`."""
    newest_first = sa.select(_c.backtest_id).where(sa.not_(_OPEN)).order_by(_c.created_at.desc(), _c.backtest_id)
    old = list(connection.execute(newest_first.offset(keep)).scalars())
    if old:
        connection.execute(sa.delete(backtests).where(_c.backtest_id.in_(old)))


def _dump(value: Request | Result) -> str:
    return json.dumps(to_json(value), allow_nan=False, separators=(",", ":"))


def _packed(logs: Logs) -> bytes | None:
    return zlib.compress(json.dumps(logs).encode(), 6) if logs else None


def _backtest(row: Any) -> Backtest:
    values = {name: row[name] for name in Backtest.__slots__}
    request = from_json(Request, json.loads(row["request"]))
    return Backtest(**{**values, "state": BacktestState(row["state"]), "request": request})
