"""Insert, or replace the row of the same key: the one place where the two databases are spoken to differently."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import sqlalchemy as sa


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write `rows` (all with the same columns), replacing those whose primary key is there already."""
    if rows:
        connection.execute(_statement(table, connection.dialect.name, tuple(rows[0])), list(rows))


@cache
def _statement(table: sa.Table, dialect: str, columns: tuple[str, ...]) -> sa.Executable:
    """Made once: building it anew costs more than running it."""
    insert: Any = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)  # only the one in use: the other is slow to load
    keys = [column.name for column in table.primary_key]
    replaced = {name: insert.excluded[name] for name in columns if name not in keys}
    statement: sa.Executable = insert.on_conflict_do_update(index_elements=keys, set_=replaced)
    return statement
