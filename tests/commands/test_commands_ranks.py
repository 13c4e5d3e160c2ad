"""All ranks do the same at every boundary, in pauses too, and every command is answered once."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import forked

HERE = Path(__file__).parent
BOUNDARIES = 60


def test_ranks_pause_set_save_stop_and_go_back_together(tmp_path, figure):
    paths = os.pathsep.join(map(str, (HERE.parents[1], HERE.parent / "agent")))
    command = [sys.executable, str(HERE / "commands_ranks.py"), str(tmp_path), str(BOUNDARIES)]
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = forked.run(command, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [each["problem"] for each in told] == ["", "", ""]
    first = told[0]["book"]
    differing = sum(each["book"] != first for each in told)
    figure("F47", "ranks that decided otherwise at some boundary, all commands", differing, at_most=0)
    acts = Counter(line[1] for line in first)
    assert set(acts) == {"go_on", "stop", "roll_back", "save"}
    assert any(line[4] for line in first), "no save in a pause"
    assert all("paused" in each["phases"] for each in told)
    ends = Counter(name for name, state in told[0]["said"] if state in ("succeeded", "failed", "rejected"))
    assert set(ends.values()) == {1}
    assert {name for name, state in told[0]["said"] if state == "succeeded"}
