"""Each rank records the samples that its own model saw: a Trainer's batches and hand-written loops, two ranks on gloo."""

import itertools
import json
import os
import sys
from pathlib import Path

import forked

from trainer_agent.ledger.files import readers

ROOT = Path(__file__).resolve().parents[2]


def wanted():
    for loop, workers, accumulation in itertools.product((False, True), (0, 2), (1, 3)):
        sampling = "random" if (workers, accumulation) != (2, 1) else "sequential"
        name = f"{'loop' if loop else 'trainer'}-{workers}-{accumulation}"
        yield {"name": name, "loop": loop, "workers": workers, "accumulation": accumulation, "sampling": sampling}


def test_two_ranks_record_what_each_of_them_saw(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOSSGUARD_")}
    variables = kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'agent'}",
        "XDG_CONFIG_HOME": str(tmp_path / "no-config"),
    }
    trainings = list(wanted())
    command = [sys.executable, str(Path(__file__).with_name("ledger_rank.py")), str(tmp_path), json.dumps(trainings)]
    done = forked.run(command, env=variables)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "an error of LossGuard" not in done.stderr, done.stderr[-4000:]
    for each in trainings:
        ranks = {reader.rank: reader for reader in readers(tmp_path / each["name"] / ".lossguard")}
        seen = {}
        for rank in (0, 1):
            seen[rank] = {
                int(step): rows for step, rows in json.loads((tmp_path / f"{each['name']}-{rank}.json").read_text()).items()
            }
            recorded = {found.row.step: list(found.row.samples) for found in ranks[rank].effective()}
            assert recorded == seen[rank], (each, rank)
            assert len(recorded) == 9
        assert seen[0] != seen[1]
