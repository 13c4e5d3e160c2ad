"""Processes to be killed: a training, a `lossguard sync`, a server. Forked by one that has imported everything.

    python kill_victims.py [server]        then one order a line on stdin, as JSON; answers a line each on stdout
        {"id": 1, "act": "train", ...}     -> {"id": 1, "pid": 17}, and at its end {"pid": 17, "status": -9}

Each is a process of its own from its first line on: it has its own threads, files and sockets, and SIGKILL takes it alone. When
stdin ends, so do all of them.
"""

import contextlib
import ctypes
import importlib
import itertools
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from trainer_agent import cli
from trainer_agent.config import Config
from trainer_agent.identity import Identity
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording import salvage, spool, writer
from trainer_agent.wire import crash
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import EndReason, SegmentCause

SEGMENT_STEPS = 40
"""A new segment begins after so many steps, so that the server seals."""


def known(series: str, step: int) -> float:
    """The value of a step, which the checker knows too."""
    if series == "train/grad_norm":
        return (float("nan"), float("inf"), float("-inf"), -0.0)[step % 4]
    return 1.0 / (step + 3)


SERIES = ("train/loss", "train/grad_norm")


class Witness:
    """What the training saw, on a file that outlives it: each call once it is back, each acknowledgement before it counts."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *words: object) -> None:
        os.write(self._handle, f"{' '.join(map(str, words))} {time.monotonic_ns()}\n".encode())


def train(order: dict) -> None:
    folder = Path(order["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    plant(order.get("fault", ""))
    shrink(order)
    crash.arm(order.get("at", ""), folder / "reached.txt")
    identity = Identity.open(folder / ".lossguard")
    start = RunStart(identity.run_id, new_incarnation(), "kill", folder.name)
    first = identity.next_segment()
    monitor = Monitor(start, Config(order["url"], order["token"]), folder / ".lossguard")
    monitor.spool._segment_bytes = order.get("segment_bytes", 3000)
    monitor.spool._max_bytes = order.get("max_bytes", 1 << 30)
    witness = Witness(folder / "witness.txt")
    acknowledge = monitor.spool.acknowledge

    def acknowledged(next_seq: int) -> None:
        witness.write("ack", next_seq)
        acknowledge(next_seq)

    monitor.spool.acknowledge = acknowledged  # type: ignore[method-assign]
    witness.write("life", start.run_id, start.incarnation)
    monitor.begin()
    if order.get("in_a_hurry"):
        threading.Thread(target=hurry, args=(monitor,), daemon=True).start()
    run(monitor, witness, order, identity, first)


def run(monitor: Monitor, witness: Witness, order: dict, identity: Identity, segment: int) -> None:
    """The loop. Steps of a later life begin where no earlier one came, so that each step has one owner."""
    before = segment * 100_000
    monitor.record(SegmentStarted(segment, before, SegmentCause.START, time.time()))
    witness.write("record")
    if order.get("refused"):
        monitor.record(SegmentStarted(segment, before, SegmentCause.START, time.time(), checkpoint_id="x" * 5000))
        witness.write("record")
    until = Path(order.get("until", "/nowhere"))
    for count in range(1, order["steps"] + 1):
        step = before + count
        if count % 16 == 0 and until.exists():
            break
        monitor.log({series: known(series, step) for series in SERIES}, step)
        witness.write("log", step, monitor.segment)
        if count % SEGMENT_STEPS == 0:
            segment = identity.next_segment()
            monitor.record(SegmentStarted(segment, step, SegmentCause.RESTART, time.time(), segment - 1))
            witness.write("record")
        time.sleep(order.get("pause", 0.002))
    monitor.end(EndReason.FINISHED, step, timeout_seconds=order.get("end_seconds", 30.0))
    witness.write("left")


def hurry(monitor: Monitor) -> None:
    """Has the sender try every 100 ms though the server is away, so that a test need not wait for a back-off."""
    while monitor.flush(60.0):
        time.sleep(0.05)


def shrink(order: dict) -> None:
    """Makes seldom things frequent."""
    writer.TEND_SECONDS = order.get("tend_seconds", 0.05)
    spool.HOT_ENTRIES = order.get("hot_entries", 4096)


def sync(order: dict) -> None:
    plant(order.get("fault", ""))
    folder = Path(order["folder"])
    crash.arm(order.get("at", ""), folder / "reached.txt")
    os.environ["LOSSGUARD_URL"], os.environ["LOSSGUARD_TOKEN"] = order["url"], order["token"]
    code = cli.main(["sync", str(folder), "--timeout", "30"])
    if code:
        raise SystemExit(code)


def serve(order: dict) -> None:
    import server.__main__ as main

    os.environ["LOSSGUARD_DATA_DIR"] = order["data"]
    if order.get("database"):
        os.environ["LOSSGUARD_DATABASE_URL"] = order["database"]
    announce = main._announce

    def arm(*_: object) -> None:
        at = Path(order["at"])
        crash.arm(at.read_text() if at.exists() else "", order["reached"])

    def announced(ready: dict, file: Path | None) -> None:
        signal.signal(signal.SIGUSR1, arm)  # the way up is not what is looked at here
        plant(order.get("fault", ""))
        announce(ready, file)

    main._announce = announced
    main.cli(["serve", "--port", str(order["port"]), "--ready-file", order["ready"]], standalone_mode=False)


# --- faults, planted here and not in the product ---


def plant(fault: str) -> None:
    if fault:
        FAULTS[fault]()


def no_checksum() -> None:
    salvage.is_sound = lambda _data, _place: True


def no_dedupe() -> None:
    """And each batch is sealed at once: the key of the table of batches would refuse the second of them."""
    from server.domain import points
    from server.store import points as store

    points.trim = lambda batch, _next_seq: batch
    store.SEAL_ROWS = 1


def acknowledge_before_commit() -> None:
    """The reply leaves first, the commit comes a moment later."""
    from server.store.writer import Writer, _Job, take_touched

    settle = _Job.settle

    def once(job: _Job) -> None:
        if not job.answer.done():
            settle(job)

    def commit(self: Writer, group: list) -> dict:
        touched: dict[str, int] = {}
        with self._engine.connect() as connection, connection.begin():
            take_touched(connection)
            for job in group:
                touched.update(self._attempt(connection, job))
                job.settle()
            time.sleep(0.1)
            crash.reach("server.before_commit")
        return touched

    _Job.settle, Writer._commit = once, commit


def breaking_write() -> None:
    """The disk is full in the middle of the tenth write of frames, for once."""
    real, count = os.write, itertools.count(1)

    def write(handle: int, data: bytes) -> int:
        if isinstance(data, memoryview):
            turn = next(count)
            if turn == 10:
                return real(handle, data[: len(data) // 2])
            if turn == 11:
                raise OSError(28, "No space left on device")
        return real(handle, data)

    os.write = write


def torn_write() -> None:
    """Dies in the middle of the twelfth write of frames."""
    real, count = os.write, itertools.count(1)

    def write(handle: int, data: bytes) -> int:
        if isinstance(data, memoryview) and next(count) == 12:
            real(handle, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(handle, data)

    os.write = write


FAULTS = {
    "no checksum": no_checksum,
    "no dedupe": no_dedupe,
    "acknowledge before commit": acknowledge_before_commit,
    "breaking write": breaking_write,
    "torn write": torn_write,
}
ACTS = {"train": train, "sync": sync, "serve": serve}


# --- the process that forks them ---


def fork(order: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if sys.platform == "linux":  # should the forking process be killed too
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        ACTS[order["act"]](order)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    answers, buffer, children = os.dup(1), b"", set()
    while True:
        ready, _, _ = select.select([0], [], [], 0.005 if children else 1.0)
        if ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = fork(order)
                children.add(pid)
                os.write(answers, json.dumps({"id": order["id"], "pid": pid}).encode() + b"\n")
        for pid in list(children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                children.discard(pid)
                os.write(answers, json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    if "server" in sys.argv:
        importlib.import_module("server.__main__")
    main()
