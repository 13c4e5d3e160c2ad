"""What every detector shares: one signature, learnt once.

    step(state, point, settings) -> (next state, Verdict)
    observe(state, point, settings) -> next state            for points of the companion series, where there are any

State is a frozen dataclass of plain values, stored as it is. A detector sees the points of one series of one rank in `seq`
order and never a clock. Handling of a rewind is the caller's: it starts from a fresh state and feeds the effective curve.
Points of one `seq` come in the order of their series' names, so that of the companions at the same step those with a smaller
name are already known when the detector's own point is judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from server.domain.points import Point
from server.domain.values import frozen
from trainer_agent.wire.codec import to_json
from trainer_agent.wire.vocabulary import SegmentCause

Settings = Mapping[str, float]
"""What a rule sets, by name; a detector's own `DEFAULTS` fill in the rest."""

RANKS = "ranks"
"""Among the settings that a detector across ranks is given: how many ranks the run has; 0 where nobody has said."""


MOST_BITS: Final = 53
"""Points that a detector can remember as the bits of one number: a stored number is at most 2^53 - 1."""


class DetectorKind(StrEnum):
    """The conditions a rule can state."""

    THRESHOLD = "threshold"
    NONFINITE = "nonfinite"
    CONSECUTIVE_RISE = "consecutive_rise"
    SPIKE = "spike"
    RAMP = "ramp"
    DIVERGENCE = "divergence"
    PLATEAU = "plateau"
    FROZEN = "frozen"
    ZERO = "zero"
    SKIP_STREAK = "skip_streak"
    SKIP_SHARE = "skip_share"
    LOSS_SCALE = "loss_scale"
    DISCONTINUITY = "discontinuity"
    SLOWDOWN = "slowdown"
    CREEP = "creep"
    STRAGGLER = "straggler"
    LOST = "lost"
    STALLED = "stalled"
    ENDED = "ended"


OF_THE_MACHINE: Final = frozenset(
    {
        DetectorKind.LOST,
        DetectorKind.STALLED,
        DetectorKind.ENDED,
        DetectorKind.SLOWDOWN,
        DetectorKind.CREEP,
        DetectorKind.STRAGGLER,
    }
)
"""Conditions of how a training runs. They say nothing about the model, so they speak against no checkpoint."""


@frozen
class Verdict:
    """Whether the condition holds at this point, and the figures for the sentence a person reads.

    `holds` is None when the point cannot be judged (too little history, or a value this condition does not speak of): it
    neither advances nor ends anything. `evidence` are plain numbers named for the text, e.g. median, limit, times.
    """

    holds: bool | None
    value: float
    limit: float | None = None
    evidence: tuple[tuple[str, float], ...] = ()


HOLDS: Final = True
CLEAR: Final = False
"""What `holds` says. It is given by its place: a keyword costs as much as the verdict itself, of which a point makes a dozen."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One number a rule may set: its default (None: must be given or may be left out), and what it may be."""

    default: float | None
    minimum: float
    maximum: float
    whole: bool = False
    meaning: str = ""


State = Any
"""One of the frozen dataclasses of the detectors; only the detector that made it looks inside."""


@dataclass(frozen=True, slots=True)
class Detector:
    """How one kind starts, steps, and comes back from the database."""

    start: Callable[[], State]
    step: Callable[[State, Point, Settings], tuple[State, Verdict]]
    settings: Mapping[str, Setting]
    restore: Callable[[Mapping[str, Any]], State]
    stored: Callable[[State], dict[str, Any]] = to_json
    companions: tuple[str, ...] = ()
    """Other series whose points `observe` is shown, as those of the rule's own series are shown to `step`."""
    observe: Callable[[State, Point, Settings], State] | None = None
    across_ranks: bool = False
    """One state for all ranks of a run, fed with the points of each; `point.rank` tells them apart. It must come to the same
    whatever the order in which the ranks' points arrive. Its settings hold the number of ranks under `RANKS`."""
    meaning: str = ""
    """What it says, in a sentence; empty where the first sentence of the file of `step` is that."""
    begins: Callable[[State, SegmentCause], State] | None = None
    """Told after the curve was replayed and before the first point of a segment, where the cause of that is known."""
