"""Writer: short pieces in order, and values that look like those before them but are not.

First without its thread; then with it, and with destructors that the garbage collector runs on whatever thread it is on.
"""

import gc
import math
import threading
import time

from figures import patience
from transport_server import ScriptedServer

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording.entries import Points
from trainer_agent.recording.ring import Ring
from trainer_agent.recording.spool import Spool
from trainer_agent.recording.writer import PIECE, Writer
from trainer_agent.wire.messages import Dropped, Report, RunStart
from trainer_agent.wire.vocabulary import CommandState, EndReason

START = RunStart("run", "inc", "p", "n")


class Bench:
    """A writer on a ring and a spool of its own, turned by hand."""

    def __init__(self, folder):
        self.ring, self.spool, self.said, self.writes = Ring(), Spool(folder / "spool" / "inc", START), [], 0
        self.writer = Writer(self.ring, self.spool, Voice(self.said.append), self._written)

    def _written(self):
        self.writes += 1

    def log(self, step, values):
        self.ring.append_points((self.ring.next_ticket(), 1.0, 1, step, values))

    def entries(self):
        self.writer._round()
        return list(self.spool.entries(1))


def test_what_gathered_is_written_in_pieces_and_in_order(tmp_path):
    bench = Bench(tmp_path)
    for step in range(1, 3 * PIECE + 2):
        bench.log(step, {"train/loss": float(step)})
    entries = bench.entries()
    assert bench.writes == 4
    assert [(entry.seq, entry.step, entry.values) for entry in entries] == [(n, n, (float(n),)) for n in range(1, 3 * PIECE + 2)]


def test_names_that_were_checked_before_excuse_no_value_that_is_no_number(tmp_path):
    bench = Bench(tmp_path)
    given = [1.5, "1.5", 2, True, None, math.nan, [1.0], 10**400]
    for step, value in enumerate(given, 1):
        bench.log(step, {"train/loss": value, "train/grad_norm": 1.0})
    kept = [dict(zip(entry.names, entry.values, strict=True)) for entry in bench.entries()]
    losses = [each.get("train/loss", "missing") for each in kept]
    assert losses[:5] == [1.5, "missing", 2.0, 1.0, "missing"]
    assert math.isnan(losses[5])
    assert losses[6:] == ["missing", "missing"]
    assert bench.writer.unusable == 4


def test_a_bad_name_stays_bad_however_often_it_comes(tmp_path):
    bench = Bench(tmp_path)
    for step in (1, 2):
        bench.log(step, {"Bad Name": 1.0, "train/loss": 1.0})
    assert [entry.names for entry in bench.entries()] == [("train/loss",)] * 2
    assert bench.writer.unusable == 2


def test_a_call_with_more_values_than_a_batch_holds_takes_nothing_else_along(tmp_path):
    bench = Bench(tmp_path)
    bench.log(1, {"train/loss": 1.0})
    bench.log(2, {f"many/x{n}": 1.0 for n in range(70_000)})  # no frame holds so many
    bench.log(3, {"train/loss": 3.0})
    first, lost, third = bench.entries()
    assert (first.values, lost.record.count, third.values) == ((1.0,), 1, (3.0,))
    assert bench.spool.last_seq == bench.spool._written == 3  # all is on the disk
    assert bench.writer.latest == {"train/loss": 3.0}
    assert sum("70000 values" in line for line in bench.said) == 1


def test_a_heartbeat_carries_the_newest_of_a_hundred_series_at_most(tmp_path):
    bench = Bench(tmp_path)
    for step in (1, 2):
        bench.log(step, {f"many/x{n}": float(step) for n in range(4_000)} | {"train/loss": float(step)})
        bench.entries()
        assert len(bench.writer.latest) == 100
        assert set(bench.writer.latest.values()) == {float(step)}


