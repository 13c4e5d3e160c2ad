"""How fast a backlog reaches a real server, and what the page shows meanwhile.

A run was killed, or its server was away, and a spool of `records` waits. A new process of the run starts: it delivers that spool
and goes on logging 50 steps a second, with six series a step, four of them judged by the default rules. The server is another
process, on SQLite. Meanwhile a page asks for `GET /api/runs` 10 times a second, and another run logs 20 steps a second.

    points a second      all points of the old spool, from `begin()` until the server has acknowledged the last
    age of the latest    now, less the time at which the value that the page shows was logged; the largest of the whole drain,
                         the wait for the first one included
    age of the other     the same of the other run's newest stored step
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._harness import Server, at_least, at_most, finish, operator, parser, say, server
from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.wire import series
from trainer_agent.wire.messages import Numbered, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

CLOCK = "perf/logged_at_seconds"
"""Holds when it was logged, so that whoever reads it knows how old it is."""
NAMES = (series.LOSS, series.GRAD_NORM, series.LOSS_SCALE, series.OVERFLOW, series.LEARNING_RATE, CLOCK)
LIVE_SECONDS, OTHER_SECONDS, LOOK_SECONDS = 0.02, 0.05, 0.1


def main() -> int:
    """Measures once; exit status 1 when a bar is not met."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="lossguard-bench-") as folder, server(Path(folder)) as served:
        results = _measure(Path(folder), served, options.records)
    bars = [
        at_least("points drained a second", results["points_per_second"], 5_000),
        at_most("age of the page's latest value while it drains, seconds", results["latest_age_seconds"]["max"], 2.0),
        at_most("age of another run's newest step meanwhile, seconds", results["other_run_age_seconds"]["max"], 2.0),
    ]
    return finish("catch_up", options, results, bars)


def _options() -> argparse.Namespace:
    made = parser("catch_up", (__doc__ or "").partition("\n")[0])
    made.add_argument("--records", type=int, help="records that wait [100,000, quick: 20,000]")
    options = made.parse_args()
    options.records = options.records or (20_000 if options.quick else 100_000)
    return options


def _measure(folder: Path, served: Server, records: int) -> dict[str, Any]:
    page = _Page(served.url, operator(folder))
    other = _monitor(folder / "other", served, "other-run")
    run_id = "caught-up-run"
    _leave(folder / "run", run_id, records)
    say(f"{records} records of {len(NAMES)} points wait")
    monitor = _monitor(folder / "run", served, run_id, begins=False)
    try:
        with _logging(other, OTHER_SECONDS):
            _wait(lambda: page.logged_at("other-run") is not None)
            ages, others = _Ages(), _Ages()
            monitor.begin()
            began = time.monotonic()
            monitor.record(SegmentStarted(2, records, SegmentCause.RESTART, time.time(), 1))
            with _logging(monitor, LIVE_SECONDS, first=records + 1):
                seconds = _drain(monitor, page, began, ages, others)
    finally:  # they write into the folder, which goes next
        monitor.end(EndReason.FINISHED, None)
        other.end(EndReason.FINISHED, None)
    return {
        "records": records,
        "points": records * len(NAMES),
        "seconds": seconds,
        "points_per_second": records * len(NAMES) / seconds,
        "latest_age_seconds": ages.told(),
        "other_run_age_seconds": others.told(),
    }


def _drain(monitor: Monitor, page: "_Page", began: float, ages: "_Ages", others: "_Ages") -> float:
    """Looks at the page until the old spool has gone; the seconds that took."""
    done: list[float] = []
    waiter = threading.Thread(target=_flush, args=(monitor, done), daemon=True)
    waiter.start()
    while not done:
        shown = page.runs()
        now = time.time()
        latest = shown.get(monitor.start.run_id, {}).get("latest", {}).get(CLOCK)
        is_live = latest is not None and latest["value"] > page.began
        ages.seen.append(now - latest["value"] if is_live else time.monotonic() - began)
        others.seen.append(now - shown["other-run"]["latest"][CLOCK]["value"])
        time.sleep(LOOK_SECONDS)
    waiter.join()
    if not monitor.spool.next_seq > 1:
        raise RuntimeError("the backlog did not drain within 10 minutes")
    return done[0] - began


def _flush(monitor: Monitor, done: list[float]) -> None:
    monitor.flush(600)
    done.append(time.monotonic())


@dataclass
class _Ages:
    """Ages in seconds, as they were seen."""

    seen: list[float] = field(default_factory=list)

    def told(self) -> dict[str, float]:
        return {"median": statistics.median(self.seen), "max": max(self.seen), "looks": len(self.seen)}


class _Page:
    """What a browser would be told."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token, self.began = url, token, time.time()

    def runs(self) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._url}/api/runs", headers={"Authorization": f"Bearer {self._token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return {run["run_id"]: run for run in json.loads(answer.read())["runs"]}

    def logged_at(self, run_id: str) -> float | None:
        """When the newest value of a run was logged, by its own word; None before there is one."""
        latest = self.runs().get(run_id, {}).get("latest", {}).get(CLOCK)
        return None if latest is None else float(latest["value"])


def _monitor(folder: Path, served: Server, run_id: str, *, begins: bool = True) -> Monitor:
    start = RunStart(run_id, new_incarnation(), "benchmarks", run_id)
    monitor = Monitor(start, Config(served.url, served.token), folder / ".lossguard", Voice(lambda _: None))
    if begins:
        monitor.begin()
        monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
    return monitor


def _leave(folder: Path, run_id: str, records: int) -> None:
    """What an earlier process of the run did not get rid of."""
    start = RunStart(run_id, new_incarnation(), "benchmarks", run_id)
    spool = Spool.create(folder / ".lossguard" / "spool" / start.incarnation, start)
    chance, began = random.Random(1), time.time() - records * 0.2  # noqa: S311 -- a measurement repeats
    spool.write([Numbered(1, SegmentStarted(1, 0, SegmentCause.START, began))])
    for first in range(1, records + 1, 1000):
        steps = range(first, min(first + 1000, records + 1))
        spool.write([Points(step + 1, began + step * 0.2, 1, step, NAMES, _values(chance, began + step * 0.2)) for step in steps])
    spool.abandon()


def _values(chance: random.Random, when: float) -> tuple[float, ...]:
    """A healthy step: nothing of it fires, as in most of any run."""
    return (2.0 + chance.gauss(0, 0.05), math.exp(chance.gauss(0, 0.2)), 65536.0, 0.0, 3e-4, when)


@contextmanager
def _logging(monitor: Monitor, seconds: float, first: int = 1) -> Iterator[None]:
    """A training loop beside: one step every so many seconds."""
    over = threading.Event()

    def run() -> None:
        chance, step = random.Random(2), first  # noqa: S311
        while not over.wait(seconds):
            monitor.log(dict(zip(NAMES, _values(chance, time.time()), strict=True)), step)
            step += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the other run did not reach the server")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
