"""What a database holds of an incarnation, row by row: no reader of the product in between, which would hide a doubled point."""

import sqlalchemy as sa
from kill_history import Stored, StoredPoint

from server.store import packing
from server.store.tables import incarnations, point_batches, point_chunks, runs


def read(url: str) -> dict[str, Stored]:
    """By incarnation. The server that uses the database is not running (SQLite)."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=sa.NullPool)
    found: dict[str, Stored] = {}
    with engine.connect() as connection:
        dropped = dict(connection.execute(sa.select(runs.c.run_id, runs.c.dropped_records)).all())
        for incarnation, run_id in connection.execute(sa.select(incarnations.c.incarnation, incarnations.c.run_id)):
            found[incarnation] = Stored(dropped=dropped[run_id])
        for row in connection.execute(sa.select(point_batches.c.incarnation, point_batches.c.segment, point_batches.c.body)):
            for series, block in packing.unpack_batch(row.body):
                found[row.incarnation].points += _points(series, row.segment, block)
        chunks = sa.select(point_chunks.c.incarnation, point_chunks.c.segment, point_chunks.c.series, point_chunks.c.body)
        for row in connection.execute(chunks):
            found[row.incarnation].points += _points(row.series, row.segment, packing.unpack(row.body))
        if engine.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    engine.dispose()
    return found


def _points(series: str, segment: int, block: packing.Block) -> list[StoredPoint]:
    return [
        StoredPoint(series, segment, int(seq), int(step), float(value))
        for seq, step, value in zip(block[packing.SEQ], block[packing.STEP], block[packing.VALUE], strict=True)
    ]