def test_a_step_that_is_no_whole_number_is_named_by_its_own_type(tmp_path):
    bench = Bench(tmp_path)
    bench.log("7", {"train/loss": 1.0})
    (entry,) = bench.entries()
    assert isinstance(entry.record, Dropped)
    assert "(str)" in bench.said[0]


def test_a_script_may_fill_the_same_dict_again_at_its_next_step(tmp_path):
    monitor = Monitor(RunStart("run", new_incarnation(), "p", "n"), Config(), tmp_path / ".lossguard", Voice(lambda _: None))
    monitor.begin()
    values = {}
    for step in range(1, 200):
        values["train/loss"] = float(step)
        monitor.log(values, step)
    values.clear()
    assert monitor.flush(60)
    assert [entry.values for entry in monitor.spool.entries(1) if isinstance(entry, Points)] == [
        (float(n),) for n in range(1, 200)
    ]
    monitor.end(EndReason.FINISHED, 199)


def test_a_record_is_with_the_kernel_within_100_ms_of_the_call(tmp_path, figure):
    """What a SIGKILL can take is what lies between the call and the write."""
    monitor = Monitor(RunStart("run", new_incarnation(), "p", "n"), Config(), tmp_path / ".lossguard", Voice(lambda _: None))
    monitor.begin()
    seconds = []
    for step in range(1, 21):
        began = time.monotonic()
        monitor.log({"train/loss": 1.0}, step)
        deadline = began + 30.0
        while sum(file.stat().st_size for file in monitor.spool.directory.glob("*.seg")) <= size_of(seconds):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        seconds.append((time.monotonic() - began, sum(file.stat().st_size for file in monitor.spool.directory.glob("*.seg"))))
    monitor.end(EndReason.FINISHED, 20)
    figure("R48", "from log() to the spool's file, median of 20", sorted(seconds)[10][0], at_most=patience(0.1), unit="s")


def size_of(seconds):
    return seconds[-1][1] if seconds else 0


def test_the_thread_ends_when_it_is_told_to_and_writes_what_came_last(tmp_path):
    bench = Bench(tmp_path)
    bench.writer.start()
    bench.log(1, {"train/loss": 1.0})
    assert bench.writer.stop(10.0)
    assert [entry.step for entry in bench.spool.entries(1)] == [1]
    assert not [thread for thread in threading.enumerate() if thread.name == "lossguard-spool" and thread is bench.writer._thread]


class Logs:
    """Logs and records as it is destroyed; one of a pair that only the garbage collector can end."""

    def __init__(self, monitor, threads):
        self.monitor, self.threads, self.other = monitor, threads, self

    def __del__(self):
        self.threads.add(threading.current_thread().name)
        self.monitor.log({"train/destroyed": 1.0}, 1)
        self.monitor.record(Report("c", CommandState.RUNNING, time.time()))


def test_destructors_that_run_on_our_own_threads_stall_nothing(tmp_path, figure):
    threads, longest, seconds = set(), 0.0, 2.0
    before = gc.get_threshold()
    with ScriptedServer() as server:
        start = RunStart("run", new_incarnation(), "p", "n")
        monitor = Monitor(start, Config(server.url, "t"), tmp_path / ".lossguard", Voice(lambda _: None))
        monitor.begin()
        gc.set_threshold(20, 2, 2)  # collects hundreds of times a second, on the threads that make most objects: ours
        try:
            step, until = 0, time.monotonic() + seconds
            while time.monotonic() < until or not {"lossguard-spool", "lossguard-sender"} <= threads:
                step += 1
                Logs(monitor, threads)
                began = time.monotonic()
                monitor.log({"train/loss": 1.0}, step)
                longest = max(longest, time.monotonic() - began)
                time.sleep(0.001)
                assert time.monotonic() < until + 30, threads
        finally:
            gc.set_threshold(*before)
        gc.collect()
        assert monitor.flush(60)
        monitor.end(EndReason.FINISHED, step)
        assert len(server.only().series("train/loss")) == step
    figure("F16", "longest log() while destructors run on our threads", longest, at_most=patience(1.0), unit="s")
