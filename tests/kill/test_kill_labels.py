"""Crash labels: what they do when asked, that they do nothing when not, and that the list is what stands in the source."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from trainer_agent.config import Config
from trainer_agent.monitor import Monitor
from trainer_agent.wire import crash
from trainer_agent.wire.messages import RunStart

ROOT = Path(__file__).resolve().parents[2]
CODE = "from trainer_agent.wire import crash\nfor turn in range(5): crash.reach('ack.done'); print(turn, flush=True)"


def run(**environment: str) -> subprocess.CompletedProcess:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    everything = kept | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run([sys.executable, "-c", CODE], env=everything, capture_output=True, text=True, check=False, timeout=60)


def test_the_list_of_labels_is_what_stands_in_the_source():
    found = set()
    for folder in ("trainer_agent", "server"):
        for path in (ROOT / folder).rglob("*.py"):
            for given in re.findall(r"\breach\(([^)]*)\)", path.read_text()):
                found |= set(re.findall(r'"([a-z_.]+)"', given))
    assert sorted(found) == sorted(crash.LABELS)


def test_the_process_dies_at_its_label_the_nth_time_and_writes_down_what_it_reached(tmp_path):
    done = run(LOSSGUARD_CRASH_AT="ack.done:3", LOSSGUARD_CRASH_LOG=str(tmp_path / "log"))
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "0\n1\n")
    assert [line.split()[:2] for line in (tmp_path / "log").read_text().splitlines()] == [["ack.done", str(n)] for n in (1, 2, 3)]


def test_a_label_without_a_count_is_the_first_time_and_another_label_is_passed_by():
    assert run(LOSSGUARD_CRASH_AT="ack.done").stdout == ""
    assert run(LOSSGUARD_CRASH_AT="ack.before").returncode == 0
    assert run().returncode == 0


def test_a_label_that_does_not_exist_is_an_error_and_not_a_run_without_a_kill():
    assert "there is no crash label 'ack.dnoe'" in run(LOSSGUARD_CRASH_AT="ack.dnoe").stderr


def test_no_label_lies_on_the_way_of_log(tmp_path, monkeypatch):
    reached: dict[str, set[str]] = {}
    monkeypatch.setattr(crash, "reach", lambda label: reached.setdefault(threading.current_thread().name, set()).add(label))
    monitor = Monitor(RunStart("run", "inc", "p", "n"), Config(), tmp_path / ".lossguard")
    monitor.begin()
    for step in range(2000):
        monitor.log({"train/loss": 1.0}, step)
    assert monitor.flush(30)
    assert "segment.written" in reached.pop("lossguard-spool")
    assert set(reached) <= {"lossguard-sync"}
    monkeypatch.undo()
    monitor.spool.abandon()
