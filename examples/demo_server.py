"""What the demo starts, and how it talks to it: the server, the training processes, and the people's API."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot go on; the message says why and where to look."""


@dataclass
class Children:
    """Processes of ours. They run in sessions of their own, so that Ctrl-C reaches us alone and we end them in order."""

    logs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[object], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start it, with what it prints in a file of its name."""
        with (self.logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603
                [str(part) for part in command],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running[name] = process
        return process

    def log(self, name: str) -> str:
        """All that it has printed."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        """End what still runs, the last started first, so that the server outlives those that talk to it."""
        for process in reversed(self.running.values()):
            if process.poll() is None:
                _signal_group(process, signal.SIGTERM)
                try:
                    process.wait(timeout=8)
                except subprocess.TimeoutExpired:
                    _signal_group(process, signal.SIGKILL)
                    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


@contextmanager
def children(logs: Path) -> Iterator[Children]:
    """Children that are ended when the block is left, however it is left."""
    logs.mkdir(parents=True, exist_ok=True)
    started = Children(logs)
    try:
        yield started
    finally:
        started.end()


class Api:
    """The people's routes, as an operator."""

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=20, trust_env=False)

    def get(self, path: str, **query: str | int) -> Any:
        """Parsed JSON."""
        return self._checked(self._client.get(path, params=query))

    def send(self, method: str, path: str, body: Mapping[str, Any], **headers: str) -> Any:
        """Parsed JSON of the answer to a body."""
        return self._checked(self._client.request(method, path, json=body, headers=headers))

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    @staticmethod
    def _checked(answer: httpx2.Response) -> Any:
        if answer.is_error:
            raise DemoError(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None


def wait_for(what: str, look: Callable[[], T | None], seconds: float, every: float = 0.1) -> T:
    """The first thing that `look` gives that is not None.

    Raises:
        DemoError: nothing within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise DemoError(f"{what}: not within {seconds:g} s")
        time.sleep(every)
    return found


def free_port(wanted: int = 0) -> int:
    """`wanted` when it is free (it makes the address easy to remember), else any free loopback port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("no free port on loopback")


def python(*arguments: object) -> list[str]:
    """A command line of the Python that runs the demo."""
    return [sys.executable, *(str(argument) for argument in arguments)]
