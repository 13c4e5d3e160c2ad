"""A point, and what is left of an overlap: the higher `seq` wins."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one series. `value` may be non-finite; it is never part of a key. `time` is the agent's, for display."""

    series: str
    segment: int
    rank: int
    seq: int
    step: int
    time: float
    value: float
