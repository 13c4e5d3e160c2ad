"""Opens the database: one connection that writes, a pool that reads.

SQLite is for one server process: a second one on the same file is refused, and only the writing connection ever
checkpoints. PostgreSQL takes any number of processes. Every connection is told its settings here and nowhere else.
"""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from .migrating import migrate
from .writer import OnCommit, Writer, unavailable

_log = logging.getLogger(__name__)

BUSY_TIMEOUT_MILLISECONDS = 10_000
_SQLITE_SAFE = (3, 51, 3)
_WAL_LIMIT_BYTES = 64 << 20
_PRAGMAS = {
    "journal_mode": "WAL",
    "synchronous": "FULL",  # an answered batch must survive a power cut: the agent deletes its copy
    "busy_timeout": BUSY_TIMEOUT_MILLISECONDS,
    "journal_size_limit": _WAL_LIMIT_BYTES,
    "cache_size": -16_384,
}


class DatabaseInUse(RuntimeError):  # noqa: N818  named for what happened
    """Another server process has this SQLite file open."""


class Database:
    """A writer and a pool of readers over one database. Made by `open`."""

    def __init__(self, write_engine: sa.Engine, read_engine: sa.Engine, on_commit: OnCommit | None, lock: int | None) -> None:
        self.write_engine = write_engine
        """For the writer, migrations and tests. Everything else goes through `writer.submit`."""
        self._read_engine = read_engine
        self._lock = lock
        self.writer = Writer(write_engine, on_commit)

    @classmethod
    def open(cls, url: str, on_commit: OnCommit | None = None) -> "Database":
        """Connect to `sqlite:///FILE` or `postgresql://...`; makes the file where there is none, but no tables.

        Raises:
            DatabaseInUse: another server process has the SQLite file open.
            ValueError: the address is of neither kind, or names a database in memory.
        """
        address = sa.make_url(url.replace("postgres://", "postgresql://", 1))
        if address.get_backend_name() == "sqlite":
            lock = _claim(address)
            return cls(_sqlite_engine(address, writes=True), _sqlite_engine(address, writes=False), on_commit, lock)
        if address.get_backend_name() == "postgresql":
            return cls(_postgres_engine(address, writes=True), _postgres_engine(address, writes=False), on_commit, None)
        raise ValueError(f"{address.get_backend_name()} is not supported: use sqlite:///FILE or postgresql://USER@HOST/NAME")

    def migrate(self) -> None:
        """Bring the tables up to this code's version. Safe to call from several processes at once."""
        self.writer.submit(migrate)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one moment of the database and cannot write.

        Raises:
            StorageUnavailable: the database cannot be reached, or all readers are busy.
        """
        try:
            with self._read_engine.connect() as connection:
                yield connection
        except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError) as error:
            raise unavailable(error) from error

    def close(self) -> None:
        """Commit what waits and close every connection, the writing one last: it takes the WAL with it."""
        self.writer.close()
        self._read_engine.dispose()
        self.write_engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def without_password(url: str) -> str:
    """The address of a database as people may read it."""
    return sa.make_url(url).render_as_string(hide_password=True)


def _claim(address: sa.URL) -> int:
    """Make the file and its folder private, and hold the lock beside it for as long as the process lives."""
    if not address.database or ":memory:" in address.database or address.query.get("mode") == "memory":
        raise ValueError("a database in memory is not supported, since readers need a connection of their own: name a file")
    path = Path(address.database)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise DatabaseInUse(
            f"another server process has {path} open: stop that one, or use PostgreSQL, which several can share"
        ) from None
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite gives the files beside it the same mode
    path.chmod(0o600)
    _warn_of_old_sqlite()
    return lock


def _warn_of_old_sqlite() -> None:
    if sqlite3.sqlite_version_info < _SQLITE_SAFE:
        _log.warning(
            "SQLite %s is older than 3.51.3, which mended a defect that can hurt the file when two connections checkpoint at "
            "once. Only one ever does here; do not open the file with other programs while the server runs",
            sqlite3.sqlite_version,
        )


def _sqlite_engine(address: sa.URL, *, writes: bool) -> sa.Engine:
    size = {"pool_size": 1, "max_overflow": 0} if writes else {"pool_size": 16, "max_overflow": 32}
    engine = sa.create_engine(address, poolclass=sa.QueuePool, pool_timeout=10, connect_args={"check_same_thread": False}, **size)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver would begin late and without IMMEDIATE: `begin` below does it
        for name, value in _PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}")
        if not writes:
            connection.execute("PRAGMA query_only = ON")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later fails at once when another wrote in between: take the lock first.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres_engine(address: sa.URL, *, writes: bool) -> sa.Engine:
    if writes:
        # No ping before use: a lost connection fails its group, which is answered so, and the next group reconnects.
        options = f"-c lock_timeout={BUSY_TIMEOUT_MILLISECONDS} -c timezone=UTC"
        settings: dict[str, Any] = {"pool_size": 1, "max_overflow": 0}
    else:
        options = "-c default_transaction_read_only=on -c timezone=UTC"
        settings = {"pool_size": 8, "max_overflow": 24, "pool_pre_ping": True, "isolation_level": "REPEATABLE READ"}
    arguments = {"options": options, "connect_timeout": 10, "application_name": "lossguard"}
    return sa.create_engine(address.set(drivername="postgresql+psycopg"), pool_timeout=10, connect_args=arguments, **settings)


def is_missing_file(url: str) -> bool:
    """Whether the database is a file that is not there yet."""
    address = sa.make_url(url)
    return address.get_backend_name() == "sqlite" and not Path(address.database or "").exists()
