"""F23: the server of rank 0 hangs, and no rank waits for it. Four ranks that wait for each other at every step."""

import math
import os
import statistics
import uuid
from collections.abc import Iterator

import pytest
from ranks_kit import Gate, Site, Torchrun, poll

LONG = bool(os.environ.get("LOSSGUARD_SOAK"))
BLOCK_STEPS = 40 if LONG else 6
MOST_PAIRS = 400
LEAST_PAIRS = 20 if LONG else 10
LIMIT = 1.02


@pytest.fixture
def gate(ranks_site: Site, tmp_path) -> Iterator[Gate]:
    gate = Gate(ranks_site.url, tmp_path / "gate")
    yield gate
    gate.close()


def ratios(running: Torchrun, name: str) -> list[float]:
    """Time of a block with the server hung, over that of the block with it up beside it; of the slowest rank."""
    times = [[entry["time"] for entry in book] for book in running.books(name)]
    whole = min(map(len, times)) // BLOCK_STEPS
    took = [max(each[(b + 1) * BLOCK_STEPS - 1] - each[b * BLOCK_STEPS - 1] for each in times) for b in range(1, whole)]
    found = []
    for pair in range(1, len(took) // 2):  # block 0 and the one after it are warming up
        one, two = took[2 * pair - 1], took[2 * pair]
        found.append(one / two if is_hung(2 * pair) else two / one)
    return found


def is_hung(block: int) -> bool:
    return block % 4 in {1, 2}


def is_clear(found: list[float]) -> bool:
    """Whether the median lies two standard errors away from the limit, on either side; the busier the machine, the more pairs
    that takes. The error comes from the quartiles, which outliers do not move.
    """
    low, middle, high = statistics.quantiles([math.log(each) for each in found], n=4)
    error = 1.2533 * (high - low) / 1.349 / math.sqrt(len(found))
    return abs(middle - math.log(LIMIT)) > 2 * error


PLANTED = [False, True] if LONG or os.environ.get("LOSSGUARD_PLANTED") else [False]


@pytest.mark.parametrize("planted", PLANTED)
def test_a_hung_transport_on_rank_0_slows_no_rank(ranks_site: Site, torchrun, tmp_path, gate: Gate, figure, planted):
    """`planted`: the training thread of rank 0 waits for its transport, which must be seen."""
    name = f"hung-{uuid.uuid4().hex[:8]}"
    wanted = {"name": name, "steps": 100_000, "step_seconds": 0.04, "logging_steps": 1000, "planted": planted}
    running = torchrun(4, {**wanted, "gate": str(tmp_path / "gate"), "gate_every": BLOCK_STEPS, "url_of_rank_0": gate.url})

    def measured() -> list[float] | None:
        assert running.process.poll() is None, running.log.read_text()[-4000:]
        found = ratios(running, name)
        enough = len(found) >= LEAST_PAIRS and (not (LONG or planted) or is_clear(found))
        return found if enough or len(found) >= MOST_PAIRS else None

    found = poll("enough pairs of blocks", measured, 3600 if LONG else 400)
    ranks_site.command(name, "stop")
    assert running.wait() == 0
    assert gate.held > 3, "the server was never away while something was to be sent"
    assert gate.passed > 3
    if planted:
        assert statistics.median(found) > LIMIT
        return
    figure("F23", "pairs of blocks with rank 0's server hung and up, 4 ranks", len(found), at_least=LEAST_PAIRS)
    # a few pairs tell that nobody waits, which would be seconds; the limit needs as many as a busy machine takes (`make soak`)
    limit = LIMIT if LONG else 1.5
    figure("F23", "step time with it hung over step time with it up, median", statistics.median(found), at_most=limit)
    steps = running.steps(name)
    assert steps[1:] == steps[:1] * 3
