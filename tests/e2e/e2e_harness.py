"""What the browser tests start and watch: a server, trainings, and what a page must not do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import forked
import httpx2
from playwright.sync_api import BrowserContext, ConsoleMessage

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


def poll(what: str, look: Callable[[], object], seconds: float = 90.0) -> object:
    """The first true thing that `look` gives; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)
    return found


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)} | more


def end(process: forked.Process) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Site:
    """A server that answers, and the people's API as an operator."""

    url: str
    agent_token: str
    variables: dict[str, str]
    api: httpx2.Client

    def get(self, path: str, **query: object) -> dict:
        return self.api.get(path, params=query).raise_for_status().json()

    def run(self, run_id: str) -> dict:
        return self.get(f"/api/runs/{run_id}")

    def points(self, run_id: str, series: str) -> list[dict]:
        return self.get(f"/api/runs/{run_id}/points", series=series)["points"]

    def command_line(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "server", *arguments]
        return forked.output(command, env=self.variables)


@dataclass
class Training:
    """A training process of ours."""

    run_id: str
    folder: Path
    process: forked.Process
    log: Path

    def book(self, name: str) -> list[dict]:
        """What the training itself wrote down."""
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def check_alive(self) -> None:
        assert self.process.poll() is None, self.log.read_text()

    def wait(self, seconds: float = 120.0) -> int:
        return self.process.wait(timeout=seconds)


@dataclass
class Watched:
    """What a page must not do: say an error, break the content security policy, or ask anybody but our server."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    refusals: set[int] = field(default_factory=set)
    """Statuses that a test provokes; the browser counts each answer of them as an error."""

    def follow(self, context: BrowserContext) -> None:
        context.on("console", self._console)
        context.on("weberror", lambda error: self.errors.append(f"page error: {error.error}"))
        context.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _console(self, message: ConsoleMessage) -> None:
        if any(f"status of {status} " in message.text for status in self.refusals):
            return
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.type}: {message.text} {message.location.get('url', '')}")
