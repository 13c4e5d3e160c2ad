"""One row per run and series: what a list needs to know without reading the points."""

import math
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from server.domain import reduction
from trainer_agent.wire import series as names
from trainer_agent.wire.messages import Column

from .packing import pack_sparkline, unpack_sparkline
from .tables import series_summaries as table
from .upserts import upsert

_KNOWN = sa.select(table).where(
    table.c.run_id == sa.bindparam("of_run"), table.c.series.in_(sa.bindparam("of_series", expanding=True))
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a series over all ranks and segments, rewound stretches included.

    `minimum` and `maximum` are of the finite values, None when there are none. `last` is the newest
    of the lowest rank that has the series, in the highest segment.
    """

    series: str
    count: int
    nonfinite_count: int
    first_nonfinite_step: int | None
    minimum: float | None
    maximum: float | None
    last_segment: int
    last_step: int
    last_value: float


def read_summaries(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, list[Summary]]:
    """All series of each run, by name. Runs without any are left out."""
    shown = [column for column in table.c if column.name != "sparkline"]
    rows = connection.execute(sa.select(*shown).where(table.c.run_id.in_(run_ids)).order_by(table.c.series))
    found: dict[str, list[Summary]] = {}
    for row in rows.mappings():
        found.setdefault(row["run_id"], []).append(_summary(row))
    return found


def read_sparklines(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Sequence[float]]:
    """The loss of each run in at most 60 values, the newest last. Runs without one are left out."""
    query = sa.select(table.c.run_id, table.c.sparkline, table.c.last_step, table.c.last_value)
    rows = connection.execute(query.where(table.c.run_id.in_(run_ids), table.c.series == names.LOSS))
    return {row.run_id: reduction.drawn(unpack_sparkline(row.sparkline), row.last_step, _number(row.last_value)) for row in rows}


def add(connection: sa.Connection, run_id: str, rank: int, segment: int, columns: Sequence[Column]) -> None:
    """Take points of one rank and segment, one column a series, into the summaries."""
    asked = {"of_run": run_id, "of_series": [column.series for column in columns]}
    known = {row["series"]: dict(row) for row in connection.execute(_KNOWN, asked).mappings()}
    rows = []
    for column in columns:
        row = known.get(column.series, {})
        after = {"run_id": run_id, "series": column.series, **_counted(row, column), **_kept(row)}
        if not row or (-rank, segment) >= (-row["last_rank"], row["last_segment"]):
            after |= {"last_rank": rank, "last_segment": segment, **_newest(column)}
            if column.series == names.LOSS and rank == 0:
                after["sparkline"] = _longer(row.get("sparkline"), column)
        rows.append(after)
    upsert(connection, table, rows)


def _counted(row: dict[str, Any], column: Column) -> dict[str, Any]:
    """What does not depend on the order of points."""
    finite = [value for value in column.value if math.isfinite(value)]
    bad_steps = [step for step, value in zip(column.step, column.value, strict=True) if not math.isfinite(value)]
    return {
        "count": row.get("count", 0) + len(column.value),
        "nonfinite_count": row.get("nonfinite_count", 0) + len(bad_steps),
        "first_nonfinite_step": _least(row.get("first_nonfinite_step"), *bad_steps),
        "min": _least(row.get("min"), *finite),
        "max": _most(row.get("max"), *finite),
    }


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in ("last_rank", "last_segment", "last_step", "last_value", "sparkline")}


def _newest(column: Column) -> dict[str, Any]:
    return {"last_step": column.step[-1], "last_value": struct.pack("<d", column.value[-1])}


def _longer(sparkline: bytes | None, column: Column) -> bytes:
    points = zip(map(float, column.step), column.value, strict=True)
    return pack_sparkline(reduction.extend(unpack_sparkline(sparkline), points))


def _least(*numbers: float | None) -> float | None:
    return min((number for number in numbers if number is not None), default=None)


def _most(*numbers: float | None) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


def _number(body: bytes) -> float:
    value: float
    (value,) = struct.unpack("<d", body)
    return value


def _summary(row: sa.RowMapping) -> Summary:
    return Summary(
        series=row["series"],
        count=row["count"],
        nonfinite_count=row["nonfinite_count"],
        first_nonfinite_step=row["first_nonfinite_step"],
        minimum=row["min"],
        maximum=row["max"],
        last_segment=row["last_segment"],
        last_step=row["last_step"],
        last_value=_number(row["last_value"]),
    )
