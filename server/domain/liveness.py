"""A run's pace, as the server sees it: how far it is known to be, and how long its steps take to come.

The *frontier* is the newest step that is known of: told by a heartbeat, or stored. While a backlog drains the two differ, and a
step of the backlog counts as a step (something comes) and says nothing about the pace.

A gap is taken at most once a second: a run that is quicker is far under the floor of any limit, and so a backlog that drains
in a moment cannot pass for the run's pace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

MOST_GAPS: Final = 31
SAMPLE_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 60.0
"""How long at most between two looks at a live run. Whatever a person changes of a rule holds after that at the latest."""
SOON_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """`segment` and `step` are the newest that a heartbeat has told; `is_stalled` says that an open alert tells of a stall."""

    segment: int = 0
    step: int = -1
    gaps: tuple[float, ...] = ()
    gap_at: datetime | None = None
    is_stalled: bool = False


@dataclass(frozen=True, slots=True)
class Stride:
    """What a step has made of the pace, and whether it was one at all."""

    pace: Pace
    is_step: bool


def stepped(pace: Pace, stored: tuple[int, int], seen: tuple[int, int], since: datetime | None, now: datetime) -> Stride:
    """The pace after a step was seen at `now`, in a batch or told by a heartbeat.

    Args:
        pace: before.
        stored: segment and step that the run stands at.
        seen: those that are told now.
        since: when the step before came; None where there was none.
        now: by the server's clock.
    """
    frontier = max(stored, (pace.segment, pace.step))
    if seen <= stored or since is None or seen <= frontier:
        return Stride(pace, seen > stored)
    if pace.gap_at is not None and now - pace.gap_at < timedelta(seconds=SAMPLE_SECONDS):
        return Stride(pace, is_step=True)
    gap = (now - since).total_seconds()
    return Stride(replace(pace, gaps=(*pace.gaps, round(gap, 3))[-MOST_GAPS:], gap_at=now), is_step=True)


def told(pace: Pace, segment: int, step: int) -> Pace:
    """The pace after a heartbeat told where the run is."""
    return replace(pace, segment=segment, step=step) if (segment, step) > (pace.segment, pace.step) else pace


def to_parsed(pace: Pace) -> dict[str, Any]:
    """The pace as JSON."""
    gap_at = None if pace.gap_at is None else pace.gap_at.isoformat()
    return {
        "segment": pace.segment,
        "step": pace.step,
        "gaps": list(pace.gaps),
        "gap_at": gap_at,
        "is_stalled": pace.is_stalled,
    }


def from_parsed(parsed: Mapping[str, Any] | None) -> Pace:
    """The pace out of what `to_parsed` gave; a new one out of None."""
    if parsed is None:
        return Pace()
    gap_at = None if parsed["gap_at"] is None else datetime.fromisoformat(parsed["gap_at"])
    return Pace(parsed["segment"], parsed["step"], tuple(parsed["gaps"]), gap_at, parsed["is_stalled"])
