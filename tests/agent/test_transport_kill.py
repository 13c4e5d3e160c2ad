"""Real processes, killed with SIGKILL or left in other ways, and what the next start delivers."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from figures import patience
from transport_server import Kept, ScriptedServer

from trainer_agent.wire.messages import RunEnded
from trainer_agent.wire.vocabulary import EndReason

VICTIM = Path(__file__).with_name("transport_victim.py")
ROOT = Path(__file__).parents[2]
LOSS_SECONDS = patience(0.1)


def start(folder: Path, url: str, count: int, pause: float, leave: str = "end") -> subprocess.Popen:
    arguments = [sys.executable, "-W", "error", str(VICTIM), str(folder), url, str(count), str(pause), leave]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for line in (folder / "logged.txt").read_text().splitlines():
        parts = line.split()
        if len(parts) == 3:
            found.setdefault(parts[0], []).append((int(parts[1]), float(parts[2])))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_after_kill_9_the_next_start_delivers_all_but_the_last_moment_once(tmp_path, seed):
    chance = random.Random(seed)
    down = seed % 2  # every second time the server was away while the victim ran
    with ScriptedServer(lambda asked: (503, {}, b"") if down and not (tmp_path / "up").exists() else None) as server:
        killed = []
        for _ in range(3):
            victim = start(tmp_path, server.url, 100_000, 0.001)
            wait_for(tmp_path, len(killed) + 1, victim)
            time.sleep(chance.uniform(0.05, 0.4))
            victim.send_signal(signal.SIGKILL)
            killed.append(time.time())
            victim.communicate()
        (tmp_path / "up").touch()
        last = start(tmp_path, server.url, 50, 0.001)
        _, errors = last.communicate(timeout=60)
        assert last.returncode == 0, errors
        for (incarnation, steps), death in zip(logged(tmp_path).items(), [*killed, time.time() + 10], strict=True):
            kept = server.kept.get(incarnation) or Kept(None)  # killed before its spool had a head: within its first 100 ms
            assert kept.doubled == 0
            assert kept.numbers() == set(range(1, kept.next_seq))
            stored = {step for step, _ in kept.series("train/loss")}
            assert {step for step, at in steps if at < death - LOSS_SECONDS} <= stored
            assert stored <= {step for step, _ in steps} | {len(steps) + 1}
        assert list((tmp_path / ".lossguard" / "spool").glob("*/*.seg")) == []


def wait_for(folder: Path, incarnations: int, process: subprocess.Popen, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not (folder / "logged.txt").exists() or len(logged(folder)) < incarnations:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("leave", "code", "ends"),
    [("end", 0, EndReason.FINISHED), ("raise", 1, EndReason.FAILED), ("exit", 3, None), ("forget", 0, None)],
)
def test_however_a_process_leaves_nothing_is_lost_and_its_exit_code_is_its_own(tmp_path, leave, code, ends):
    with ScriptedServer() as server:
        victim = start(tmp_path, server.url, 300, 0.0, leave)
        out, errors = victim.communicate(timeout=30)
        assert (victim.returncode, out) == (code, "")
        kept = server.only()
        assert [step for step, _ in kept.series("train/loss")] == list(range(1, 301))
        assert [end.reason for end in kept.of(RunEnded)] == ([ends] if ends else [])
        assert ("ValueError" in errors) == (leave == "raise")
        if leave == "raise":
            assert kept.of(RunEnded)[0].detail == "ValueError"


def test_a_process_whose_standard_error_is_closed_trains_on(tmp_path):
    command = f"{sys.executable} {VICTIM} {tmp_path} '' 50 0.001 end 2>&-"
    assert subprocess.run(command, shell=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0


def test_two_processes_in_one_folder_get_two_incarnations_and_neither_touches_the_other(tmp_path):
    with ScriptedServer() as server:
        both = [start(tmp_path, server.url, 200, 0.001) for _ in range(2)]
        for process in both:
            assert process.wait(30) == 0, process.communicate()[1]
            process.communicate()
        assert len(server.kept) == 2
        for kept in server.kept.values():
            assert [step for step, _ in kept.series("train/loss")] == list(range(1, 201))
            assert kept.doubled == 0
