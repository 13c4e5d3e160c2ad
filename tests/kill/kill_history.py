"""The checker: compares what a training logged, what was acknowledged to it and what the database holds in the end. Pure.

A *life* is one incarnation, as its witness file has it. Every call of `log` or `record` took one number, in the order of the
file, so what a number stood for is known. The line of a call is written once the call has come back; the very last call may
therefore be in the database without a line.

    acknowledged and lost     a number below the highest acknowledged one is not stored
    went back                 what was acknowledged got less
    invented                  a stored point that nobody logged: another value, step or number
    doubled                   one number of one series stored twice
    lost too early            logged more than 100 ms before the death, not acknowledged, not stored, and not told as dropped
    lost at the end           logged in those last 100 ms; allowed
"""

import itertools
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

WINDOW_NANOSECONDS = 100_000_000
STALL_NANOSECONDS = 20_000_000
"""Between two calls 2 ms apart: the machine gave the process no time to run, and its other threads none either."""


@dataclass
class Life:
    """What one process saw of itself. Calls are (number, step or None, segment, nanoseconds)."""

    run_id: str
    incarnation: str
    calls: list[tuple[int, int | None, int, int]] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    died_at: int | None = None
    """None: it came to its end."""

    def window(self) -> int:
        """The last 100 ms, and the time in them in which the process was not given any."""
        if self.died_at is None:
            return 0
        times = [at for *_, at in self.calls if at > self.died_at - 6 * WINDOW_NANOSECONDS] + [self.died_at]
        return WINDOW_NANOSECONDS + sum(gap for a, b in itertools.pairwise(times) if (gap := b - a) > STALL_NANOSECONDS)


@dataclass(frozen=True)
class StoredPoint:
    series: str
    segment: int
    seq: int
    step: int
    value: float


@dataclass
class Stored:
    """What the database holds of one incarnation, row by row, and how many records of its run were told as lost."""

    points: list[StoredPoint] = field(default_factory=list)
    dropped: int = 0


@dataclass(frozen=True)
class Verdict:
    acknowledged_and_lost: int = 0
    went_back: int = 0
    invented: int = 0
    doubled: int = 0
    lost_too_early: int = 0
    lost_at_the_end: int = 0

    @property
    def is_clean(self) -> bool:
        sins = (self.acknowledged_and_lost, self.went_back, self.invented, self.doubled, self.lost_too_early)
        return not any(sins)


def judge(life: Life, stored: Stored, known: Callable[[str, int], float], series: tuple[str, ...], told: int = 0) -> Verdict:
    """What became of one life. `told` is how many records were rightly told as dropped (damage, a full spool)."""
    logged = {number: (step, segment) for number, step, segment, _ in life.calls if step is not None}
    have = {(point.series, point.seq) for point in stored.points}
    missing = {number for number in logged if any((name, number) not in have for name in series)}
    known_up_to = max(life.acknowledged, default=1)
    window = life.window()
    early = {
        number
        for number, step, _, at in life.calls
        if step is not None
        and number in missing
        and number >= known_up_to
        and (life.died_at is None or at < life.died_at - window)
    }
    late = {number for number in missing if number >= known_up_to} - early
    return Verdict(
        acknowledged_and_lost=max(0, sum(number < known_up_to for number in missing) - told),
        went_back=sum(after < before for before, after in zip(life.acknowledged, life.acknowledged[1:], strict=False)),
        invented=sum(not _was_logged(point, life, logged, known) for point in stored.points),
        doubled=sum(count - 1 for count in Counter((point.series, point.seq) for point in stored.points).values()),
        lost_too_early=max(0, len(early) - told),
        lost_at_the_end=len(late),
    )


def _was_logged(point: StoredPoint, life: Life, logged: dict, known: Callable[[str, int], float]) -> bool:
    if _bits(point.value) != _bits(known(point.series, point.step)):
        return False
    if point.seq in logged:
        return logged[point.seq] == (point.step, point.segment)
    steps = [step for step, _ in logged.values()]
    newest = max((number for number, *_ in life.calls), default=0)
    return life.died_at is not None and point.seq == newest + 1 and (not steps or point.step == steps[-1] + 1)


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)


def read_lives(witness: str) -> list[Life]:
    """The lives of a witness file. A line that breaks off is not counted."""
    lives: list[Life] = []
    segment = 0
    for line in witness.split("\n")[:-1]:
        kind, *words, at = line.split(" ")
        if kind == "life":
            lives.append(Life(words[0], words[1]))
        elif kind == "ack":
            lives[-1].acknowledged.append(int(words[0]))
        elif kind in {"log", "record"}:
            step, segment = (int(words[0]), int(words[1])) if kind == "log" else (None, segment)
            lives[-1].calls.append((len(lives[-1].calls) + 1, step, segment, int(at)))
    return lives
