"""What every detector shares: one signature, learnt once.

    step(state, point, settings) -> (next state, Verdict)

State is a frozen dataclass of plain values, stored as it is. A detector sees the points of one series of one rank in `seq`
order and never a clock. Handling of a rewind is the caller's: it starts from a fresh state and feeds the effective curve.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

Settings = Mapping[str, float]
"""What a rule sets, by name; a detector's own `DEFAULTS` fill in the rest."""


class DetectorKind(StrEnum):
    """The conditions a rule can state."""

    THRESHOLD = "threshold"
    NONFINITE = "nonfinite"
    CONSECUTIVE_RISE = "consecutive_rise"
    SPIKE = "spike"
    SKIP_STREAK = "skip_streak"


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


@dataclass(frozen=True, slots=True)
class Setting:
    """One number a rule may set: its default (None: must be given or may be left out), and what it may be."""

    default: float | None
    minimum: float
    maximum: float
    whole: bool = False
    meaning: str = ""
