"""Whether a training that was resumed goes on as it was: its first steps beside the stored curve. Pure.

    stored curve    the same steps of the segment it comes from, where that went further than the checkpoint, and the steps before
    compared        learning rate, loss scale, samples of the batches, loss; what tokens mean, where the integration knows

What the run itself ordered is no finding: after `skip` and `exclude` other batches are expected, and another curve from there on;
samples that an earlier exclude left out are not missed, and after the first step that lost some no batches are compared; a factor
on the learning rate is divided out; another clipping leaves only the first step to be alike.

What a GPU does not compute twice alike is no finding either. Learning rate and loss scale are plain arithmetic on the host, and
are compared exactly (but for 1e-6, which a checkpoint that keeps a rate in float32 costs). The loss is compared with the scatter
of the stored curve itself: half of the steps must be `OUTLIER` robust deviations off, in the same direction. Reordered sums of
bf16 or fp16 never are (they make 1e-3 of a loss that scatters by 1e-1); fresh weights and a fresh optimizer are.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.samples import StepRow
from trainer_agent.wire.vocabulary import DataMode

STEPS = 20
BEFORE = 50
"""So many steps before the resume tell the level and the scatter."""
OUTLIER = 6.0
RATE_TOLERANCE = 1e-6
FEWEST = 3
"""Fewer steps tell nothing of a level."""
NEXT = 5
"""So many steps on either side of a resume are compared where no step can be compared with itself."""
JUMP = math.log(1.5)
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Resumed:
    """What the run knows of its own resume."""

    from_step: int
    data: DataMode = DataMode.REPLAY
    clips_otherwise: bool = False
    """The norm at which gradients are clipped is another one than before."""
    vocabulary_before: str = ""
    vocabulary_now: str = ""
    excluded: frozenset[int] = frozenset()
    """The samples that are left out by now: steps of before may have had them."""


class Reader(Protocol):
    """Of the ledger, what this needs."""

    @property
    def heads(self) -> Mapping[int, SegmentStarted]:
        """The segments in it."""

    def effective(self, first: int = ..., last: int | None = ..., newest: int | None = ...) -> Iterable["HasRow"]:
        """The steps that count, up to a segment."""


class HasRow(Protocol):
    """A step found in the ledger."""

    @property
    def row(self) -> StepRow:
        """It."""


def resumed(
    heads: Mapping[int, SegmentStarted],
    started: SegmentStarted,
    vocabulary: tuple[str, str],
    excluded: frozenset[int] = frozenset(),
) -> Resumed:
    """What the run knows of the resume that begins this segment. `vocabulary`: at the save, and now."""
    parent = heads.get(started.parent) if started.parent is not None else None
    named = str(started.attributes.get("data") or DataMode.REPLAY)
    clips = None if parent is None else parent.attributes.get("max_grad_norm")
    return Resumed(
        started.from_step,
        DataMode(named) if named in set(DataMode) else DataMode.REPLAY,
        clips_otherwise=parent is not None and clips != started.attributes.get("max_grad_norm"),
        vocabulary_before=vocabulary[0],
        vocabulary_now=vocabulary[1],
        excluded=excluded,
    )


def stored_curve(reader: Reader, started: SegmentStarted) -> dict[int, StepRow]:
    """The steps around a resume as the segment it comes from made them."""
    if started.parent is None or started.parent not in reader.heads:
        return {}
    first, last = max(1, started.from_step - BEFORE + 1), started.from_step + STEPS
    return {found.row.step: found.row for found in reader.effective(first, last, started.parent)}


@dataclass(slots=True)
class ResumeWatch:
    """Gathers the first steps after a resume."""

    resumed: Resumed
    before: Mapping[int, StepRow]
    after: list[StepRow] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How many were gathered."""
        return len(self.after)

    def take(self, row: StepRow) -> bool:
        """One more step; whether there are enough."""
        if row.step > self.resumed.from_step:
            self.after.append(row)
        return len(self.after) >= STEPS

    def findings(self) -> tuple[str, ...]:
        """What is not as it was, as clauses; empty when nothing is."""
        return check(self.resumed, self.before, self.after)


