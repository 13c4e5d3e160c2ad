"""Insert, or replace the row of the same key: the one place where the two databases are spoken to differently."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Write `rows` (all with the same columns), replacing those whose primary key is there already."""
    if not rows:
        return
    make: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    insert = make(table)
    keys = [column.name for column in table.primary_key]
    replaced = {name: insert.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=replaced), list(rows))
