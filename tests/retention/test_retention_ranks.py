"""Several ranks: one whose disk fails it neither hangs nor parts the others, and no checkpoint is there by halves."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import forked
from retention_kit import checkpoints, names, small_disk

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
"""Far above what it takes, and below the time limits of the collectives that a hang would run into."""


def run_to_its_end(command: list[str], environment: dict[str, str], log: Path) -> None:
    """Ends all of its processes where they hang."""
    process = forked.popen(command, env=environment, out=log, new_session=True)
    try:
        assert process.wait(SECONDS) == 0, log.read_text()[-4000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_save_that_fails_on_one_rank_has_failed_on_all_and_all_go_on(tmp_path, figure):
    with small_disk(tmp_path / "disk", 3_000_000) as small:
        disk = small.folder
        if small.is_mounted:
            small.fill(20_000, 0)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
        more = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(tmp_path), "LOGLEVEL": "ERROR"}
        command = [sys.executable, str(Path(__file__).with_name("retention_rank.py")), str(disk), str(tmp_path)]
        command += [] if small.is_mounted else ["limit"]
        run_to_its_end(command, kept | more, tmp_path / "log")
        assert names(disk) == {"checkpoint-6", "checkpoint-8", "checkpoint-10"}
        assert checkpoints(disk) == [6, 8, 10]
        for step in (6, 8, 10):
            assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in (disk / f"checkpoint-{step}").iterdir()}
        full = [json.loads((tmp_path / f"full-{rank}.json").read_text()) for rank in (0, 1)]
        assert [each["step"] for each in full] == [10, 10]
        assert [len(each["told"]) for each in full] == [1, 0]
        assert full[0]["told"][0][0] == 2
        assert full[0]["told"][0][1].startswith(("rank 0: no space left on device", "rank 0: file too large"))
        assert {each["best"] for each in full} == {str(disk / "checkpoint-10")}
    assert names(tmp_path / "out") == {f"checkpoint-{step}" for step in (2, 6, 8, 10)}
    one = [json.loads((tmp_path / f"rank 1-{rank}.json").read_text()) for rank in (0, 1)]
    assert [each["step"] for each in one] == [10, 10]
    assert [each["told"] for each in one] == [[[4, "rank 1: no space left on device"]], []]
    assert [each["limit"] for each in full + one] == [5, 5, 5, 5]
    figure(
        "F51", "steps lost by two ranks to a save that failed on one", sum(10 - each["step"] for each in full + one), at_most=0
    )