def check(resumed: Resumed, before: Mapping[int, StepRow], after: Sequence[StepRow]) -> tuple[str, ...]:
    """What is not as it was, as clauses; empty when nothing is.

    Args:
        resumed: what the run knows of its resume.
        before: the stored curve by step, up to `BEFORE` steps before the resume and `STEPS` after.
        after: the steps made since, oldest first.
    """
    pairs = [(before[row.step], row) for row in after if row.step in before]
    past = [before[step] for step in sorted(before) if step <= resumed.from_step]
    found = [
        _vocabulary(resumed),
        _batches(pairs, resumed.excluded) if resumed.data is DataMode.REPLAY else "",
        _rate(pairs, past, after),
        _scale(pairs, past, after),
    ]
    is_same_path = resumed.data is DataMode.REPLAY and not resumed.clips_otherwise and not _factors_differ(pairs)
    found.append(_loss(pairs, past, after, is_same_path=is_same_path and not _batches(pairs)))
    return tuple(clause for clause in found if clause)


def _vocabulary(resumed: Resumed) -> str:
    then, now = resumed.vocabulary_before, resumed.vocabulary_now
    return f"vocabulary differs: {now}, and the checkpoint was saved with {then}" if then and now and then != now else ""


def _batches(pairs: Sequence[tuple[StepRow, StepRow]], excluded: frozenset[int] = frozenset()) -> str:
    known = [(old, new) for old, new in pairs if old.samples is not None and new.samples is not None]
    known = _until_left_out(known, excluded)
    other = [new.step for old, new in known if _kept(old, excluded) != _kept(new, excluded)]
    return f"other batches than before: {len(other)} of {len(known)} steps, the first is {other[0]}" if other else ""


def _until_left_out(pairs: list[tuple[StepRow, StepRow]], excluded: frozenset[int]) -> list[tuple[StepRow, StepRow]]:
    """Up to the first step that lost samples to an exclude.

    A step of which nothing is left is passed over, and those after it come earlier; one of which something is left draws other
    random numbers (dropout), from which the order of the next epoch may be drawn.
    """
    lost = next((place for place, (old, _) in enumerate(pairs) if not excluded.isdisjoint(old.samples or ())), None)
    if lost is None:
        return pairs
    return pairs[: lost + bool(_kept(pairs[lost][0], excluded))]


def _kept(row: StepRow, excluded: frozenset[int]) -> list[int]:
    return sorted(sample for sample in row.samples or () if sample not in excluded)


def _rate(pairs: Sequence[tuple[StepRow, StepRow]], past: Sequence[StepRow], after: Sequence[StepRow]) -> str:
    """The rate of the schedule, without the factor that was put on it."""
    alike = _until_a_skip(pairs)
    both = [(new.step, a, b) for old, new in alike if (a := _plain_rate(old)) is not None and (b := _plain_rate(new)) is not None]
    for step, then, now in both:
        if not _alike(then, now):
            return f"learning rate {now:.6g} where it was {then:.6g}, at step {step}"
    if both:
        return ""
    rates = [rate for row in past[-STEPS:] if (rate := _plain_rate(row)) is not None and rate > 0]
    first = next((rate for row in after if (rate := _plain_rate(row)) is not None), None)
    if len(rates) < FEWEST or first is None or not first > 0:
        return ""
    usual = max(abs(math.log(b / a)) for a, b in pairwise(rates))
    is_jump = abs(math.log(first / rates[-1])) > max(JUMP, OUTLIER * usual)
    return f"learning rate {first:.6g} right after {rates[-1]:.6g}" if is_jump else ""


def _until_a_skip(pairs: Sequence[tuple[StepRow, StepRow]]) -> list[tuple[StepRow, StepRow]]:
    """As long as the same steps were skipped: a step that the scaler skips holds a schedule back, and halves the scale.

    Whether the rate of such a step itself is the one from before it or from after depends on who tells it.
    """
    same = [(old.loss_scale, old.overflowed) == (new.loss_scale, new.overflowed) for old, new in pairs]
    return [pair for place, pair in enumerate(pairs) if all(same[: place + 1])]


