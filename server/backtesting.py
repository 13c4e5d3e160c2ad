"""The thread that works on backtests: takes jobs out of the table, has worker processes judge run after run, writes results down.

A job is a row, so any server process over the same database answers for it; the one that has taken it tells of itself every
second. Jobs share the processes turn by turn. A process is started when there is something to do, and goes when there is nothing
for a while. Cancelling kills the process that is at a run of the job: nothing of it is worth waiting for.

Thread: one loop, `wake` from any.
"""

import logging
import os
import secrets
import socket
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

from server import clock
from server.backtest_process import Order, WorkerProcess
from server.domain.backtest_reports import RunReport, not_judged
from server.domain.backtests import DIED_AFTER, Backtest, BacktestState
from server.services import backtest_tasks, backtests
from server.services.backtest_tasks import Task
from server.store import backtests as store
from server.store.database import Database
from server.store.writer import StorageUnavailable

MOST_JOBS = 3
MOST_PROCESSES = max(1, min(4, (os.cpu_count() or 2) - 1))
TICK_SECONDS = 1.0
TELL_SECONDS = 0.5
IDLE_SECONDS = 60.0
TASK_SECONDS = 300.0
"""One run takes a minute at the very most; what takes longer hangs."""
MOST_DEATHS = 5
"""In a row, and the job is given up: it is not the runs that kill."""
STOP_SECONDS = 8.0

_log = logging.getLogger(__name__)


@dataclass
class _Job:
    """A job that was taken, and what has come of it so far."""

    backtest: Backtest
    tasks: list[Task]
    left_out: int
    waiting: deque[int]
    reports: dict[int, RunReport] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    in_a_row: int = 0

    @property
    def id(self) -> str:
        return self.backtest.backtest_id

    @property
    def so_far(self) -> dict[str, Any]:
        return {"done": len(self.reports), "points": sum(report.points for report in self.reports.values())}


@dataclass
class _Slot:
    """A process, and what it is at: nothing, or a task of a job since a time."""

    process: WorkerProcess
    since: float
    job: _Job | None = None
    number: int = 0


