"""`python3 dev.py demo` from outside: its one line, its exit status, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 600
"""Not a bar (the demo says how long it took): the point at which it hangs."""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--headless", "--json", "--directory", str(folder), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    environment = kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder / "demo.err").open("w") as errors:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=_interruptible,  # noqa: PLW1509  it takes no lock
        )


def _interruptible() -> None:
    """A shell's background job, which these tests may run in, hands on that Ctrl-C is ignored; a visitor's terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that work in the folder."""
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(folder) in line and process.pid != os.getpid():
            lines.append(line)
    return lines


def test_ctrl_c_in_the_middle_ends_everything_that_was_started(tmp_path):
    demo = start(tmp_path)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "logs" / "twin.log").exists():
            assert demo.poll() is None, (tmp_path / "demo.err").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        link = (tmp_path / "demo.err").read_text().splitlines()[0]
        assert "/signin#" in link
        demo.send_signal(signal.SIGINT)
        out, _ = demo.communicate(timeout=60)
        assert (demo.returncode, out) == (130, "")
    finally:
        demo.kill()
    assert left_behind(tmp_path) == []
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(link.split("/signin")[0] + "/api/health", timeout=2)


def test_the_guarded_run_is_saved_and_its_twin_dies(tmp_path):
    demo = start(tmp_path)
    try:
        out, _ = demo.communicate(timeout=LIMIT_SECONDS)
    finally:
        demo.kill()
    story = (tmp_path / "demo.err").read_text()
    assert demo.returncode == 0, story
    (line,) = out.splitlines()
    result = json.loads(line, parse_constant=lambda word: pytest.fail(f"bare {word} in the line"))
    assert result["culprit_first_step"] <= result["first_alert"]["step"] < result["dead_step_without_guard"]
    assert result["rolled_back_to"] < result["culprit_first_step"] <= result["rolled_back_from"]
    assert result["receiver_ids_equal_log"] is True
    assert result["culprit_rank"] is None
    assert "signature verified" in story
    print(f"the demo took {result['wall_seconds']} s")
    assert left_behind(tmp_path) == []
