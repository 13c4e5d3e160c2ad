"""Windows of the last values, kept in rising order beside the order in which they came: no detector sorts a long one at a point.

W: length of a window. Both tuples hold the same W finite values.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Final

TO_SIGMA: Final = 1.4826
"""MAD times this is the standard deviation, for normal data. Source: Iglewicz & Hoaglin 1993."""

Floats = tuple[float, ...]


def pushed(values: Floats, ranked: Floats, value: float, length: float) -> tuple[Floats, Floats]:
    """The window with one more value, and without the oldest where it is full: as it came, and in rising order."""
    order, last = [*ranked], (value,)
    if len(values) >= length:
        del order[bisect_left(order, values[0])]
        values = values[1:]
    insort(order, value)
    return values + last, tuple(order)


def median(ranked: Sequence[float]) -> float:
    """The median of values in rising order, shape (W,), W >= 1."""
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


def median_distance(ranked: Sequence[float], middle: float) -> float:
    """The MAD: the median of the distances from `middle` of values in rising order, without sorting them.

    The nearest values lie around the middle, so the distances come in rising order by walking outwards from there.
    """
    right = bisect_left(ranked, middle)
    left, wanted = right - 1, len(ranked) // 2
    before = last = 0.0
    for _ in range(wanted + 1):
        before = last
        if right == len(ranked) or (left >= 0 and middle - ranked[left] <= ranked[right] - middle):
            last, left = middle - ranked[left], left - 1
        else:
            last, right = ranked[right] - middle, right + 1
    return last if len(ranked) % 2 else (before + last) / 2


def spread(ranked: Sequence[float], middle: float) -> float:
    """The robust standard deviation of values in rising order: 1.4826 MAD."""
    return TO_SIGMA * median_distance(ranked, middle)
