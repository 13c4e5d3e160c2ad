"""Which points must survive when a curve is made smaller.

Never lost are the two ends, the lowest and the highest finite value, and every non-finite point (as a mark beside the curve).
A gap in the line says that values were not finite there; when non-finite points are scattered through the whole curve, a gap
for each would leave no line at all, so at most a quarter of the points go into gaps, the longest stretches first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SMALLEST = 16
"""No curve is drawn with fewer points than this, however few were asked for."""

SPARKLINE_POINTS = 60


@dataclass(frozen=True, slots=True)
class Shares:
    """How many finite points and how many gaps a thinned curve may have."""

    finite: int
    gaps: int


def share(gaps: int, limit: int) -> Shares:
    """Divide `limit` points between the line and the gaps in it."""
    limit = max(limit, SMALLEST)
    kept = min(gaps, limit // 4)
    return Shares(limit - kept, kept)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A curve in at most 59 points, whatever its length: every `stride`-th point so far, `stride` doubling as it fills up.

    `seen` counts the points offered. The result depends on the points alone, not on how they were cut into batches. A step that
    goes back (a rollback) takes the rewound stretch away.
    """

    stride: int = 1
    seen: int = 0
    steps: tuple[float, ...] = ()
    values: tuple[float, ...] = ()


def extend(line: Sparkline, points: Iterable[tuple[float, float]]) -> Sparkline:
    """The sparkline after more `points` (step, value), oldest first."""
    stride, seen, steps, values = line.stride, line.seen, list(line.steps), list(line.values)
    for step, value in points:
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        if seen % stride == 0:
            steps.append(step)
            values.append(value)
        seen += 1
        if len(steps) >= SPARKLINE_POINTS:
            stride, steps, values = stride * 2, steps[::2], values[::2]
    return Sparkline(stride, seen, tuple(steps), tuple(values))


def drawn(line: Sparkline, last_step: float, last_value: float) -> Sequence[float]:
    """The values to draw, at most 60: those kept, and the newest one at the end."""
    kept = [value for step, value in zip(line.steps, line.values, strict=True) if step < last_step]
    return [*kept, last_value]
