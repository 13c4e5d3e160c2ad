"""What every detector shares: one signature, learnt once.

    step(state, point, settings) -> (next state, Verdict)

State is a frozen dataclass of plain values, stored as it is. A detector sees the points of one series of one rank in `seq`
order and never a clock. Handling of a rewind is the caller's: it starts from a fresh state and feeds the effective curve.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the condition holds at this point, and the figures for the sentence a person reads.

    `holds` is None when the point cannot be judged (too little history, or a value this condition does not speak of): it
    neither advances nor ends anything. `evidence` are plain numbers named for the text, e.g. median, limit, times.
    """

    holds: bool | None
    value: float
    limit: float | None = None
    evidence: tuple[tuple[str, float], ...] = ()
