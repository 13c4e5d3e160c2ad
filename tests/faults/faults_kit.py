"""A real server in a process of its own, and what the tests of faults ask of it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import forked

from trainer_agent.config import Config
from trainer_agent.guest.voice import Voice
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.wire.messages import RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import SegmentCause

ROOT = Path(__file__).parents[2]
IS_WHOLE = bool(os.environ.get("LOSSGUARD_SOAK"))
"""Whether the long rows run at their full length: `make soak` sets it."""


def whole(full: int, short: int) -> int:
    """How often, or how long, in the long form and in the short one."""
    return full if IS_WHOLE else short


class RealServer:
    """`python -m server serve` on a free port. `before` is Python that runs first in the process: it may shorten a limit."""

    def __init__(self, folder: Path, before: str = "") -> None:
        self.folder, self.before = folder, before
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
        self.environment = kept | {"LOSSGUARD_DATA_DIR": str(folder / "data"), "PYTHONPATH": str(ROOT)}
        self.ready, self.port = folder / "ready.json", 0
        self.start()
        self.operator = self.run("token", "create", "--role", "operator", "--name", "test")

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "server", *arguments]
        return forked.output(command, env=self.environment)

    def start(self) -> None:
        self.ready.unlink(missing_ok=True)
        arguments = ["serve", "--port", str(self.port), "--ready-file", str(self.ready)]
        code = f"{self.before}\nfrom server.__main__ import cli\ncli({arguments!r})"
        command = [sys.executable, "-c", code]
        self.process = forked.popen(command, env=self.environment, out=self.folder / "server.log", what="server")
        wait(lambda: self.ready.exists() or self.process.poll() is not None, 90)
        assert self.process.poll() is None, self.log()
        told = json.loads(self.ready.read_text())
        self.url, self.token = told["url"], Path(told["agent_token_file"]).read_text().strip()
        self.port = int(self.url.rsplit(":", 1)[1])

    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu_seconds(self) -> float:
        """CPU time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, path: str) -> dict:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.operator}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def run_of(self, run_id: str) -> dict | None:
        """The run as the page has it; None where there is none."""
        try:
            return self.ask(f"/api/runs/{run_id}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def points(self, run_id: str, series: str = "train/loss") -> list[dict]:
        return self.ask(f"/api/runs/{run_id}/points?series={series}&limit=100000")["points"]


def wait(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)


def new_monitor(url: str, token: str, folder: Path, run_id: str | None = None, said: list | None = None) -> Monitor:
    """A monitor that has not begun."""
    start = RunStart(run_id or new_incarnation(), new_incarnation(), "p", "n")
    return Monitor(start, Config(url, token), folder / ".lossguard", Voice((said if said is not None else []).append))


def began(monitor: Monitor) -> Monitor:
    """The monitor, begun, in its first segment."""
    monitor.begin()
    monitor.record(SegmentStarted(1, 0, SegmentCause.START, time.time()))
    return monitor


def value_at(step: int) -> float:
    """What is logged at a step, a NaN now and then."""
    return float("nan") if step % 50 == 7 else 1.0 / step


def differences(found: list[dict], last: int) -> dict[str, int]:
    """What is wrong with the stored points of steps 1 .. `last`: how many are missing, doubled or different."""
    stored: dict[int, list] = {}
    for point in found:
        stored.setdefault(point["step"], []).append(point["value"])
    expected = {step: "NaN" if step % 50 == 7 else 1.0 / step for step in range(1, last + 1)}
    return {
        "lost": len(expected.keys() - stored.keys()),
        "doubled": sum(len(values) - 1 for values in stored.values()),
        "different": sum(stored[step][0] != value for step, value in expected.items() if step in stored),
        "invented": len(stored.keys() - expected.keys()),
    }
