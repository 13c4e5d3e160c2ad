"""Monitor against the real server on SQLite, killed and started again under it."""

import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

import forked
import pytest

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.recording.entries import Points
from trainer_agent.recording.spool import Spool
from trainer_agent.sending.sender import HEARTBEAT_SECONDS
from trainer_agent.wire.messages import Numbered, Report, RunEnded, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason, SegmentCause

NAN = float("nan")
ROOT = Path(__file__).parents[2]


class RealServer:
    """`python -m server serve` in a folder of its own; comes back on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "LOSSGUARD_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT)}
        self.ready = folder / "ready.json"
        self.port = 0
        self.start()
        self.operator = self.run("token", "create", "--role", "operator", "--name", "test")

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "server", *arguments]
        return forked.output(command, env=self.environment)

    def start(self) -> None:
        self.ready.unlink(missing_ok=True)
        arguments = ["serve", "--port", str(self.port), "--ready-file", str(self.ready)]
        command = [sys.executable, "-m", "server", *arguments]
        self.process = forked.popen(command, env=self.environment, out=self.folder / "server.log")
        deadline = time.monotonic() + 60
        while not self.ready.exists():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        told = json.loads(self.ready.read_text())
        self.url, self.token = told["url"], Path(told["agent_token_file"]).read_text().strip()
        self.port = int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str, body: object = None) -> dict:
        headers = {"Authorization": f"Bearer {self.operator}", "Idempotency-Key": "test-key-1"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "X-LossGuard": "1"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=20) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("server"))
    yield server
    server.process.terminate()
    server.process.wait(20)


@pytest.fixture
def monitor(server, tmp_path):
    start = RunStart(new_incarnation(), new_incarnation(), "p", "n", capabilities=(CommandKind.STOP,))
    monitor = Monitor(start, Config(server.url, server.token), tmp_path / "out" / ".lossguard", Voice(lambda _: None))
    monitor.begin()
    monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
    yield monitor
    monitor.end(EndReason.FAILED, None, timeout_seconds=0.5)


def test_every_point_arrives_once_though_the_server_is_killed_between(server, monitor):
    for step in range(1, 401):
        monitor.log({"train/loss": float("nan") if step == 77 else 1.0 / step, "train/grad_norm": 0.5}, step)
        if step == 150:
            assert monitor.flush(60)
            server.kill()
        if step == 250:
            server.start()
        time.sleep(0.001)
    assert monitor.flush(60)
    monitor.end(EndReason.FINISHED, 400, timeout_seconds=20)
    found = server.ask(f"/api/runs/{monitor.start.run_id}/points?series=train/loss")["points"]
    assert [(point["step"], point["value"]) for point in found] == [
        (step, "NaN" if step == 77 else 1.0 / step) for step in range(1, 401)
    ]
    run = server.ask(f"/api/runs/{monitor.start.run_id}")
    assert (run["state"], run["dropped_records"]) == ("finished", 0)


def test_a_click_reaches_the_training_and_its_reports_come_back(server, monitor):
    monitor.log({"train/loss": 1.0}, 1)
    assert monitor.flush(60)
    began = time.monotonic()
    made = server.ask(f"/api/runs/{monitor.start.run_id}/commands", {"kind": "stop", "seen_segment": 1})
    command = monitor.wait_for_command(30)
    assert time.monotonic() - began < HEARTBEAT_SECONDS, "it came with a heartbeat"
    assert command.command_id == made["command_id"]
    for state in (CommandState.RUNNING, CommandState.SUCCEEDED):
        monitor.record(Report(command.command_id, state, time.time(), 1))
    assert monitor.flush(60)
    (told,) = server.ask(f"/api/runs/{monitor.start.run_id}")["commands"]
    assert [entry["state"] for entry in told["history"]] == ["queued", "delivered", "running", "succeeded"]


def test_a_dead_life_whose_records_come_late_neither_stops_nor_ends_the_one_that_goes_on(server, tmp_path):
    """The records of a killed process, a NaN among them and its end, arrive after the next process has been announced."""
    run, folder = new_incarnation(), tmp_path / "out" / ".lossguard"
    dead = RunStart(run, new_incarnation(), "p", "n", capabilities=(CommandKind.STOP,))
    spool = Spool.create(folder / "spool" / dead.incarnation, dead)
    spool.write([Numbered(1, SegmentStarted(1, 0, SegmentCause.START, time.time()))])
    spool.write([Points(step + 1, time.time(), 1, step, ("train/loss",), (NAN if step > 9 else 1.0,)) for step in range(1, 13)])
    spool.write([Numbered(14, RunEnded(EndReason.FAILED, time.time(), 12, "RuntimeError"))])
    spool.abandon()
    start = RunStart(run, new_incarnation(), "p", "n", capabilities=(CommandKind.STOP,))
    monitor = Monitor(start, Config(server.url, server.token), folder, Voice(lambda _: None))
    monitor.begin()
    monitor.record(SegmentStarted(2, 5, SegmentCause.RESTART, time.time(), 1))
    for step in range(6, 31):
        monitor.log({"train/loss": 1.0}, step)
    assert monitor.flush(60)
    assert monitor.wait_for_command(1.0) is None
    found = server.ask(f"/api/runs/{run}")
    assert (found["state"], found["segment"], found["step"]) == ("running", 2, 30)
    assert [command for command in found["commands"] if command["state"] not in ("rejected", "superseded", "expired")] == []
    assert [alert["state"] for alert in found["alerts"]] == ["resolved"]
    points = server.ask(f"/api/runs/{run}/points?series=train/loss")["points"]
    assert {point["step"] for point in points if point["segment"] == 1} == set(range(1, 13))
    monitor.end(EndReason.FINISHED, 30)
