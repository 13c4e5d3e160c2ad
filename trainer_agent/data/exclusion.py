"""What becomes of the batches of an epoch when samples are left out. Pure: lists of batches in, lists of batches out.

    rows R0 R1 R2 | R3 R4 R5 | R6          a row holds one batch for each rank; so many rows are one optimizer step
                     R4       dropped      a step that is left empty on all ranks is passed over by all
         [3, 7] -> [7]                     a batch without some of its samples
         [3]    -> [Unweighted(7), ...]    a batch left empty in a step that is not: what another one keeps, without weight

Where it is decided is the optimizer step, so that every other step keeps its samples, their order and its number of batches. A
stand-in is as large as a batch that was kept, because there are models that take no single sample (batch norm).
Samples and places are whole numbers; nothing here knows a data set, a loader or a file.
"""

from collections.abc import Container, Iterable, Sequence
from itertools import groupby

from .carried import Unweighted

Batch = list[int]
Row = tuple[Batch, ...]
"""The batches of all ranks at one place of an epoch."""
Placed = tuple[int, Row]
"""A row and its place in the epoch as it was drawn."""


def weighs(batch: Iterable[int]) -> bool:
    """Whether it holds a sample that counts."""
    return any(type(sample) is not Unweighted for sample in batch)


def without(placed: Iterable[Placed], samples: Container[int], start: int, size: int) -> list[Placed]:
    """The rows without these samples, from place `start` on; each with its place.

    Args:
        placed: rows in order of their places; places may be missing.
        size: so many places are one optimizer step.
    """
    left: list[Placed] = []
    for _, group in groupby(placed, key=lambda each: each[0] // size):
        left += _left_of_step(list(group), samples, start)
    return left


def _left_of_step(step: list[Placed], samples: Container[int], start: int) -> list[Placed]:
    """What is left of one step: nothing, where nothing in it counts any more."""
    if not any(sample in samples for place, row in step if place >= start for batch in row for sample in batch):
        return step
    kept = [(place, _kept(row, samples) if place >= start else row) for place, row in step]
    stand_in = _stand_in(batch for _, row in kept for batch in _kept(row, samples))
    if not stand_in:
        return [each for each in kept if each[0] < start]
    return [(place, tuple(batch or stand_in for batch in row)) for place, row in kept]


def _stand_in(batches: Iterable[Batch]) -> Batch:
    """The largest of them, without weight."""
    return [Unweighted(sample) for sample in max(batches, key=len, default=[])]


def _kept(row: Row, samples: Container[int]) -> Row:
    """An empty batch stands where nothing is left; a stand-in is nothing, because it may be one of the samples."""
    return tuple([each for each in batch if type(each) is not Unweighted and each not in samples] for batch in row)


def filled(left: Sequence[Placed], filler: Sequence[Placed], count: int, size: int) -> list[Row]:
    """The steps that are left, and after them those of the filler over and over, as `count` rows in all.

    A short step at the end of an epoch that comes to stand before others gets stand-ins for what it has less, and a step that
    comes to stand at a short end is cut down to it. Where there is nothing to fill up with, there are fewer.
    """
    steps = _steps(left, size)
    again = _steps(filler, size)
    wanted = -(-count // size)
    rows: list[Row] = []
    for number in range(wanted):
        if number >= len(steps) and not again:
            break
        step = steps[number] if number < len(steps) else again[(number - len(steps)) % len(again)]
        rows += _fitted(step, size if number < wanted - 1 else count - size * (wanted - 1))
    return rows


def _steps(placed: Iterable[Placed], size: int) -> list[list[Row]]:
    return [[row for _, row in group] for _, group in groupby(placed, key=lambda each: each[0] // size)]


def _fitted(step: list[Row], size: int) -> list[Row]:
    """The step in so many rows; those that count come first where not all of them have a place."""
    if len(step) > size:
        return sorted(step, key=lambda row: not any(map(weighs, row)))[:size]
    if len(step) == size:
        return step
    stand_in = _stand_in(batch for row in step for batch in row)
    return step + [tuple(stand_in for _ in step[0])] * (size - len(step))


def ranges_of(samples: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The samples as ranges, first and last included, in order."""
    ordered = sorted(set(samples))
    found: list[tuple[int, int]] = []
    for sample in ordered:
        first = found.pop()[0] if found and found[-1][1] == sample - 1 else sample
        found.append((first, sample))
    return tuple(found)


def samples_in(ranges: Iterable[tuple[int, int]]) -> frozenset[int]:
    """The samples of these ranges."""
    return frozenset(sample for first, last in ranges for sample in range(first, last + 1))
