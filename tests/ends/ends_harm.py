"""What a training may meet: forks, a garbage collector at every turn, dying threads, disks that are full or never answer.

`python ends_harm.py WHAT FOLDER URL TOKEN [MORE]`; each prints one JSON line to stdout.
"""

import ctypes
import faulthandler
import gc
import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from trainer_agent.config import Config
from trainer_agent.guest import lasting
from trainer_agent.identity import Identity
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

FOLDER, URL, TOKEN, MORE = Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]
RUN = f"harm-{FOLDER.name}"


def opened(segment: int = 1, incarnation: str = "") -> Monitor:
    start = RunStart(RUN, incarnation or new_incarnation(), "p", sys.argv[1])
    monitor = Monitor(start, Config(URL, TOKEN), FOLDER / ".lossguard")
    monitor.begin()
    monitor.record(SegmentStarted(segment, 0, SegmentCause.START if segment == 1 else SegmentCause.RESTART, time.time()))
    return monitor


class Steps:
    """Logs in a thread of its own, as a training does, and knows the longest call."""

    def __init__(self, monitor: Monitor, pause: float = 0.001) -> None:
        self.monitor, self.pause, self.count, self.longest = monitor, pause, 0, 0.0
        self.times: list[float] = []
        self.is_over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.is_over:
            began = time.perf_counter()
            self.monitor.log({"train/loss": 1.0, "train/grad_norm": 2.0}, self.count + 1)
            self.times.append(time.perf_counter() - began)
            self.count += 1
            time.sleep(self.pause)

    def stop(self) -> dict:
        self.is_over = True
        self.thread.join(10)
        times = sorted(self.times)
        return {"steps": self.count, "longest": times[-1], "p99_us": times[int(len(times) * 0.99)] * 1e6}


def ended(monitor: Monitor, steps: int) -> float:
    began = time.monotonic()
    monitor.end(EndReason.FINISHED, steps)
    return time.monotonic() - began


# --- forks


def child(monitor: Monitor, number: int) -> None:
    """What a worker of a data loader does: uses what it was given, and leaves one way or the other."""
    for step in range(5):
        monitor.log({"child/loss": 1.0}, step)
    monitor.record(SegmentStarted(99, 0, SegmentCause.START, time.time()))
    assert monitor.take_command() is None
    assert not monitor.flush(5)
    if number % 2:
        monitor.end(EndReason.FAILED, 1)
    if number % 3:
        os._exit(0)


def storm() -> dict:
    monitor, hung, running = opened(), 0, {}
    steps = Steps(monitor)
    for number in range(int(MORE[0])):
        while len(running) >= 8:
            hung += reap(running)
        if (pid := os.fork()) == 0:
            child(monitor, number)
            sys.exit(0)
        running[pid] = time.monotonic() + 30.0
    while running:
        hung += reap(running)
    told = steps.stop()
    return {"hung": hung, "exit": ended(monitor, told["steps"])} | told


def reap(running: dict[int, float]) -> int:
    """Waits for children; those that hang for 30 s are ended and counted."""
    hung = 0
    for pid, deadline in list(running.items()):
        if os.waitpid(pid, os.WNOHANG)[0]:
            del running[pid]
        elif time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            del running[pid]
            hung += 1
    time.sleep(0.002)
    return hung


# --- the garbage collector, and threads that die


class Loud:
    """Garbage in a circle whose destructor prints and logs, on whatever thread it is collected."""

    monitor: Monitor

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        print("collected", file=sys.stderr)
        self.monitor.log({"train/collected": 1.0}, 1)


def garbage() -> dict:
    seconds = float(MORE[0])
    faulthandler.dump_traceback_later(seconds + 30, exit=True)
    monitor = Loud.monitor = opened()
    gc.set_threshold(1)
    steps, until = Steps(monitor, 0.0005), time.monotonic() + seconds
    gaps, last = [], time.monotonic()
    while time.monotonic() < until:
        Loud()
        time.sleep(0.0005)
        gaps.append(time.monotonic() - last)
        last = time.monotonic()
    told = steps.stop()
    gc.set_threshold(700)
    return {"exit": ended(monitor, told["steps"]), "gap": max(gaps)} | told


def kill_thread(name: str) -> bool:
    """SystemExit into a thread, which is how a thread dies without a word; False when there is none of the name."""
    found = [each.ident for each in threading.enumerate() if each.name == name]
    if found:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(found[0] or 0), ctypes.py_object(SystemExit))
    return bool(found)


