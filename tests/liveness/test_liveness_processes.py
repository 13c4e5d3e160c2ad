"""The same with real processes: a loop that blocks, a process that is stopped, a clean exit, and a server that is stopped.

Limits are scaled: a run is lost after 5 s where it is 60, stalled after 4 where it is 120, heartbeats come every 0.7 s where
it is 10. `LOSSGUARD_SOAK=1` stops the server for 60 s.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest
from faults_kit import ROOT, RealServer, wait, whole
from figures import patience

VICTIM = Path(__file__).with_name("liveness_victim.py")
LOST_SECONDS, STALL_SECONDS, BEAT_SECONDS, LATE = 5.0, 4.0, 0.7, patience(5.0)
"""How late a state may be told is `LATE`: R8 allows the limit and 5 s."""
SCALED = f"""
from datetime import timedelta
import server.domain.runs as runs
runs.LOST_AFTER = timedelta(seconds={LOST_SECONDS})
import server.domain.liveness as liveness
liveness.SAMPLE_SECONDS = 0.2
import server.domain.detectors.absence as absence
absence.HEARD_SECONDS = 2.0
import server.worker as worker
worker.PAUSE_SECONDS = 2.0
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("liveness-server"), SCALED)
    change(server, "run-stalled", {"settings": {"floor_seconds": STALL_SECONDS}})
    yield server
    server.close()


def change(server, rule_id, body):
    headers = {"Authorization": f"Bearer {server.operator}", "Content-Type": "application/json", "X-LossGuard": "1"}
    request = urllib.request.Request(f"{server.url}/api/rules/{rule_id}", json.dumps(body).encode(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


@pytest.fixture
def trainings(server, tmp_path):
    """Begins trainings, and ends them with the test."""
    begun = []

    def begin(name, then):
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, str(VICTIM), folder, server.url, server.token, name, then, str(BEAT_SECONDS)]
        process = subprocess.Popen([*map(str, command)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        begun.append(process)
        return process, folder

    yield begin
    for process in begun:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def absences(server, name):
    """Rules of absence that have an alert on the run, by rule."""
    return {each["rule_id"]: each for each in server.run_of(name)["alerts"] if each["series"].startswith("run/")}


def test_r8_a_blocked_loop_a_stopped_process_and_a_clean_exit_are_three_things(server, trainings, figure):
    blocked, _ = trainings("blocked", "blocks")
    stopped, folder = trainings("stopped", "goes_on")
    left, _ = trainings("left", "leaves")
    wait(lambda: (run := server.run_of("stopped")) is not None and (run["step"] or 0) >= 20, 60)
    stopped.send_signal(signal.SIGSTOP)
    silent = time.monotonic()
    wait(lambda: server.run_of("stopped")["state"] == "lost", 60)
    figure("R8", "seconds until a stopped process is lost", time.monotonic() - silent, at_most=LOST_SECONDS + LATE, unit="s")
    wait(lambda: server.run_of("blocked")["stalled"] is not None, 60)
    stall = absences(server, "blocked")["run-stalled"]
    late = (at(stall["firing_at"]) - at(stall["onset_at"])).total_seconds() - stall["limit"]
    figure("F29", "seconds past the limit until a blocked loop is told to be stalled", late, at_most=LATE, at_least=0, unit="s")
    wait(lambda: left.poll() is not None and server.run_of("left")["state"] == "finished", 60)
    time.sleep(LOST_SECONDS + 1)  # longer than every limit, which is what is tested
    assert blocked.poll() is None
    assert folder.exists()
    states = {name: server.run_of(name)["state"] for name in ("blocked", "stopped", "left")}
    assert states == {"blocked": "running", "stopped": "lost", "left": "finished"}
    kinds = {name: set(absences(server, name)) for name in states}
    assert kinds == {"blocked": {"run-stalled"}, "stopped": {"run-lost"}, "left": set()}
    stopped.send_signal(signal.SIGCONT)
    wait(lambda: server.run_of("stopped")["state"] == "running", 60)
    wait(lambda: absences(server, "stopped")["run-lost"]["state"] == "resolved", 60)


def at(text):
    return datetime.fromisoformat(text)


def test_r11_a_server_that_was_stopped_calls_no_living_run_lost_and_the_dead_one_soon(server, trainings, figure):
    names = ["alive-1", "alive-2", "alive-3", "died"]
    processes = {name: trainings(name, "goes_on")[0] for name in names}
    wait(lambda: all((run := server.run_of(name)) is not None and (run["step"] or 0) >= 10 for name in names), 90)
    server.pause()
    processes["died"].kill()
    time.sleep(whole(60, 7))  # longer than every limit, which is what is tested
    server.go_on()
    back = time.monotonic()
    wait(lambda: server.run_of("died")["state"] == "lost", 60)
    seconds = time.monotonic() - back
    figure("R11", "seconds until a run that died meanwhile is lost", seconds, at_most=LOST_SECONDS * 2 + LATE, unit="s")
    told = [name for name in names[:3] for event in server.run_of(name)["events"] if event["type"] == "run.lost"]
    figure("R11", "living runs told lost after the server was stopped", len(told), at_most=0)
    figure("R11", "living runs told stalled", sum(bool(absences(server, name)) for name in names[:3]), at_most=0)
    assert {server.run_of(name)["state"] for name in names[:3]} == {"running"}
