"""Units of work in groups: together when they wait together, apart when one fails, answered only after the commit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from server.store.database import Database
from server.store.tables import runs, webhooks
from server.store.touched import touch
from server.store.writer import StorageUnavailable, Writer, WriterBusy, WriterClosed

WAIT = 20


def row(webhook_id, now):
    return {
        "webhook_id": webhook_id,
        "name": "n",
        "url": "u",
        "secret": "s",
        "minimum_severity": "warning",
        "enabled": True,
        "created_at": now,
    }


def run_row(run_id, now):
    return {
        "run_id": run_id,
        "owner_token_id": "t",
        "project": "p",
        "name": "n",
        "state": "running",
        "created_at": now,
        "heard_at": now,
    }


def names(database):
    with database.reading() as connection:
        return sorted(connection.execute(sa.select(webhooks.c.webhook_id)).scalars())


class Held:
    """Keeps the writer busy with one unit until it is let go, so that what follows becomes one group."""

    def __init__(self, writer):
        self.begun, self.go = threading.Event(), threading.Event()
        self.pool = ThreadPoolExecutor(16)
        self.writer = writer

    def __enter__(self):
        self.first = self.pool.submit(self.writer.submit, self._hold)
        assert self.begun.wait(WAIT)
        return self

    def _hold(self, connection):
        self.begun.set()
        assert self.go.wait(WAIT)

    def submit(self, unit):
        before = self.writer._queue.qsize()
        answer = self.pool.submit(self.writer.submit, unit)
        while self.writer._queue.qsize() == before and not answer.done():
            threading.Event().wait(0.001)
        return answer

    def __exit__(self, *_):
        self.go.set()
        self.pool.shutdown()


def test_what_waits_together_is_committed_once(database, now):
    commits = []

    def count(connection):
        commits.append(connection)

    sa.event.listen(database.write_engine, "commit", count)
    try:
        with Held(database.writer) as held:
            answers = [held.submit(lambda c, i=i: c.execute(sa.insert(webhooks), row(f"w{i}", now)) and i) for i in range(8)]
        assert [answer.result(WAIT) for answer in answers] == list(range(8))
    finally:
        sa.event.remove(database.write_engine, "commit", count)
    assert len(commits) == 2
    assert len(names(database)) == 8


def test_one_that_fails_takes_nobody_along(database, now):
    def fail(connection):
        connection.execute(sa.insert(webhooks), row("lost", now))
        raise KeyError("mine")

    with Held(database.writer) as held:
        before = held.submit(lambda c: c.execute(sa.insert(webhooks), row("before", now)) and None)
        failing = held.submit(fail)
        twice = held.submit(lambda c: c.execute(sa.insert(webhooks), row("before", now)) and None)
        after = held.submit(lambda c: c.execute(sa.insert(webhooks), row("after", now)) and None)
    before.result(WAIT)
    after.result(WAIT)
    with pytest.raises(KeyError, match="mine"):
        failing.result(WAIT)
    with pytest.raises(sa.exc.IntegrityError):
        twice.result(WAIT)
    assert names(database) == ["after", "before"]


def test_a_commit_that_fails_is_answered_as_a_failure_to_all(database, now):
    def refuse(connection):
        raise sa.exc.OperationalError("COMMIT", {}, Exception("disk full"))

    with Held(database.writer) as held:
        answers = [held.submit(lambda c, i=i: c.execute(sa.insert(webhooks), row(f"w{i}", now)) and None) for i in range(3)]
        sa.event.listen(database.write_engine, "commit", refuse)
    sa.event.remove(database.write_engine, "commit", refuse)
    for answer in answers:
        with pytest.raises(StorageUnavailable, match="nothing of the request was stored"):
            answer.result(WAIT)
    assert names(database) == []
    database.writer.submit(lambda c: c.execute(sa.insert(webhooks), row("next", now)) and None)
    assert names(database) == ["next"]


def test_a_lost_postgresql_connection_fails_the_group_and_the_next_one_reconnects(new_database_url, now):
    database = Database.open(new_database_url("postgresql"))
    database.migrate()

    def lose(connection):
        connection.execute(sa.insert(webhooks), row("lost", now))
        pid = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar()
        with database.reading() as other:
            other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        connection.execute(sa.text("SELECT 1"))

    with Held(database.writer) as held:
        before = held.submit(lambda c: c.execute(sa.insert(webhooks), row("before", now)) and None)
        losing = held.submit(lose)
    for answer in (before, losing):
        with pytest.raises(StorageUnavailable):
            answer.result(WAIT)
    assert names(database) == []
    database.writer.submit(lambda c: c.execute(sa.insert(webhooks), row("next", now)) and None)
    assert names(database) == ["next"]
    database.close()


def test_a_full_queue_says_busy_and_takes_nothing(database, now):
    writer = Writer(database.write_engine, queue_length=2)
    with Held(writer) as held:
        waiting = [held.submit(lambda c, i=i: c.execute(sa.insert(webhooks), row(f"w{i}", now)) and None) for i in range(2)]
        with pytest.raises(WriterBusy) as busy:
            writer.submit(lambda c: None)
        assert busy.value.retry_after_seconds > 0
    for answer in waiting:
        answer.result(WAIT)
    assert names(database) == ["w0", "w1"]
    writer.close()


def test_closing_commits_what_waits_and_then_refuses(database, now):
    writer = Writer(database.write_engine)
    with Held(writer) as held:
        waiting = held.submit(lambda c: c.execute(sa.insert(webhooks), row("waiting", now)) and None)
        closing = held.pool.submit(writer.close)
    waiting.result(WAIT)
    closing.result(WAIT)
    with pytest.raises(WriterClosed):
        writer.submit(lambda c: None)
    assert names(database) == ["waiting"]


def test_who_enqueues_waits_for_nothing_and_hears_of_everything_by_the_future(database, now):
    def fails(connection):
        raise ValueError("this one")

    writer = Writer(database.write_engine, queue_length=2)
    with Held(writer):
        fine, broken, refused = writer.enqueue(lambda _: 7), writer.enqueue(fails), writer.enqueue(lambda _: 8)
        assert not fine.done()
        assert isinstance(refused.exception(WAIT), WriterBusy)
    assert fine.result(WAIT) == 7
    assert isinstance(broken.exception(WAIT), ValueError)
    writer.close()
    assert isinstance(writer.enqueue(lambda _: 9).exception(WAIT), WriterClosed)


def test_a_unit_that_waits_for_another_is_told_instead_of_hanging(database):
    with pytest.raises(RuntimeError, match="must not wait for another"):
        database.writer.submit(lambda c: database.writer.submit(lambda _: None))


def test_hints_tell_the_runs_that_were_committed_and_no_others(database, now):
    hints = []
    database.writer.on_commit = hints.append

    def fail(connection):
        touch(connection, "b")
        raise KeyError("mine")

    def change(connection):
        touch(connection, "a")
        touch(connection, "a")
        touch(connection, "no such run")

    database.writer.submit(lambda c: c.execute(sa.insert(runs), [run_row("a", now), run_row("b", now)]) and None)
    with Held(database.writer) as held:
        held.submit(change)
        failing = held.submit(fail)
        held.submit(change)
    with pytest.raises(KeyError):
        failing.result(WAIT)
    assert hints == [{"a": 2}]


def test_a_hint_that_fails_fails_no_write(database, now):
    def fail(_):
        raise OSError("no listener")

    database.writer.submit(lambda c: c.execute(sa.insert(runs), run_row("a", now)) and None)
    database.writer.on_commit = fail
    database.writer.submit(lambda c: touch(c, "a"))
    with database.reading() as connection:
        assert connection.execute(sa.select(runs.c.revision)).scalar() == 1
