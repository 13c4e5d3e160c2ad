"""How long a backtest takes: one run of 10,000 steps with 10 series, under the whole default pack, on one core.

The run is stored in a SQLite file as the server stores it, noisy as real ones are, with spikes, skipped steps and a NaN, so that
rules fire and recover. It is judged twice over:

    here        what a worker process does, in this one: read the run, judge it, make the report
    as a job    through the thread of the server and one real worker process, from the question to the stored answer; the first
                time with the start of the process, then without

    seconds         the least of several tries by the clock on the wall: what is more is the machine's other work
    cpu seconds     the same of the processor's time, which is what it takes on a core of its own
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._harness import at_most, finish, parser, say
from server.backtesting import Backtesting
from server.clock import utc_now
from server.domain.backtest_reports import Question
from server.domain.backtests import BacktestState, Request, RunsKind, Selection
from server.domain.default_rules import DEFAULT_RULES
from server.services import backtest_tasks, backtests, rules, runs
from server.store import backtests as store
from server.store import points as point_store
from server.store import segments as segment_store
from server.store.database import Database
from trainer_agent.wire import series
from trainer_agent.wire.messages import Column, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import SegmentCause

RUN = "measured"
NAMES = (
    series.LOSS,
    series.GRAD_NORM,
    series.LEARNING_RATE,
    series.EPOCH,
    series.LOSS_SCALE,
    series.OVERFLOW,
    series.STEP_SECONDS,
    series.TOKENS_PER_SECOND,
    series.GPU_MEMORY_BYTES,
    series.HOST_MEMORY_BYTES,
)
PER_BATCH = 500
LIMIT_SECONDS = 3.0
WAIT_SECONDS = 120.0


def main() -> int:
    """Measures; exit status 1 when a bar is not met."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="lossguard-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'lossguard.db'}"
        database = Database.open(url)
        try:
            database.migrate()
            _store(database, options.steps)
            say(f"{options.steps} steps of {len(NAMES)} series are stored")
            results = {"steps": options.steps, "series": len(NAMES), "rules": len(DEFAULT_RULES)}
            results |= {"here": _here(database, options.tries), "as a job": _as_jobs(database, url, options.tries)}
        finally:
            database.close()
    here, job = results["here"], results["as a job"]
    bars = [
        at_most("one run read and judged, seconds of one core", here["cpu seconds"], LIMIT_SECONDS),
        at_most(
            "the same asked of the server, its process running, over that by the clock", job["seconds"] / here["seconds"], 1.5
        ),
    ]
    return finish("backtest", options, results, bars)


def _options() -> argparse.Namespace:
    made = parser("backtest", (__doc__ or "").partition("\n")[0])
    made.add_argument("--steps", type=int, default=10_000, help="of the run [10,000]")
    made.add_argument("--tries", type=int, help="of which the least counts [7, quick: 3]")
    options = made.parse_args()
    options.tries = options.tries or (3 if options.quick else 7)
    return options


# --- the run ---


def _store(database: Database, steps: int) -> None:
    now, rows = utc_now(), _Training(steps)

    def begin(connection: Any) -> None:
        rules.ensure_rules(connection, now)
        runs.start_run(connection, RunStart(RUN, "life", "benchmarks", RUN), "token", now)
        segment_store.insert(connection, RUN, "life", SegmentStarted(1, 0, SegmentCause.START, 0.0), now)

    database.writer.submit(begin)
    for first in range(1, steps + 1, PER_BATCH):
        columns = rows.columns(first, min(steps, first + PER_BATCH - 1))
        database.writer.submit(lambda c, columns=columns: point_store.store_points(c, RUN, 0, "life", columns))


@dataclass
class _Training:
    """A training of so many steps: the loss falls, and now and then something happens."""

    steps: int

    def columns(self, first: int, last: int) -> list[Column]:
        """All series of a stretch."""
        steps = tuple(range(first, last + 1))
        values = [self._values(step) for step in steps]
        seq, times = tuple(step + 1 for step in steps), tuple(1.8e9 + step for step in steps)
        return [Column(name, 1, seq, steps, times, tuple(each[name] for each in values)) for name in NAMES]

    def _values(self, step: int) -> dict[str, float]:
        noise = random.Random(step)  # noqa: S311 -- a curve, no secret
        skipped, wild = step % 2_003 == 0, step % 1_511 == 0
        seconds = 0.5 * (1 + 0.05 * noise.random())
        return {
            series.LOSS: float("nan")
            if step == self.steps
            else (2 + 2 * (1 - step / self.steps)) * (1 + 0.05 * noise.gauss(0, 1)),
            series.GRAD_NORM: float("inf") if skipped else (1 + 0.3 * noise.random()) * (40 if wild else 1),
            series.LEARNING_RATE: 5e-5 * min(1, step / 500) * (1 - step / self.steps),
            series.EPOCH: 3 * step / self.steps,
            series.LOSS_SCALE: 65536.0 / (2 if skipped else 1),
            series.OVERFLOW: float(skipped),
            series.STEP_SECONDS: seconds,
            series.TOKENS_PER_SECOND: 8192 / seconds,
            series.GPU_MEMORY_BYTES: 2e10 + 1e6 * noise.random(),
            series.HOST_MEMORY_BYTES: 4e9 + 1e6 * noise.random(),
        }


# --- the measuring ---


def _here(database: Database, tries: int) -> dict[str, float]:
    question = Question(tuple(DEFAULT_RULES))
    seen: dict[str, Any] = {}

    def judge() -> None:
        with database.reading() as connection:
            read = backtest_tasks.read_run(connection, RUN, question)
        seen["report"] = read.report(question, utc_now())

    told = _least(judge, tries)
    report = seen["report"]
    return told | {
        "points": report.points,
        "episodes": report.episodes_total,
        "us a point": 1e6 * told["cpu seconds"] / report.points,
    }


def _as_jobs(database: Database, url: str, tries: int) -> dict[str, float]:
    working = Backtesting(database, url, utc_now, processes=1)
    working.start()
    try:
        began = time.perf_counter()
        _job(database, working)
        first = time.perf_counter() - began
        told = _least(lambda: _job(database, working), tries)
        return {"seconds": told["seconds"], "with the start of the process": first}
    finally:
        working.stop()


def _job(database: Database, working: Backtesting) -> None:
    """Ask, and wait for the stored answer."""
    request = Request(tuple(DEFAULT_RULES), runs=Selection(RunsKind.PICKED, run_ids=(RUN,)))
    job = database.writer.submit(lambda c: backtests.create(c, request, [], "benchmark", utc_now()))
    working.wake()
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with database.reading() as connection:
            found = store.get(connection, job.backtest_id)
        if found is not None and found.state is BacktestState.SUCCEEDED:
            return
        time.sleep(0.005)
    raise RuntimeError("the backtest did not end")


def _least(act: Callable[[], object], tries: int) -> dict[str, float]:
    took = []
    for _ in range(tries):
        began, began_cpu = time.perf_counter(), time.process_time()
        act()
        took.append((time.perf_counter() - began, time.process_time() - began_cpu))
    return {"seconds": min(each[0] for each in took), "cpu seconds": min(each[1] for each in took)}


if __name__ == "__main__":
    sys.exit(main())
