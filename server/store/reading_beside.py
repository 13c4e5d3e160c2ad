"""Reading beside a running server, from another process: one connection that cannot write and never checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from .database import BUSY_TIMEOUT_MILLISECONDS
from .writer import unavailable


class Reader:
    """One connection to the database at `url`, opened when it is first needed.

    Raises:
        ValueError: the address is of no kind that is supported.
    """

    def __init__(self, url: str) -> None:
        address = sa.make_url(url.replace("postgres://", "postgresql://", 1))
        if address.get_backend_name() == "sqlite":
            self._engine = _sqlite(address)
        elif address.get_backend_name() == "postgresql":
            self._engine = _postgres(address)
        else:
            raise ValueError(f"{address.get_backend_name()} is not supported")

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one moment of the database.

        Raises:
            StorageUnavailable: the database cannot be reached.
        """
        try:
            with self._engine.connect() as connection:
                yield connection
        except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
            raise unavailable(error) from error

    def close(self) -> None:
        """Close it."""
        self._engine.dispose()


def _sqlite(address: sa.URL) -> sa.Engine:
    """The file is opened for reading only, so that it is not this process that checkpoints when the server has died."""
    beside = address.set(database=f"file:{address.database}", query={"mode": "ro", "uri": "true"})
    engine = sa.create_engine(beside, poolclass=sa.QueuePool, pool_size=1, max_overflow=0)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
        connection.execute("PRAGMA query_only = ON")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _postgres(address: sa.URL) -> sa.Engine:
    options = "-c default_transaction_read_only=on -c timezone=UTC"
    return sa.create_engine(
        address.set(drivername="postgresql+psycopg"),
        pool_size=1,
        max_overflow=0,
        pool_pre_ping=True,
        isolation_level="REPEATABLE READ",
        connect_args={"options": options, "connect_timeout": 10, "application_name": "lossguard-backtest"},
    )
