"""The pass in a process of its own: it finds what is found here, breaks off when it is told to, and leaves nothing behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from trainer_agent.scanning import far
from trainer_agent.scanning.far import scan_all
from trainer_agent.scanning.one_pass import Cancelled, CutShort, Region, scan
from trainer_agent.scanning.tensor_files import read_torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def always_far(monkeypatch) -> list:
    """Every pass is made by a process; gives those that were started."""
    started, begin = [], far._started

    def seen():
        started.append(begin())
        return started[-1]

    monkeypatch.setattr(far, "FAR_BYTES", 0)
    monkeypatch.setattr(far, "_started", seen)
    return started


@pytest.fixture
def jobs(tmp_path) -> dict:
    made = {}
    for name, bad in (("a.pt", 3), ("b.pt", 0), ("c.pt", 1)):
        tensor = torch.zeros(1000, dtype=torch.complex64 if bad == 1 else torch.bfloat16)
        tensor[:bad] = float("nan")
        torch.save({"t": tensor}, tmp_path / name)
        made[name] = (tmp_path / name, read_torch(tmp_path / name).regions)
    return made


def test_a_process_finds_what_is_found_here_and_is_gone_afterwards(always_far, jobs):
    assert scan_all(jobs) == {name: scan(path, regions) for name, (path, regions) in jobs.items()}
    assert [found.nonfinite for found in scan_all(jobs).values()] == [3, 0, 1]
    assert len(always_far) == 2
    assert all(process.returncode is not None for process in always_far)


def test_little_is_read_here_and_much_far_away(monkeypatch, jobs):
    monkeypatch.setattr(far, "_started", lambda: pytest.fail("a process for a few bytes"))
    scan_all(jobs)
    monkeypatch.setattr(far, "FAR_BYTES", sum(path.stat().st_size for path, _ in jobs.values()))
    with pytest.raises(pytest.fail.Exception):
        scan_all(jobs)


@pytest.mark.parametrize("command", [["/no/such/python"], [sys.executable, "-c", "print('?')"], [sys.executable, "-c", ""]])
def test_where_no_process_can_be_had_everything_is_found_here(monkeypatch, jobs, command):
    monkeypatch.setattr(far, "FAR_BYTES", 0)
    monkeypatch.setattr(far, "_started", lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert [found.nonfinite for found in scan_all(jobs).values()] == [3, 0, 1]


def test_what_ends_early_or_is_not_there_is_told_from_far_away_too(always_far, tmp_path, jobs):
    path, regions = jobs["a.pt"]
    with pytest.raises(CutShort, match=r"a\.pt"):
        scan_all({"a.pt": (path, [Region(0, 1 << 20, regions[0].floats)])})
    path.unlink()
    with pytest.raises(FileNotFoundError):
        scan_all(jobs)


def test_a_pass_that_is_given_up_ends_its_process(always_far, tmp_path):
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # without a single block on the disk
    began = time.monotonic()
    with pytest.raises(Cancelled):
        scan_all({"big": (path, ())}, lambda: time.monotonic() - began > 1.0)
    assert always_far[0].returncode is not None


def test_the_process_ends_when_its_starter_is_killed(tmp_path):
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    code = f"""
from pathlib import Path
from trainer_agent.scanning import far
begin = far._started
def seen():
    made = begin()
    print(made.pid, flush=True)
    return made
far._started = seen
far.scan_all({{"big": (Path({str(path)!r}), ())}})
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
    pid = int(starter.stdout.readline())
    assert psutil.pid_exists(pid)
    starter.kill()
    starter.wait(60)
    starter.stdout.close()
    deadline = time.monotonic() + 120
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_has_the_lowest_priority(always_far, tmp_path):
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    seen = []

    def look() -> bool:
        if always_far and always_far[0].poll() is None:
            seen.append(os.getpriority(os.PRIO_PROCESS, always_far[0].pid))
        return 19 in seen

    with pytest.raises(Cancelled):
        scan_all({"big": (path, ())}, look)