def is_alive(name: str) -> bool:
    return any(each.name == name for each in threading.enumerate())


def threads() -> dict:
    """A thread is killed twice, or (`until gone`) until it does not come back; one that waits dies when it wakes."""
    restarted: Counter[str] = Counter()

    def pause(seconds: float) -> None:
        restarted[threading.current_thread().name] += 1
        time.sleep(seconds)

    lasting.PAUSE_SECONDS, lasting.time = 0.05, SimpleNamespace(monotonic=time.monotonic, sleep=pause)
    monitor = opened()
    steps = Steps(monitor)
    until, name = time.monotonic() + 60, f"lossguard-{MORE[0]}"
    # A thread that is just being begun goes by the number of the one that begins it, in CPython 3.11, and would get its death.
    while not any(each.name == "lossguard-sync" and each.ident for each in threading.enumerate()):
        time.sleep(0.01)
    for _ in range(2 if MORE[1] == "twice" else 1000):
        before = restarted[name]
        if not kill_thread(name):
            break
        while time.monotonic() < until and is_alive(name) and restarted[name] == before:
            time.sleep(0.01)
    alive = [thread.name for thread in threading.enumerate() if thread.name.startswith("lossguard-")]
    told = steps.stop()
    return {"exit": ended(monitor, told["steps"]), "alive": alive} | told


# --- disks


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def full() -> dict:
    """The disk is full while more comes than the memory holds; then there is space again."""
    monitor = opened()
    monitor.flush(0.3)
    limit_files(20_000)
    steps = Steps(monitor, 0.0)
    until = time.monotonic() + 30
    while not monitor.spool.dropped and time.monotonic() < until:
        time.sleep(0.01)
    limit_files(resource.RLIM_INFINITY)
    began = time.monotonic()
    while monitor.spool.trouble and time.monotonic() < began + 30:
        time.sleep(0.01)
    recovery = time.monotonic() - began
    told = steps.stop()
    end = ended(monitor, told["steps"])
    return {"recovery": recovery, "exit": end, "dropped": monitor.spool.dropped + monitor._writer.dropped} | told


def quota() -> dict:
    """Nothing can ever be written."""
    limit_files(0)
    monitor = opened()
    steps = Steps(monitor)
    time.sleep(1.0)
    told = steps.stop()
    return {"exit": ended(monitor, told["steps"])} | told


def stuck() -> dict:
    """The disk never answers: the spool's first file is a pipe that nobody reads."""
    incarnation = new_incarnation()
    folder = FOLDER / ".lossguard" / "spool" / incarnation
    folder.mkdir(parents=True)
    os.mkfifo(folder / f"{1:020d}.seg")
    monitor = opened(incarnation=incarnation)
    steps = Steps(monitor, 0.0002)
    time.sleep(2.0)
    told = steps.stop()
    return {"exit": ended(monitor, told["steps"]), "is_stuck": not monitor.spool._written} | told


def million() -> dict:
    """An outage of a great many records; `unwritable`: with a disk that takes nothing, too."""
    if MORE[1] == "unwritable":
        (FOLDER / ".lossguard").write_text("a file where the folder should be")
    monitor = opened()
    for step in range(20_000):  # what is needed in any case
        monitor.log({"train/loss": 1.0, "train/grad_norm": 2.0}, step)
    time.sleep(0.5)
    count, before = int(MORE[0]), resident()
    most = before
    for step in range(count):
        monitor.log({"train/loss": 1.0 / (step + 1), "train/grad_norm": 2.0}, step)
        if step % 50 == 0:
            time.sleep(0.0005)  # the writer's turn: an outage lasts
        if step % 20_000 == 0:
            most = max(most, resident())
    grown = max(most, resident()) - before
    return {"grown_mib": grown / 2**20, "exit": ended(monitor, count), "waiting": monitor.spool.waiting}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def twice() -> dict:
    """One of two processes that start the same run at once, each in a segment of its own as the integrations do."""
    while not (FOLDER / "go").exists():
        time.sleep(0.001)
    segment = Identity.open(FOLDER / ".lossguard", RUN).next_segment()
    monitor = opened(segment)
    value = float(MORE[0])
    for step in range(1, 41):
        monitor.log({"train/loss": value}, step)
    return {"exit": ended(monitor, 40), "segment": segment}


WHAT: dict[str, Callable[[], dict]] = {
    each.__name__: each for each in (storm, garbage, threads, full, quota, stuck, million, twice)
}
print(json.dumps(WHAT[sys.argv[1]]()))
