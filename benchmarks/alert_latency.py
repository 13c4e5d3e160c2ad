"""How soon somebody is told of a NaN, while ten runs train.

Ten runs at a time log 20 series 10 times a second, as ten trainings would: 2,000 points a second in all, judged by the default
rules. Twice a second the loss of one of them is NaN; that run ends, and another takes its place. The server is another process,
on SQLite; the webhook's receiver and the trainers' threads share this one, on the same cores.

    stored       from the call of `log` with the NaN until the alert can be read from the database
    webhook      from the same call until the first request of the webhook that names the run is here

Source of the bars: what the project asks of itself, 99 of 100 within 2 s and within 5 s.
"""

import argparse
import json
import math
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks._harness import Server, at_least, at_most, finish, operator, parser, say, server
from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.wire import series
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

RUNS, STEP_SECONDS, NAN_SECONDS, LOOK_SECONDS = 10, 0.1, 0.5, 0.02
STANDARD = (series.LOSS, series.GRAD_NORM, series.LOSS_SCALE, series.OVERFLOW, series.LEARNING_RATE)
NAMES = (*STANDARD, *(f"extra/number_{k}" for k in range(20 - len(STANDARD))))
PATIENCE = 30.0
"""Seconds that the last alerts are waited for."""


def main() -> int:
    """Measures once; exit status 1 when a bar is not met."""
    options = _options()
    allowed = {"LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS": "true"}
    with tempfile.TemporaryDirectory(prefix="lossguard-bench-") as name, server(Path(name), **allowed) as served:
        folder = Path(name)
        with _receiver() as (url, called), _looking(folder / "data" / "lossguard.db") as stored:
            _add_webhook(served, operator(folder), url)
            logged = _train(folder, served, options.seconds)
            _wait(lambda: logged.keys() <= stored.keys() and logged.keys() <= called.keys())
        results = _results(logged, stored, called)
    bars = [
        at_least("NaN losses logged", len(logged), options.seconds / NAN_SECONDS / 2),
        at_most("NaN losses of which nobody was told", results["untold"], 0),
        at_most("from log() to the stored alert, 99 of 100, seconds", results["stored_seconds"]["p99"], 2.0),
        at_most("from log() to the webhook, 99 of 100, seconds", results["webhook_seconds"]["p99"], 5.0),
    ]
    return finish("alert_latency", options, results, bars)


def _options() -> argparse.Namespace:
    made = parser("alert_latency", (__doc__ or "").partition("\n")[0])
    made.add_argument("--seconds", type=float, help="how long the runs train [600, quick: 30]")
    options = made.parse_args()
    options.seconds = options.seconds or (30.0 if options.quick else 600.0)
    return options


def _results(logged: dict[str, float], stored: dict[str, float], called: dict[str, float]) -> dict[str, Any]:
    known = logged.keys() & stored.keys() & called.keys()
    return {
        "points_a_second": RUNS * len(NAMES) / STEP_SECONDS,
        "untold": len(logged.keys() - known),
        "stored_seconds": _told([stored[run] - logged[run] for run in known]),
        "webhook_seconds": _told([called[run] - logged[run] for run in known]),
    }


def _told(seconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile (the largest of fewer than 100) and largest; NaN where there are none."""
    inorder = sorted(seconds) or [math.nan]
    p99 = inorder[max(0, math.ceil(0.99 * len(inorder)) - 1)]
    return {"median": statistics.median(inorder), "p99": p99, "max": inorder[-1], "of": len(seconds)}


# --- the runs


def _train(folder: Path, served: Server, seconds: float) -> dict[str, float]:
    """Ten runs for so long; when the NaN of each run was logged, by its id."""
    say(f"{RUNS} runs log {len(NAMES)} series every {STEP_SECONDS:g} s for {seconds:g} s")
    logged: dict[str, float] = {}
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(RUNS) as ending, ThreadPoolExecutor(RUNS) as training:
        for place in training.map(lambda place: _runs_of_one_place(folder, served, place, until, ending), range(RUNS)):
            logged |= place
    return logged


def _runs_of_one_place(folder: Path, served: Server, place: int, until: float, ending: Executor) -> dict[str, float]:
    """One run after another; the first of each place ends at another time, so that the NaNs are spread."""
    chance, logged, number = random.Random(place), {}, 0  # noqa: S311 -- a measurement repeats
    whole = RUNS * NAN_SECONDS
    life = whole * (place + 1) / RUNS
    while time.monotonic() + life < until:
        run_id = f"run-{place}-{number}"
        monitor = _monitor(folder / run_id, served, run_id)
        step, logged[run_id] = _one_run(monitor, life, chance)
        ending.submit(monitor.end, EndReason.FAILED, step, timeout_seconds=PATIENCE)
        life, number = whole * chance.uniform(0.8, 1.2), number + 1
    return logged


def _one_run(monitor: Monitor, seconds: float, chance: random.Random) -> tuple[int, float]:
    """Healthy steps for so long, then a NaN: its step, and when it was logged."""
    until, step = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        step += 1
        monitor.log(dict(zip(NAMES, _values(chance), strict=True)), step)
        time.sleep(STEP_SECONDS)
    now = time.monotonic()
    monitor.log({series.LOSS: math.nan}, step + 1)
    return step + 1, now


def _values(chance: random.Random) -> tuple[float, ...]:
    """A healthy step: nothing of it fires."""
    standard = (2.0 + chance.gauss(0, 0.05), math.exp(chance.gauss(0, 0.2)), 65536.0, 0.0, 3e-4)
    return (*standard, *(chance.random() for _ in NAMES[len(standard) :]))


def _monitor(folder: Path, served: Server, run_id: str) -> Monitor:
    start = RunStart(run_id, new_incarnation(), "benchmarks", run_id)
    monitor = Monitor(start, Config(served.url, served.token), folder / ".lossguard", Voice(lambda _: None))
    monitor.begin()
    monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
    return monitor


# --- those who are told


@contextmanager
def _receiver() -> Iterator[tuple[str, dict[str, float]]]:
    """A webhook's receiver: its address, and when each run was first named by an incident."""
    called: dict[str, float] = {}

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            now = time.monotonic()
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if told["type"] == "incident.firing":
                called.setdefault(told["data"]["run_id"], now)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}/hook", called
    finally:
        listening.shutdown()
        listening.server_close()


def _add_webhook(served: Server, token: str, url: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"name": "benchmark", "url": url}).encode()
    request = urllib.request.Request(f"{served.url}/api/webhooks", body, headers)  # noqa: S310
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


@contextmanager
def _looking(database: Path) -> Iterator[dict[str, float]]:
    """When the alert on a NaN loss of each run could first be read from the database, to within `LOOK_SECONDS`."""
    stored: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            while not over.wait(LOOK_SECONDS):
                rows = connection.execute("SELECT run_id FROM alerts WHERE rule_id = 'loss-not-finite'").fetchall()
                now = time.monotonic()
                for (run_id,) in rows:
                    stored.setdefault(run_id, now)

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    try:
        yield stored
    finally:
        over.set()
        looker.join()


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
