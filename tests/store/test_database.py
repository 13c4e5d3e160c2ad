"""Opening: private files, one server process on SQLite, readers that cannot write, and nothing lost to a kill."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap

import pytest
import sqlalchemy as sa

from server.store.database import Database, DatabaseInUse
from server.store.tables import events
from server.store.writer import StorageUnavailable


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "lossguard.db"


def test_the_file_and_its_folder_are_private(file):
    database = Database.open(f"sqlite:///{file}")
    database.migrate()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {each.name for each in file.parent.iterdir()} >= {"lossguard.db", "lossguard.db-wal"}
    assert {stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()} == {0o600}
    database.close()


def test_a_folder_that_is_there_already_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    Database.open(f"sqlite:///{tmp_path}/lossguard.db").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_closing_leaves_no_wal_behind(file):
    database = Database.open(f"sqlite:///{file}")
    database.migrate()
    with database.reading() as connection:
        connection.execute(sa.select(events)).all()
    database.close()
    assert sorted(each.name for each in file.parent.iterdir()) == ["lossguard.db", "lossguard.db.lock"]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url):
    with pytest.raises(ValueError, match=r"in memory is not supported.*name a file"):
        Database.open(url)


def test_another_kind_of_database_is_refused_by_name():
    with pytest.raises(ValueError, match="mysql is not supported: use sqlite:///FILE or postgresql:"):
        Database.open("mysql://h/d")


def test_a_second_server_on_the_same_file_is_refused_and_says_what_to_do(file):
    database = Database.open(f"sqlite:///{file}")
    with pytest.raises(DatabaseInUse, match=r"another server process has .*lossguard.db open: stop that one, or use PostgreSQL"):
        Database.open(f"sqlite:///{file}")
    database.close()
    Database.open(f"sqlite:///{file}").close()


def test_an_old_sqlite_is_warned_of_and_a_mended_one_is_not(file, caplog, monkeypatch):
    for version, warned in (((3, 51, 2), True), ((3, 51, 3), False)):
        caplog.clear()
        monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
        Database.open(f"sqlite:///{file}").close()
        assert ("older than 3.51.3" in caplog.text) is warned


def test_sqlite_is_set_to_survive_a_power_cut(file):
    database = Database.open(f"sqlite:///{file}")
    ask = ("journal_mode", "synchronous", "busy_timeout")
    answers = database.writer.submit(lambda c: [c.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ask])
    assert answers == ["wal", 2, 10_000]
    database.close()


def test_a_reader_cannot_write(database):
    with pytest.raises((sa.exc.DBAPIError, StorageUnavailable)), database.reading() as connection:
        connection.execute(sa.delete(events))


def test_a_reader_sees_one_moment(database, now):
    def write(connection):
        connection.execute(sa.insert(events), {"type": "run.lost", "at": now, "data": "{}"})

    count = sa.select(sa.func.count()).select_from(events)
    with database.reading() as connection:
        assert connection.execute(count).scalar() == 0
        database.writer.submit(write)
        assert connection.execute(count).scalar() == 0
    with database.reading() as connection:
        assert connection.execute(count).scalar() == 1


def test_a_database_that_cannot_be_reached_says_so(tmp_path):
    database = Database.open(f"postgresql:///none?host={tmp_path}")
    with pytest.raises(StorageUnavailable), database.reading():
        pass
    with pytest.raises(StorageUnavailable):
        database.writer.submit(lambda c: c.execute(sa.text("SELECT 1")) and None)
    database.close()


KILLED = """
    import sys
    import sqlalchemy as sa
    from datetime import UTC, datetime
    from server.store.database import Database
    from server.store.tables import events
    database = Database.open(sys.argv[1])
    database.migrate()
    row = {"type": "run.lost", "at": datetime.now(UTC), "data": "x" * 500}
    add = lambda c: c.execute(sa.insert(events).returning(events.c.event_id), row).scalar()
    while True:
        print(database.writer.submit(add), flush=True)
"""


def test_what_was_answered_outlives_a_kill(database_url):
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), database_url], stdout=subprocess.PIPE, text=True)
    answered = [int(child.stdout.readline()) for _ in range(200)]
    os.kill(child.pid, signal.SIGKILL)
    answered += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    child.stdout.close()
    child.wait()
    database = Database.open(database_url)  # the lock went with the process
    with database.reading() as connection:
        stored = set(connection.execute(sa.select(events.c.event_id)).scalars())
    assert set(answered) <= stored
    database.close()
