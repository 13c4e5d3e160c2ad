"""A training that is killed in the middle of a rollback or a stop, and goes on in another process."""

import json
import os
import sys
from pathlib import Path

import forked
import pytest

from trainer_agent.checkpoints.inspection import stored_weights, weights_digest

HERE = Path(__file__).parent
ROLLBACK = (
    "journal.before_write",
    "rollback.intended",
    "rollback.planned",
    "rollback.half_loaded",
    "rollback.opened",
    "rollback.first_step_done",
    "rollback.answered",
)
STOP = ("journal.before_write", "stop.intended", "stop.saved", "stop.answered")
UNBEGUN = "journal.before_write"
"""Nothing was written down, so nothing was begun: the run goes on where it stood."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    paths = os.pathsep.join(map(str, (HERE.parents[1], HERE.parent / "agent")))
    command = [sys.executable, str(HERE / "commands_victim.py"), str(folder)]
    everything = kept | {"PYTHONPATH": paths, "XDG_CONFIG_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = forked.run(command, env=everything, seconds=600)
    assert done.returncode == 0, done.stderr[-4000:]
    (folder / "stderr").write_text(done.stderr)
    return folder


def told(folder: Path, life: int) -> list[dict]:
    path = folder / f"told-{life}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of(lines: list[dict], kind: str) -> list[dict]:
    return [line for line in lines if line.get("type") == kind]


def steps(lines: list[dict]) -> list[int]:
    return [line["step"] for line in lines if set(line) == {"step", "rows"}]


def said_begun(lines: list[dict]) -> bool:
    """Whether the server may know it as begun; of what was not written down, nobody would ever tell it the end."""
    return any(line["state"] == "running" for line in of(lines, "Report"))


@pytest.mark.parametrize("label", ROLLBACK)
def test_a_rollback_that_is_killed_anywhere_ends_on_its_target_once(lives, label, figure):
    folder = lives / f"rollback {label}"
    assert (folder / "status-1").read_text() == "-9", "the label was not reached"
    assert (folder / "status-2").read_text() == "0", (lives / "stderr").read_text()[-4000:]
    first, second = told(folder, 1), told(folder, 2)
    back = [line for line in of(first + second, "SegmentStarted") if line["cause"] == "rollback"]
    has_begun = label != UNBEGUN
    figure("F43", f"segments of a rollback killed at {label}", len({line["segment"] for line in back}), at_most=1)
    opened = of(second, "SegmentStarted")[0]
    if not has_begun:
        assert (opened["cause"], opened["from_step"], of(second, "Report")) == ("restart", 6, [])
        assert not said_begun(first)
        return
    assert (opened["cause"], opened["segment"], opened["parent"], opened["command_id"]) == ("rollback", 2, 1, "c1")
    assert (opened["from_step"], opened["checkpoint_id"]) == (4, "checkpoint-4")
    assert (opened["attributes"]["data"], opened["attributes"]["learning_rate_factor"]) == ("skip", 0.5)
    assert steps(second) == [5, 6, 7, 8, 9]
    (done,) = of(second, "Report")
    assert (done["command_id"], done["state"], done["checkpoint_id"]) == ("c1", "succeeded", "checkpoint-4")
    assert done["weights_sha256"] == weights_digest(stored_weights(folder / "checkpoint-4"))
    assert not of(first, "Report") or of(first, "Report")[-1]["state"] in ("running", "succeeded")


def test_the_batches_of_the_window_are_passed_over_once_wherever_it_was_killed(lives):
    seen = set()
    for label in ROLLBACK:
        second = told(lives / f"rollback {label}", 2)
        if of(second, "SegmentStarted")[0]["cause"] == "rollback":
            seen.add(json.dumps([line["rows"] for line in second if set(line) == {"step", "rows"}]))
    assert len(seen) == 1


@pytest.mark.parametrize("label", STOP)
def test_a_stop_that_is_killed_anywhere_stops_before_the_next_step(lives, label):
    folder = lives / f"stop {label}"
    assert (folder / "status-1").read_text() == "-9", "the label was not reached"
    assert (folder / "status-2").read_text() == "0", (lives / "stderr").read_text()[-4000:]
    second = told(folder, 2)
    if label == UNBEGUN:
        assert (steps(second), of(second, "Report")) == ([7, 8, 9], [])
        assert not said_begun(told(folder, 1))
        return
    assert steps(second) == []
    assert [(line["command_id"], line["state"]) for line in of(second, "Report")] == [("c1", "running"), ("c1", "succeeded")]
    assert of(second, "RunEnded")[0]["reason"] == "stopped_by_command"
    kept = 6 if label == "stop.intended" else 7
    assert second[-1] == {"through": kept}, "the trainer has the state of the checkpoint it would have gone on from"
