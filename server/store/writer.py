"""The one thread that writes.

    submit() -> queue -> [ unit, unit, unit ] -> COMMIT -> answers

A group is everything that waited when the thread became free: alone when it is quiet, many under load, and nobody is kept
waiting for company. Each unit runs in a savepoint of its own, so one that fails takes nobody along. Nothing is answered
before the commit, and a commit that fails is answered as a failure to every unit of its group.

A group holds the rows of its units until the commit, so two server processes can wait for each other. PostgreSQL then ends one of
the two units, which is tried again by itself after its group: it must be able to run twice.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import sqlalchemy as sa

from trainer_agent.wire import crash

from .touched import take_touched

T = TypeVar("T")
Unit = Callable[[sa.Connection], T]
OnCommit = Callable[[Mapping[str, int]], None]

QUEUE_LENGTH = 512
RETRY_AFTER_SECONDS = 1.0
MOST_ATTEMPTS = 5
_DEADLOCK = "40P01"
"""What PostgreSQL calls an error that only says: both waited for each other, and you give way."""

_log = logging.getLogger(__name__)


class StorageUnavailable(Exception):  # noqa: N818  named for what happened
    """The database could not be reached or did not commit; nothing of the request was stored. The same may be sent again."""

    retry_after_seconds = RETRY_AFTER_SECONDS


class WriterBusy(StorageUnavailable):
    """More writes are waiting than the server takes on. The same may be sent again shortly."""


class WriterClosed(StorageUnavailable):
    """The server is shutting down. The same may be sent again when it is back."""


class _Job:
    """A unit of work, what came of it, and where the answer goes."""

    def __init__(self, unit: Unit[Any]) -> None:
        self.unit = unit
        self.answer: Future[Any] = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self.attempts = 0

    def gave_way(self) -> bool:
        """Whether nothing is wrong with it but that it and another server waited for each other, and it may be tried again."""
        cause = getattr(self.error, "__cause__", None)
        return getattr(getattr(cause, "orig", None), "sqlstate", None) == _DEADLOCK and self.attempts < MOST_ATTEMPTS

    def settle(self) -> None:
        """Tell the caller. Only ever called after the commit."""
        if self.error is None:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error)


class Writer:
    """Takes units of work from any thread and commits them in groups on its own.

    `on_commit` is told the runs that a group changed with their new revisions, after the commit and before the answers.
    """

    def __init__(self, engine: sa.Engine, on_commit: OnCommit | None = None, queue_length: int = QUEUE_LENGTH) -> None:
        self.on_commit = on_commit
        self._engine = engine
        self._queue: queue.Queue[_Job | None] = queue.Queue(queue_length + 1)  # one place more: closing always fits
        self._length = queue_length
        self._closed = False
        self._failed = 0
        """Groups in a row that were not committed."""
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="lossguard-writer", daemon=True)
        self._thread.start()

    def submit(self, unit: Unit[T]) -> T:
        """Run `unit` in a transaction and give its result once that is durable.

        Thread: any but the writer's own; blocks until the commit.

        Raises:
            WriterBusy: too many units wait already; this one was not taken.
            StorageUnavailable: the commit failed or the database was lost; nothing of it was stored.
            Exception: whatever the unit raised; nothing of it was stored.
        """
        return self.enqueue(unit).result()

    def enqueue(self, unit: Unit[T]) -> "Future[T]":
        """The same without waiting, so that several units may share a commit. The future gives or raises what `submit` does."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work must not wait for another: call the function with the same connection")
        job = _Job(unit)
        with self._door:
            if self._closed:
                job.answer.set_exception(WriterClosed(WriterClosed.__doc__))
            elif self._queue.qsize() >= self._length:
                job.answer.set_exception(WriterBusy(WriterBusy.__doc__))
            else:
                self._queue.put_nowait(job)
        return job.answer

    def close(self) -> None:
        """Commit what waits, then end the thread. Later units are refused."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._queue.put_nowait(None)
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            group = [self._queue.get()]
            group += [self._queue.get() for _ in range(self._queue.qsize())]
            closing = None in group
            if jobs := [job for job in group if job is not None]:
                self._take(jobs)

    def _take(self, group: list[_Job]) -> None:
        try:
            touched = self._commit(group)
        except Exception as error:
            self._report(error, len(group))
            for job in group:
                job.error = job.error or unavailable(error)
        else:
            self._report_recovery()
            self._tell(touched)
        again = [job for job in group if job.gave_way()]
        for job in group:
            if job not in again:
                job.settle()
        for job in again:
            job.error = None
            self._take([job])

    def _report(self, error: Exception, count: int) -> None:
        """A disk that is full stays full for many groups: that is one line, and one more when it is over."""
        self._failed += 1
        if not isinstance(error, sa.exc.OperationalError):
            _log.error("a group of %d writes was not committed", count, exc_info=error)
        elif self._failed == 1:
            _log.error("nothing can be written (%s): agents keep what they have and send it later", _first_line(error))

    def _report_recovery(self) -> None:
        if self._failed:
            _log.warning("writes are committed again, after %d groups that were not", self._failed)
        self._failed = 0

    def _commit(self, group: list[_Job]) -> dict[str, int]:
        touched: dict[str, int] = {}
        with self._engine.connect() as connection, connection.begin():
            take_touched(connection)
            for job in group:
                touched.update(self._attempt(connection, job))
            crash.reach("server.before_commit")
        crash.reach("server.committed")
        return touched

    def _attempt(self, connection: sa.Connection, job: _Job) -> dict[str, int]:
        """Run one unit in its savepoint. Gives the runs it touched, none when it failed."""
        job.attempts += 1
        try:
            with connection.begin_nested():
                job.result = job.unit(connection)
        except BaseException as error:
            if connection.invalidated:
                raise  # the transaction is gone, and all that the group did with it
            job.error = unavailable(error) if isinstance(error, sa.exc.OperationalError) else error
            take_touched(connection)
            return {}
        return take_touched(connection)

    def _tell(self, touched: dict[str, int]) -> None:
        if not touched or self.on_commit is None:
            return
        try:
            self.on_commit(touched)
        except Exception:
            _log.exception("the hint about %d changed runs was not passed on", len(touched))


def unavailable(cause: BaseException) -> StorageUnavailable:
    """The error to answer with in place of what the driver said."""
    error = StorageUnavailable(StorageUnavailable.__doc__)
    error.__cause__ = cause
    return error


def _first_line(error: sa.exc.OperationalError) -> str:
    return str(error.orig).strip().partition("\n")[0]
