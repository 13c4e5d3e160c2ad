"""A training loop over the plain Monitor, without torch, that leaves in the way it is told."""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainer_agent.config import Config
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, EndReason, SegmentCause

STEPS = 20


class Burst(Exception):  # noqa: N818  as it is called
    """The training's own."""


def leave(way: str, monitor: Monitor, leaving: Callable[[], None]) -> None:
    """Takes the way out; comes back where the training ends by itself."""
    if way == "stop":
        command = monitor.wait_for_command(30)
        assert command is not None
        leaving()
        monitor.end(EndReason.STOPPED_BY_COMMAND, STEPS)
        return
    leaving()
    if way == "raise":
        raise Burst("secret data of the user")
    if way == "exit":
        sys.exit(3)
    if way == "os_exit":
        os._exit(7)
    if way in {"int", "term", "kill"}:
        os.kill(os.getpid(), {"int": signal.SIGINT, "term": signal.SIGTERM, "kill": signal.SIGKILL}[way])
        time.sleep(30)


def steps(monitor: Monitor, first: int = 1, last: int = STEPS) -> None:
    for step in range(first, last + 1):
        monitor.log({"train/loss": 1.0 / step, "train/grad_norm": float("nan")}, step)
        time.sleep(0.001)


def open_monitor(job: dict, folder: Path) -> Monitor:
    start = RunStart(job["run"], new_incarnation(), "p", job["name"][:200], capabilities=(CommandKind.STOP,), pid=os.getpid())
    return Monitor(start, Config(job["url"], job["token"]), folder / ".lossguard")


def train(job: dict, folder: Path, leaving: Callable[[], None]) -> None:
    """`with monitor:`, or, in the way `bare`, the way out taken where nobody stands around it."""
    monitor = open_monitor(job, folder)
    if job.get("bare"):
        monitor.begin()
        _train(job, monitor, leaving)
        return
    with monitor:
        _train(job, monitor, leaving)
    deadline = time.monotonic() + 30
    while any(thread.is_alive() for thread in (monitor._writer._thread, *monitor._sender._threads)):
        if time.monotonic() > deadline:
            faulthandler.dump_traceback()
            raise AssertionError("a thread of LossGuard's is left")
        time.sleep(0.01)


def _train(job: dict, monitor: Monitor, leaving: Callable[[], None]) -> None:
    monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
    steps(monitor)
    if job["url_state"] == "up" or job["way"] in {"term", "kill", "os_exit"}:
        monitor.flush(20 if job["url_state"] == "up" else 0.3)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("lossguard-"))
    leave(job["way"], monitor, leaving)
