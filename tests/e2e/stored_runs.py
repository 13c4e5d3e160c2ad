"""Runs that are over, told to the server by hand: their curves are what a test has written down."""

import time
from collections.abc import Mapping, Sequence

from e2e_harness import Site, poll
from spoken_agent import SpokenAgent

from trainer_agent.wire.messages import Batch, Column, RunEnded
from trainer_agent.wire.vocabulary import EndReason


def store_run(site: Site, run_id: str, curves: Mapping[str, Sequence[float]], end: EndReason = EndReason.FINISHED) -> str:
    """A run with a value of each series at the steps 1, 2, 3 ..., which has ended."""
    agent = SpokenAgent(site, run_id)
    for series, values in curves.items():
        _send(agent, series, values)
    agent.step = max(len(values) for values in curves.values())
    agent.beat()
    agent.tell(RunEnded(end, time.time(), agent.step))
    poll("the end", lambda: site.run(run_id)["ended_at"])
    return run_id


def _send(agent: SpokenAgent, series: str, values: Sequence[float]) -> None:
    first, agent.seq = agent.seq + 1, agent.seq + len(values)
    seqs, steps = tuple(range(first, agent.seq + 1)), tuple(range(1, len(values) + 1))
    column = Column(series, agent.segment, seqs, steps, (time.time(),) * len(values), tuple(values))
    agent._post("batches", Batch(agent.run_id, agent.incarnation, 0, first, agent.seq, time.time(), columns=(column,)))


def dying(steps: int, onset: int, dead: int) -> dict[str, list[float]]:
    """Loss and gradient norm of a run whose norm climbs from `onset` on and whose loss is NaN from `dead` on."""
    norm = [2.0 + 0.1 * (step % 7) if step < onset else 2.0 * 1.15 ** (step - onset) for step in range(1, steps + 1)]
    loss = [2.0 + 0.01 * (step % 5) if step < dead else float("nan") for step in range(1, steps + 1)]
    return {"train/loss": loss, "train/grad_norm": norm}


def healthy(steps: int) -> dict[str, list[float]]:
    """Loss and gradient norm of a run that nothing happens to."""
    return {
        "train/loss": [3.0 - step / steps + 0.01 * (step % 5) for step in range(1, steps + 1)],
        "train/grad_norm": [2.0 + 0.1 * (step % 7) for step in range(1, steps + 1)],
    }