def _plain_rate(row: StepRow) -> float | None:
    rate, factor = row.learning_rate, row.learning_rate_factor
    if rate is None or not math.isfinite(rate):
        return None
    return rate / factor if factor else rate


def _alike(then: float, now: float) -> bool:
    return abs(then - now) <= RATE_TOLERANCE * max(abs(then), abs(now)) + 1e-30


def _factors_differ(pairs: Sequence[tuple[StepRow, StepRow]]) -> bool:
    return any((old.learning_rate_factor or 1.0) != (new.learning_rate_factor or 1.0) for old, new in pairs)


def _scale(pairs: Sequence[tuple[StepRow, StepRow]], past: Sequence[StepRow], after: Sequence[StepRow]) -> str:
    """The scale before the first update is the one that was restored, whatever that update then does to it."""
    first = after[0] if after else None
    if first is None or first.loss_scale is None:
        lost = bool(after) and any(row.loss_scale is not None for row in past[-FEWEST:])
        return "scaler not restored: there was a loss scale, and there is none" if lost else ""
    then = next((old.loss_scale for old, new in pairs if new is first), None)
    if then is not None:
        return "" if then == first.loss_scale else _not_restored(first.loss_scale, then)
    last = past[-1].loss_scale if past else None
    if last is None or not last > 0 or past[-1].step != first.step - 1:
        return ""
    # the update in between may have halved or doubled it
    return "" if 0.5 <= first.loss_scale / last <= 2.0 else _not_restored(first.loss_scale, last)


def _not_restored(now: float, then: float) -> str:
    return f"scaler not restored: loss scale {now:.6g} where it was {then:.6g}"


def _loss(
    pairs: Sequence[tuple[StepRow, StepRow]], past: Sequence[StepRow], after: Sequence[StepRow], *, is_same_path: bool
) -> str:
    both = [(old.loss, new.loss) for old, new in pairs if old.loss is not None and new.loss is not None] if is_same_path else []
    scatter = _scatter([row.loss for row in past])
    if len(both) >= FEWEST:
        lost = [new for old, new in both if math.isfinite(old) and not math.isfinite(new)]
        if len(lost) * 2 > len(both):
            return f"loss not finite in {len(lost)} of {len(both)} steps where it was"
        return _off([new - old for old, new in both], [old for old, _ in both], scatter)
    level, since = _finite(row.loss for row in past[-BEFORE:]), _finite(row.loss for row in after[:NEXT])
    if len(level) < 2 * NEXT or len(since) < FEWEST:
        return ""
    # what it would have been by the trend; a loss that falls is no trouble
    at = statistics.median(level[-NEXT:]) + NEXT * max(0.0, (level[-1] - level[-2 * NEXT]) / (2 * NEXT - 1))
    return _off([loss - at for loss in since], [at], scatter, only=lambda difference: difference > 0)


def _off(
    differences: Sequence[float],
    usual: Sequence[float],
    scatter: float | None,
    only: Callable[[float], bool] = lambda _: True,
) -> str:
    """Whether more than half of the steps are off in one direction."""
    finite = _finite(differences)
    if scatter is None or len(finite) < FEWEST:
        return ""
    middle = statistics.median(finite)
    level = statistics.median(_finite(usual)) if _finite(usual) else 0.0
    limit = OUTLIER * max(scatter, 1e-3 * abs(level), 1e-12)
    if abs(middle) <= limit or not only(middle):
        return ""
    return f"loss {level + middle:.4g} where it was {level:.4g}"


def _scatter(losses: Iterable[float | None]) -> float | None:
    """The robust deviation of single steps, the trend taken out: from the differences of neighbours."""
    finite = _finite(losses)
    steps = [b - a for a, b in pairwise(finite)]
    if len(steps) < FEWEST:
        return None
    middle = statistics.median(steps)
    return _MAD * statistics.median([abs(step - middle) for step in steps]) / math.sqrt(2.0)


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
