import json
import os
import sys
from pathlib import Path

import forked

ROOT = Path(__file__).resolve().parents[2]


def test_two_ranks_of_a_hand_written_loop_go_back_and_stop_at_one_step(tmp_path):
    """Each rank has its own dropout and its own part of the data, and both come back exactly."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    variables = kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path / "no-config")}
    command = [sys.executable, Path(__file__).with_name("loops_rank.py"), tmp_path / "out"]
    done = forked.run(command, env=variables, ranks=2)
    assert done.returncode == 0, done.stderr
    assert "an error of LossGuard" not in done.stderr, done.stderr
    told = {each["rank"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert set(told) == {0, 1}, done.stderr
    for each in told.values():
        steps = [step for step, _ in each["taken"]]
        assert steps == [*range(1, 12), *range(9, 14)], done.stderr
        assert each["taken"][11:14] == each["taken"][8:11]
        assert each["stopped"]
    assert told[0]["taken"] != told[1]["taken"]
    assert [(name, state) for name, state, _, _ in told[0]["reports"] if state != "delivered"] == [
        ("back", "running"),
        ("back", "succeeded"),
        ("stop", "running"),
        ("stop", "succeeded"),
    ]
    checkpoint = tmp_path / "out" / "checkpoint-13"
    assert {"rng_state_0.pth", "rng_state_1.pth", "lossguard.json"} <= {path.name for path in checkpoint.iterdir()}
