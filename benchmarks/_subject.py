"""One process that is measured: it makes calls when it is told to on stdin, and answers with how long each took.

    {"calls": 500, "pace_seconds": 0, "unmeasured": 50}   ->   {"nanoseconds": [...]}
    {"facts_within_seconds": 5}                           ->   {...}          what state the subject says it is in
    (end of the input)                                    ->   it finishes and leaves

A measured call is the whole statement a training script would contain: it builds the dict of six scalars, two of them new
floats, and hands it over with the step. The bare append is the same statement with `buffer.append((step, {...}))`, a deque
bounded as the agent's ring is. The two readings of the clock around it are in every figure.

This file also runs where LossGuard is not installed, so it imports nothing of it on its own account.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

RING_ENTRIES = 10_000
FULL_DISK_BYTES = 4096

Measure = Callable[[int, int], list[int]]
"""Makes so many calls from this step on; the nanoseconds of each."""


class Subject(Protocol):
    """What is measured, ready to be called."""

    measure: Measure

    def facts(self, seconds: float) -> dict[str, Any]:
        """What state it is in, in its own words, found out within so long."""

    def finish(self) -> None:
        """Leaves."""


class Bare:
    """Nothing but an append: what any way of keeping a record costs at least."""

    def __init__(self) -> None:
        self.measure = measure_append(deque(maxlen=RING_ENTRIES))

    def facts(self, seconds: float) -> dict[str, Any]:  # noqa: ARG002
        """Nothing to tell."""
        return {}

    def finish(self) -> None:
        """Nothing to do."""


class LossGuard:
    """The agent's `Monitor.log`, with a disk that is "good", "full" or "stuck".

    Where it is full, no file of this process may grow past 4 KiB. Where it is stuck, the spool's first file is a pipe that nobody
    reads: opening it never ends.
    """

    def __init__(self, url: str, token: str, folder: str, disk: str) -> None:
        from trainer_agent.config import Config
        from trainer_agent.guest.voice import Voice
        from trainer_agent.monitor import Monitor, new_incarnation
        from trainer_agent.wire.messages import RunStart

        if disk == "full":
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))
        run_id = Path(folder).name
        start = RunStart(run_id, new_incarnation(), "benchmarks", run_id)
        self._monitor = Monitor(start, Config(url, token), Path(folder) / ".lossguard", Voice(lambda _: None))
        if disk == "stuck":
            self._monitor.spool.directory.mkdir(parents=True)
            os.mkfifo(self._monitor.spool.directory / f"{1:020d}.seg")
        self._monitor.begin()
        self.measure = measure_log(self._monitor.log)

    def facts(self, seconds: float) -> dict[str, Any]:
        """What the spool says, and whether the server had everything within the time."""
        delivered, spool = self._monitor.flush(seconds), self._monitor.spool
        return {"delivered": delivered, "waiting_records": spool.waiting, "disk": spool.trouble}

    def finish(self) -> None:
        """Leaves what could not be sent."""
        from trainer_agent.wire.vocabulary import EndReason

        self._monitor.end(EndReason.FINISHED, None, timeout_seconds=1.0)


class Trackio:
    """trackio, writing to its local database."""

    def __init__(self, folder: str) -> None:
        os.environ["TRACKIO_DIR"] = folder
        import trackio

        trackio.init(project="benchmarks", name="run", auto_log_cpu=False, auto_log_gpu=False)
        self._module = trackio
        self.measure = measure_log(trackio.log)

    def facts(self, seconds: float) -> dict[str, Any]:  # noqa: ARG002
        """The version measured."""
        return {"version": self._module.__version__}

    def finish(self) -> None:
        """Writes the rest."""
        self._module.finish()


class Wandb:
    """wandb, offline, without its system metrics."""

    def __init__(self, folder: str) -> None:
        places = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
        os.environ.update({"WANDB_MODE": "offline", "WANDB_SILENT": "true"} | dict.fromkeys(places, folder))
        import wandb

        settings = wandb.Settings(x_disable_stats=True, console="off")
        self._run, self._module = wandb.init(project="benchmarks", mode="offline", settings=settings), wandb
        self.measure = measure_log(self._run.log)

    def facts(self, seconds: float) -> dict[str, Any]:  # noqa: ARG002
        """The version measured."""
        return {"version": self._module.__version__}

    def finish(self) -> None:
        """Writes the rest."""
        self._run.finish()


def measure_append(buffer: "deque[Any]") -> Measure:
    """Times `buffer.append((step, {...}))`."""
    append, clock = buffer.append, time.perf_counter_ns

    def measure(calls: int, first: int) -> list[int]:
        spans = [0] * calls
        for index in range(calls):
            step, loss, norm = first + index, 2.0 + index, 0.5 + index
            before = clock()
            append(
                (
                    step,
                    {
                        "train/loss": loss,
                        "train/grad_norm": norm,
                        "train/learning_rate": 3e-4,
                        "amp/loss_scale": 65536.0,
                        "perf/step_seconds": 0.005,
                        "perf/tokens_per_second": 51200.0,
                    },
                )
            )
            spans[index] = clock() - before
        return spans

    return measure


def measure_log(log: Callable[[dict[str, float], int], object]) -> Measure:
    """Times `log({...}, step)`."""
    clock = time.perf_counter_ns

    def measure(calls: int, first: int) -> list[int]:
        spans = [0] * calls
        for index in range(calls):
            step, loss, norm = first + index, 2.0 + index, 0.5 + index
            before = clock()
            log(
                {
                    "train/loss": loss,
                    "train/grad_norm": norm,
                    "train/learning_rate": 3e-4,
                    "amp/loss_scale": 65536.0,
                    "perf/step_seconds": 0.005,
                    "perf/tokens_per_second": 51200.0,
                },
                step,
            )
            spans[index] = clock() - before
        return spans

    return measure


def measure_paced(measure: Measure, calls: int, first: int, pace_seconds: float) -> list[int]:
    """One call every `pace_seconds`, asleep in between, as a training thread is inside its kernels without the interpreter."""
    spans, due = [], time.monotonic()
    for index in range(calls):
        due += pace_seconds
        time.sleep(max(0.0, due - time.monotonic()))
        spans += measure(1, first + index)
    return spans


def make(name: str, settings: dict[str, Any]) -> Subject:
    """The subject of that name."""
    kinds: dict[str, Callable[..., Subject]] = {"bare": Bare, "lossguard": LossGuard, "trackio": Trackio, "wandb": Wandb}
    return kinds[name](**settings)


def serve(subject: Subject, questions: TextIO, answers: TextIO) -> None:
    """Answers until there are no more questions."""
    done = 0
    for line in questions:
        asked = json.loads(line)
        if "facts_within_seconds" in asked:
            reply = subject.facts(asked["facts_within_seconds"])
        else:
            unmeasured, calls, pace = asked["unmeasured"], asked["calls"], asked["pace_seconds"]
            subject.measure(unmeasured, done)
            done += unmeasured
            spans = measure_paced(subject.measure, calls, done, pace) if pace else subject.measure(calls, done)
            done += calls
            reply = {"nanoseconds": spans}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def main() -> None:
    """The subject named first, with its settings as JSON."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no answer
    subject = make(sys.argv[1], json.loads(sys.argv[2]))
    answers.write('{"ready": true}\n')
    answers.flush()
    with suppress(KeyboardInterrupt):
        serve(subject, sys.stdin, answers)
    subject.finish()


if __name__ == "__main__":
    main()
