"""What a detector of levels knows of its series beside a window. Warm-up, a change of pace and a rewind are dealt with here.

- *Overshoot.* A run may climb to several times its first loss in its first points and come back (7 -> 12 -> 8, small language
  models under a high rate). Until it has come back to `SETTLED` times its first value it is not settled, and such points are no
  part of its past. After `YOUNG` points it counts as settled wherever it is: some runs begin with an easy batch.
- *Pace.* When the distance between points changes by more than `PACE` times, for two points running, the noise of a point is
  another one (single batches after means of 50 steps): what was learnt of it is dropped. One odd distance is a point at the
  end of an epoch.
- *Signed.* A series that was ever below zero, or began at zero, is no magnitude: ratios say nothing of it.
- *Epochs.* The loss steps down where the data come again. What is judged is a rise, so a step down only moves the level.
- *Rewind.* A detector starts afresh on the effective curve, of which long runs replay the end only: `first` is then the first of
  what is replayed, and the run is young again for as long.
"""

from typing import Final

from server.domain.values import frozen

SETTLED: Final = 1.15
YOUNG: Final = 32
PACE: Final = 3


@frozen
class Past:
    """`count` values so far, the first and the lowest of them, the step of the last and the steps between two."""

    count: int = 0
    first: float = 0.0
    lowest: float = 0.0
    settled: bool = False
    signed: bool = False
    step: int = 0
    pace: int = 0
    odd: int = 0
    """Distances in a row that are off the pace."""

    @property
    def young(self) -> bool:
        """Whether there has hardly been a past."""
        return self.count <= YOUNG


NOTHING: Final = Past()


def see(past: Past, value: float, step: int) -> tuple[Past, bool]:
    """The past with one more finite value in it, and whether the pace has changed with it."""
    count = past.count + 1
    if count == 1:
        return Past(1, value, value, settled=False, signed=value <= 0, step=step), False
    first, lowest, signed, pace, odd, anew = past.first, past.lowest, past.signed, past.pace, 0, False
    if step - past.step != pace:
        pace, odd, anew = _paced(past, step - past.step)
    if value < lowest:  # and no other value can be the first below zero
        lowest, signed = value, signed or value < 0
    settled = past.settled or value <= SETTLED * first or count > YOUNG
    return Past(count, first, lowest, settled, signed, step, pace, odd), anew


def _paced(past: Past, gap: int) -> tuple[int, int, bool]:
    """Pace, odd distances and whether the pace is another one, after a distance that is not the pace."""
    if gap <= 0 or not past.pace:
        return max(gap, past.pace), 0, False
    if past.pace <= gap * PACE and gap <= past.pace * PACE:
        return past.pace, 0, False
    return (gap, 0, True) if past.odd else (past.pace, 1, False)
