"""A real server with a short patience, servers that hang or refuse, and trainings that leave in every way."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
from figures import patience

from trainer_agent import cli

ROOT = Path(__file__).parents[2]
VICTIM = Path(__file__).with_name("ends_victim.py")
LIMIT_SECONDS = patience(5.0)
"""What an end may add to a training's own, whatever the server does."""

SERVE = """
import sys
from datetime import timedelta
import server.domain.runs as runs
runs.LOST_AFTER = timedelta(seconds=float(sys.argv.pop(1)))
from server.__main__ import cli
cli()
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    return kept | alone | more


def until(what: str, look: Callable[[], object], seconds: float = 120.0) -> object:
    """The first true thing that `look` gives."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)
    return found


class RealServer:
    """The server in a process of its own, that calls a run lost after `lost_after` seconds."""

    def __init__(self, folder: Path, lost_after: float, port: int = 0) -> None:
        self.folder, self.lost_after, self.port = folder, lost_after, port
        self.variables = environment(LOSSGUARD_DATA_DIR=str(folder / "data"))
        self.operator = ""
        self.start()
        command = [sys.executable, "-m", "server", "token", "create", "--role", "operator", "--name", "test"]
        self.operator = forked.output(command, env=self.variables)

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        log = self.folder / "server.log"
        arguments = ["-c", SERVE, self.lost_after, "serve", "--port", self.port, "--ready-file", ready]
        self.process = forked.popen([sys.executable, *arguments], env=self.variables, out=log, what="server")
        until("the server", lambda: ready.exists() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, log.read_text()
        told = json.loads(ready.read_text())
        self.url, self.token = told["url"], Path(told["agent_token_file"]).read_text().strip()
        self.port = int(self.url.rsplit(":", 1)[1])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str, body: object = None) -> dict:
        headers = {"Authorization": f"Bearer {self.operator}", "Idempotency-Key": f"key-{time.time_ns()}"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "X-LossGuard": "1"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=20) as answer:
            return json.loads(answer.read())

    def run(self, run_id: str) -> dict:
        return self.ask(f"/api/runs/{run_id}")

    def events(self, run_id: str) -> list[dict]:
        """Oldest first."""
        return self.run(run_id)["events"][::-1]

    def sync(self, folder: Path, monkeypatch) -> int:
        """What `lossguard sync` does with a folder; its exit code."""
        monkeypatch.setenv("LOSSGUARD_URL", self.url)
        monkeypatch.setenv("LOSSGUARD_TOKEN", self.token)
        return cli.main(["sync", str(folder), "--timeout", "20"])


@contextlib.contextmanager
def hung_server() -> Iterator[str]:
    """Takes connections and requests, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def refusing_url() -> str:
    """Nobody listens there."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


def run_jobs(folder: Path, jobs: list[dict], at_once: int = 8, seconds: float = 600.0) -> dict[str, dict]:
    """Has one interpreter make every job in a fork of its own; by name what it left: status, seconds, out, err."""
    order = folder / "jobs.json"
    order.write_text(json.dumps({"jobs": jobs, "at_once": at_once, "results": str(folder / "results.json")}))
    process = subprocess.run(
        [sys.executable, "-W", "error", str(VICTIM), str(order)],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads((folder / "results.json").read_text())
