"""Batches that come doubled, cut anew, held back and again: the end state has one digest. Streams: `tests/services`."""

import hashlib
import sys
from pathlib import Path
from random import Random

import pytest
from faults_kit import whole

sys.path.insert(0, str(Path(__file__).parents[1] / "services"))

from test_storing_streams import deliver_badly, deliver_cleanly, lives_of, result_of


def digest(state: dict) -> str:
    return hashlib.sha256(repr(sorted(state.items())).encode()).hexdigest()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_f7_reordered_and_doubled_batches_end_in_the_same_state(database, figure):
    streams = whole(300, 20)
    differing = 0
    for seed in range(streams):
        lives = lives_of(Random(seed))
        clean = digest(result_of(database, deliver_cleanly, 0, lives))
        differing += clean != digest(result_of(database, deliver_badly, seed + 1, lives))
    figure("F7", f"digests that differ, of {streams} streams (seeds from 0)", differing, at_most=0)