class Backtesting:
    """Started and stopped by `app`."""

    def __init__(self, database: Database, url: str, now: Callable[[], datetime], *, processes: int = MOST_PROCESSES) -> None:
        self._database, self._url, self._now, self._most = database, url, now, processes
        self._me = f"s_{secrets.token_hex(12)}"
        self._jobs: list[_Job] = []
        self._slots: list[_Slot] = []
        self._stopping, self._told_at, self._looked_at = False, 0.0, float("-inf")
        self._bell, self._ring = socket.socketpair()
        self._bell.settimeout(0)
        self._ring.settimeout(0)
        self._thread = Thread(target=self._run, name="lossguard-backtests", daemon=True)

    @property
    def pids(self) -> list[int]:
        """The worker processes that there are."""
        return [slot.process.pid for slot in self._slots]

    def start(self) -> None:
        """Begin. Nobody else is over a SQLite file: what another process had begun is taken up at once."""
        if self._url.startswith("sqlite"):
            self._submit(lambda connection: backtests.take_over(connection, self._now()))
        self._thread.start()

    def wake(self) -> None:
        """Look at the table now rather than at the next tick. Any thread."""
        self._looked_at = float("-inf")
        with suppress(OSError):  # full: it rings already
            self._ring.send(b"!")

    def stop(self) -> None:
        """End the loop and kill the processes. Jobs go back to the table, where the next server process finds them."""
        self._stopping = True
        self.wake()
        self._thread.join(STOP_SECONDS)
        for slot in self._slots:
            slot.process.kill()
        self._bell.close()
        self._ring.close()

    def _run(self) -> None:
        while not self._stopping:
            for duty in (self._adopt, self._hand_out, self._listen, self._tell, self._retire):
                self._guarded(duty)
        for slot in self._slots:
            slot.process.kill()
        self._slots.clear()
        for job in self._jobs:
            self._guarded(lambda job=job: self._submit(lambda c: backtests.release(c, job.id, self._me, self._now())))  # type: ignore[misc]

    def _guarded(self, duty: Callable[[], object]) -> None:
        try:
            duty()
        except StorageUnavailable as error:
            _log.warning("backtests: %s", error)
            self._pause()
        except Exception:
            _log.exception("a backtest failed unexpectedly")
            self._pause()

    def _pause(self) -> None:
        """A fault that stays must not turn the loop into a spin."""
        if not self._stopping:
            wait([self._bell], TICK_SECONDS)

    def _submit(self, unit: Callable[[Any], Any]) -> Any:
        return self._database.writer.submit(unit)

    # 1. take jobs

    def _adopt(self) -> None:
        if len(self._jobs) >= MOST_JOBS or clock.uptime() - self._looked_at < TICK_SECONDS:
            return
        self._looked_at = clock.uptime()
        now = self._now()
        with self._database.reading() as connection:
            if not store.has_work(connection, now - DIED_AFTER):
                return
        taken = self._submit(lambda connection: backtests.take(connection, self._me, now))
        if taken is not None:
            self._begin(taken)
            self._looked_at = float("-inf")  # there may be more

    def _begin(self, taken: Backtest) -> None:
        try:
            with self._database.reading() as connection:
                tasks, left_out = backtest_tasks.tasks_of(connection, taken, self._now())
        except Exception as error:
            self._end(
                taken.backtest_id, BacktestState.FAILED, problem=f"It could not be begun: {type(error).__name__}: {error}"[:500]
            )
            raise
        job = _Job(taken, tasks, left_out, deque(range(len(tasks))))
        values = {"total": len(tasks), "heard_at": self._now()}
        if self._submit(lambda connection: store.save(connection, job.id, self._me, values)):
            self._jobs.append(job)
            self._finish_if_done(job)

    # 2. give idle processes something to do, the jobs taking turns

    def _hand_out(self) -> None:
        while any(job.waiting for job in self._jobs):
            slot = self._idle_slot()
            if slot is None:
                return
            job = next(job for job in self._jobs if job.waiting)
            self._jobs.remove(job)
            self._jobs.append(job)
            self._give(slot, job)

    def _idle_slot(self) -> _Slot | None:
        idle = next((slot for slot in self._slots if slot.job is None), None)
        if idle is None and len(self._slots) < self._most:
            idle = _Slot(WorkerProcess(), clock.uptime())
            self._slots.append(idle)
        return idle

    def _give(self, slot: _Slot, job: _Job) -> None:
        number = job.waiting.popleft()
        slot.job, slot.number, slot.since = job, number, clock.uptime()
        try:
            slot.process.send(Order(self._url, job.id, len(job.tasks), job.tasks[number]))
        except OSError:
            self._died(slot)

    # 3. take answers

    def _listen(self) -> None:
        busy = {slot.process.connection: slot for slot in self._slots if slot.job is not None}
        for ready in wait([*busy, self._bell], TELL_SECONDS if self._jobs else TICK_SECONDS):
            if ready is self._bell:
                with suppress(OSError):
                    self._bell.recv(4096)
            else:
                self._take(busy[ready])  # type: ignore[index]
        for slot in [slot for slot in self._slots if slot.job is not None and clock.uptime() - slot.since > TASK_SECONDS]:
            self._died(slot, f"it took more than {TASK_SECONDS:g} seconds")

    def _take(self, slot: _Slot) -> None:
        job, number = slot.job, slot.number
        assert job is not None
        try:
            report = slot.process.answer()
        except (EOFError, OSError, ValueError):
            self._died(slot)
            return
        slot.job, slot.since = None, clock.uptime()
        job.in_a_row = 0
        job.reports[number] = report
        self._finish_if_done(job)

    def _died(self, slot: _Slot, why: str = "") -> None:
        """A process has died at a task, which is tried once more in another one; a second death is the task's own doing."""
        job, number = slot.job, slot.number
        how = slot.process.kill()
        self._slots.remove(slot)
        if job is None or job not in self._jobs:
            return
        job.deaths[number] += 1
        job.in_a_row += 1
        if job.in_a_row >= MOST_DEATHS:
            self._give_up(job, f"Process after process died while judging ({why or how}): look into the server's log")
        elif job.deaths[number] < 2 and not why:
            job.waiting.appendleft(number)
        else:
            task = job.tasks[number]
            said = why or f"the process that judged it died twice ({how})"
            job.reports[number] = not_judged(said, name=task.name, run_id=task.run_id, log=task.log)
            self._finish_if_done(job)

    # 4. tell of the jobs

    def _tell(self) -> None:
        if not self._jobs or clock.uptime() - self._told_at < TELL_SECONDS:
            return
        self._told_at = clock.uptime()
        for job in list(self._jobs):
            values = {**job.so_far, "heard_at": self._now()}
            if not self._submit(lambda c, job=job, values=values: store.save(c, job.id, self._me, values)):  # type: ignore[misc]
                self._drop(job)
            self._finish_if_done(job)  # again, where its result could not be written down before

    def _finish_if_done(self, job: _Job) -> None:
        if job in self._jobs and len(job.reports) == len(job.tasks):
            result = backtest_tasks.result_of(job.reports, job.left_out)
            self._end(job.id, BacktestState.SUCCEEDED, result=result)
            self._drop(job)

    def _give_up(self, job: _Job, problem: str) -> None:
        self._end(job.id, BacktestState.FAILED, problem=problem)
        self._drop(job)

    def _end(self, backtest_id: str, state: BacktestState, **what: Any) -> None:
        now = self._now()
        self._submit(lambda connection: backtests.end(connection, backtest_id, self._me, state, now, **what))

    def _drop(self, job: _Job) -> None:
        """Nothing more is to be done for a job: it is over, was cancelled, or another server process has it."""
        if job in self._jobs:
            self._jobs.remove(job)
        for slot in [slot for slot in self._slots if slot.job is job]:
            slot.process.kill()
            self._slots.remove(slot)

    # 5. let idle processes go

    def _retire(self) -> None:
        for slot in list(self._slots):
            if slot.job is None and clock.uptime() - slot.since > IDLE_SECONDS:
                slot.process.end()
                self._slots.remove(slot)
