"""A single write beside a running server, for the commands of an administrator.

The server holds its SQLite file by a lock of our own, so that no second server opens it; SQLite itself can be written from
two processes. A visitor keeps clear of the one thing that only the server's writer may do: it never checkpoints.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from .database import BUSY_TIMEOUT_MILLISECONDS, Database, DatabaseInUse
from .writer import unavailable

_PRAGMAS = {"busy_timeout": BUSY_TIMEOUT_MILLISECONDS, "synchronous": "FULL", "wal_autocheckpoint": 0}


@contextmanager
def visit(url: str) -> Iterator[sa.Connection]:
    """A connection in one transaction, committed at the end; the database is brought up to date when no server has it.

    Raises:
        DatabaseTooNew: the database belongs to a newer version.
        StorageUnavailable: the database cannot be reached or did not take the write.
        ValueError: `url` is of no kind that is supported.
    """
    try:
        database = Database.open(url)
    except DatabaseInUse:
        engine = _beside(url)
    else:
        try:
            database.migrate()
        finally:
            database.close()
        engine = _beside(url)
    try:
        with engine.begin() as connection:
            yield connection
    except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        raise unavailable(error) from error
    finally:
        engine.dispose()


def _beside(url: str) -> sa.Engine:
    address = sa.make_url(url.replace("postgres://", "postgresql://", 1))
    if address.get_backend_name() != "sqlite":
        return sa.create_engine(address.set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    engine = sa.create_engine(address, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        for name, value in _PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
