"""What the kill tests start: the two forking processes, servers that come back, victims, and the words between them."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import kill_database
from kill_history import Life, Stored, read_lives

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = Path(__file__).with_name("kill_victims.py")
PATIENCE = 300.0
"""Seconds after which something that should have come has not; far above what a busy machine needs."""


class Forks:
    """A process that forks victims on demand. For several threads at once."""

    def __init__(self, *arguments: str, script: Path = VICTIMS) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(script), *arguments],
            env=kept | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._changed:
                if "id" in told:
                    self._pids[told["id"]] = told["pid"]
                else:
                    self._ended[told["pid"]] = told["status"]
                self._changed.notify_all()

    def start(self, act: str, **order: object) -> int:
        """The process id of a new victim."""
        with self._changed:
            number = next(self._ids)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "act": act, **order}).encode() + b"\n")
            self._process.stdin.flush()
            assert self._changed.wait_for(lambda: number in self._pids, PATIENCE), "no process was forked"
            return self._pids[number]

    def ended(self, pid: int) -> int | None:
        """The exit status once it has ended."""
        return self._ended.get(pid)

    def wait(self, pid: int, seconds: float = PATIENCE) -> int:
        """Its exit status; negative for a signal."""
        with self._changed:
            assert self._changed.wait_for(lambda: pid in self._ended, seconds), f"process {pid} did not end"
            return self._ended[pid]

    def kill(self, pid: int) -> int:
        """SIGKILL, unless it has ended; its status."""
        if self.ended(pid) is None:
            os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Server:
    """A real server with a database of its own, which comes back on the same port."""

    def __init__(self, forks: Forks, folder: Path, database: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.reached = folder, folder / "reached.txt"
        self.database = database or f"sqlite:///{folder}/data/lossguard.db"
        self._forks, self._port, self._is_given = forks, 0, bool(database)
        self.restart_seconds: list[float] = []
        self.pid = 0

    def arm(self, at: str) -> None:
        """From now on it dies at this label."""
        (self.folder / "at.txt").write_text(at)
        os.kill(self.pid, signal.SIGUSR1)

    def start(self, fault: str = "") -> None:
        """Until it answers."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        began = time.monotonic()
        self.pid = self._forks.start(
            "serve",
            at=str(self.folder / "at.txt"),
            fault=fault,
            data=str(self.folder / "data"),
            database=self.database if self._is_given else "",
            port=self._port,
            ready=str(ready),
            reached=str(self.reached),
            log=str(self.folder / "server.log"),
        )
        wait_until("the server", lambda: ready.exists() or self._forks.ended(self.pid) is not None)
        assert ready.exists(), (self.folder / "server.log").read_text()
        told = json.loads(ready.read_text())
        self.restart_seconds.append(time.monotonic() - began)
        self.url, self.token = told["url"], Path(told["agent_token_file"]).read_text().strip()
        self._port = int(self.url.rsplit(":", 1)[1])

    @property
    def is_dead(self) -> bool:
        return not self.pid or self._forks.ended(self.pid) is not None

    def kill(self) -> None:
        if not self.is_dead:
            self._forks.kill(self.pid)

    def stored(self) -> dict[str, Stored]:
        """What the database holds, after the server is killed."""
        self.kill()
        return kill_database.read(self.database)


def wait_until(what: str, look: object, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not look():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.005)


def lives_of(folder: Path) -> list[Life]:
    """The lives in a victim's folder, as far as they have come."""
    path = folder / "witness.txt"
    return read_lives(path.read_text()) if path.exists() else []


def steps_of(folder: Path) -> int:
    return sum(step is not None for life in lives_of(folder) for _, step, *_ in life.calls)


def reached(path: Path) -> list[tuple[str, int, int, int]]:
    """Label, count, nanoseconds and process, in the order in which they were reached."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [(label, int(count), int(at), int(pid)) for label, count, at, pid in (line.split(" ") for line in lines)]


def closed_port() -> str:
    """An address where nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
