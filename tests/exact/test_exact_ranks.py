"""A rollback of two gloo ranks brings everything back on both, in the Trainer and by hand."""

import json
import os
import sys
from pathlib import Path

import forked

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_on_two_ranks_a_rollback_equals_a_straight_run_to_the_last_bit(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    paths = os.pathsep.join(str(path) for path in (ROOT, HERE, HERE.parent / "agent", HERE.parent / "loops"))
    environment = kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "XDG_CONFIG_HOME": str(tmp_path), "LOGLEVEL": "ERROR"}
    command = [sys.executable, HERE / "exact_rank.py", tmp_path]
    done = forked.run(command, env=environment, ranks=2)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(each["rank"] for each in told) == [0, 1]
    assert [(each["trainer"], each["by hand"]) for each in told] == [([], []), ([], [])]
    (leading,) = (each["reports"] for each in told if each["rank"] == 0)
    assert leading == ["running", "succeeded", "delivered", "running", "succeeded"] or leading.count("succeeded") == 2
