"""A process that judges runs for backtests, beside the server: what runs in it, and the server's end of it.

The server sends an order (which job, which run or log), the process reads what that is about from the database and answers with
a report; both are one JSON object. It ends when the server's end of the pipe closes, so none outlives the server for longer than
the run it is at. It runs at the lowest priority, in a session of its own: what a terminal sends to the server is not for it.

Thread: a `WorkerProcess` belongs to one thread.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from server import clock
from server.domain.backtest_reports import Question, RunReport, not_judged
from server.services import backtest_tasks as tasks
from server.services.backtest_tasks import Task
from server.store import backtests as store
from server.store.backtests import Logs
from server.store.reading_beside import Reader
from trainer_agent.wire.codec import from_json, to_json

ROOT = Path(__file__).resolve().parents[1]
NICENESS = 10
END_SECONDS = 2.0
_START = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from server.backtest_process import main; main(int(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Order:
    """Judge one task of a job. `tasks`: how many the job has, which says how much of each is listed."""

    database: str
    backtest_id: str
    tasks: int
    task: Task


class WorkerProcess:
    """The server's end.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- our own code, under our own interpreter
                [sys.executable, "-c", _START, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, order: Order) -> None:
        """Give it something to do. An order is small, so this does not wait for it to be read.

        Raises:
            OSError: it has died.
        """
        self.connection.send_bytes(json.dumps(to_json(order)).encode())

    def answer(self) -> RunReport:
        """What it answers.

        Raises:
            EOFError, OSError: it has died.
        """
        return from_json(RunReport, json.loads(self.connection.recv_bytes()))

    def end(self) -> None:
        """Let it go: it ends by itself when it is idle."""
        self.connection.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> str:
        """End it at once, whatever it does. How it ended, in words."""
        with suppress(OSError):
            self.connection.close()
        had_ended = self._process.poll() is not None
        if not had_ended:
            with suppress(subprocess.TimeoutExpired):  # it closed its end, so it is ending: what of is worth knowing
                self._process.wait(0.2)
        if self._process.poll() is None:
            self._process.kill()
        return _in_words(self._process.wait())


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


# --- in the process ---


def main(descriptor: int) -> None:
    """Answer orders until the server's end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICENESS)
    serving = _Serving()
    with Connection(descriptor) as connection:
        while True:
            try:
                order = from_json(Order, json.loads(connection.recv_bytes()))
                connection.send_bytes(json.dumps(to_json(serving.report(order)), allow_nan=False).encode())
            except (EOFError, BrokenPipeError, ConnectionResetError):
                return


class _Serving:
    """What is kept from one order to the next: a connection, and the job that they are of."""

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._job: tuple[str, Question, Logs] | None = None

    def report(self, order: Order) -> RunReport:
        """The report; where the judging itself fails, that is what it says."""
        try:
            return self._judge(order)
        except Exception as error:
            task = order.task
            why = f"the judging failed ({type(error).__name__}: {error})"[:500]
            print(f"backtest of {task.run_id or task.name}: {why}", file=sys.stderr, flush=True)  # noqa: T201 -- the server's log
            return not_judged(why, name=task.name, run_id=task.run_id, log=task.log)

    def _judge(self, order: Order) -> RunReport:
        reader = self._readers.get(order.database)
        if reader is None:
            reader = self._readers[order.database] = Reader(order.database)
        question, logs = self._asked(order, reader)
        if order.task.log is not None:
            name, text = logs[order.task.log - 1]
            return tasks.judge_log(name, text, order.task.log, question, clock.utc_now())
        with reader.reading() as connection:
            read = tasks.read_run(connection, order.task.run_id or "", question)
        return read.report(question, clock.utc_now())

    def _asked(self, order: Order, reader: Reader) -> tuple[Question, Logs]:
        if self._job is None or self._job[0] != order.backtest_id:
            with reader.reading() as connection:
                job = store.get(connection, order.backtest_id)
                logs = store.read_logs(connection, order.backtest_id)
            if job is None:
                raise LookupError("the backtest is not stored any more")
            self._job = order.backtest_id, tasks.question_of(job.request, order.tasks), logs
        return self._job[1], self._job[2]
