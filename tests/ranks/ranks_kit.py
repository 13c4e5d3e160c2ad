"""A server, trainings under torchrun, and a gate before the server that can hang. Used by the tests of ranks."""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import forked
import httpx2

ROOT = Path(__file__).resolve().parents[2]


def poll(what: str, look: Callable[[], object], seconds: float = 240.0) -> object:
    """The first true thing that `look` gives; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.1)
    return found


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "LOGLEVEL": "ERROR"} | more


@dataclass
class Site:
    """A server that answers, and the people's API as an operator."""

    url: str
    agent_token: str
    api: httpx2.Client

    def run(self, run_id: str) -> dict:
        return self.api.get(f"/api/runs/{run_id}").raise_for_status().json()

    def known(self, run_id: str) -> bool:
        return self.api.get(f"/api/runs/{run_id}").status_code == 200

    def points(self, run_id: str, series: str, **query: object) -> list[dict]:
        return self.api.get(f"/api/runs/{run_id}/points", params={"series": series, **query}).raise_for_status().json()["points"]

    def command(self, run_id: str, kind: str, **more: object) -> str:
        body = {"kind": kind, "seen_segment": self.run(run_id)["segment"], **more}
        headers = {"Idempotency-Key": uuid.uuid4().hex, "X-LossGuard": "1"}
        answer = self.api.post(f"/api/runs/{run_id}/commands", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return answer.json()["command_id"]

    def outcome(self, run_id: str, command_id: str) -> dict:
        """The command once it has ended."""
        ends = {"succeeded", "failed", "rejected", "unconfirmed", "expired", "cancelled", "superseded"}

        def look() -> dict | None:
            found = [each for each in self.run(run_id)["commands"] if each["command_id"] == command_id]
            return found[0] if found and found[0]["state"] in ends else None

        return poll(f"the end of {command_id}", look)

    def ended(self, run_id: str) -> dict:
        return poll("the end of the run", lambda: (run := self.run(run_id))["state"] in {"finished", "stopped", "failed"} and run)


@dataclass
class Torchrun:
    """Our torchrun with its ranks."""

    folder: Path
    ranks: int
    process: subprocess.Popen[bytes] | forked.Process
    log: Path

    def book(self, training: str, name: str, rank: int) -> list[dict]:
        path = self.folder / training / f"{name}-{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []

    def books(self, training: str, name: str = "steps") -> list[list[dict]]:
        return [self.book(training, name, rank) for rank in range(self.ranks)]

    def steps(self, training: str) -> list[list[int]]:
        """The steps each rank has made, in order."""
        return [[entry["step"] for entry in book] for book in self.books(training)]

    def reach(self, training: str, step: int, times: int = 1) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            return self.steps(training)[0].count(step) >= times

        poll(f"step {step} of {training}", reached)

    def wait(self, seconds: float = 120.0) -> int:
        return self.process.wait(timeout=seconds)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def start(site: Site, folder: Path, ranks: int, *trainings: dict, fork: bool = True) -> Torchrun:
    """With `fork` torchrun's launcher forks its ranks; else it is torchrun as people start it, which takes far longer."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "torchrun.log"
    training = [str(Path(__file__).with_name("rank_training.py")), str(folder), json.dumps(trainings)]
    variables = environment(LOSSGUARD_URL=site.url, LOSSGUARD_TOKEN=site.agent_token, LOSSGUARD_PROJECT="ranks")
    if fork:
        process = forked.popen([sys.executable, *training], env=variables, out=log, ranks=ranks, new_session=True)
        return Torchrun(folder, ranks, process, log)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(free_port())]
    command = [sys.executable, *torchrun, *training]
    with log.open("wb") as out:
        begun = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    return Torchrun(folder, ranks, begun, log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gate:
    """A way to the server that passes bytes on, or holds them while `path` says "hung"."""

    def __init__(self, target: str, path: Path) -> None:
        self._target, self._path = urlsplit(target), path
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self.held = self.passed = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._open, daemon=True)]
        self._threads[0].start()

    @property
    def is_hung(self) -> bool:
        try:
            return self._path.read_text() == "hung"
        except OSError:
            return False

    def _open(self) -> None:
        while not self._is_over.is_set():
            with suppress(OSError):
                near, _ = self._door.accept()
                thread = threading.Thread(target=self._pass, args=(near,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, near: socket.socket) -> None:
        far = socket.create_connection((self._target.hostname or "", self._target.port or 0))
        with near, far, selectors.DefaultSelector() as both, suppress(OSError):
            both.register(near, selectors.EVENT_READ, far)
            both.register(far, selectors.EVENT_READ, near)
            while not self._is_over.is_set():
                for key, _ in both.select(0.2):
                    piece = key.fileobj.recv(1 << 16)
                    if not piece:
                        return
                    self._hold()
                    key.data.sendall(piece)

    def _hold(self) -> None:
        if self.is_hung:
            self.held += 1
        else:
            self.passed += 1
        while self.is_hung and not self._is_over.is_set():
            self._is_over.wait(0.02)

    def close(self) -> None:
        self._is_over.set()
        with suppress(OSError):  # wakes accept
            socket.create_connection(("127.0.0.1", self._door.getsockname()[1])).close()
        for thread in self._threads:
            thread.join(5)
        self._door.close()
