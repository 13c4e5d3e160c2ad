"""How a run came out, and what a rule's episodes on it are worth.

The outcome is read from what is stored and never from an alert, or a rule would be its own witness:

    dead        the run's own guard stopped it; or its loss stopped being finite: 3 logged losses in a row, or the last one;
                or its last losses are exactly 0 without a gradient (see `filtered`)
    diverged    a person rolled it back; or its loss left its best level for good (see `departure`)
    healthy     it finished, or the log ends, with none of these
    unknown     anything else: still running, lost, stopped by a person, failed for another reason, no loss at all

The verdict on a dead or diverged run asks whether an episode was about that end: it fires at most `BEFORE` logged losses before
it (or has been firing since), and not more than `AFTER` behind it. Anything earlier would have been called off as a false alarm.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final

from trainer_agent.wire.vocabulary import Severity

from .alerts import Alert, CloseReason

BEFORE: Final = 100
AFTER: Final = 10
IN_A_ROW: Final = 3
"""A loss scaler skips a step whose loss is not finite, and the run goes on: one such point is no death."""
SHORTEST: Final = 15
"""Losses; a shorter curve says nothing about where it was going."""
MOST: Final = 4_000
"""A longer curve is looked at in medians of neighbours."""
RATIO, SPREADS, SHARE = 1.05, 2.0, 0.1
"""How far the level at the end must lie over the best one: as a ratio, in robust spreads of the noise, as a share of all levels.
With hindsight, so it may be sharper than any rule. On 156 public logs labelled by eye it finds 12 of 15 that exploded and takes
none of 86 healthy ones for one."""


class Outcome(StrEnum):
    """How a run came out."""

    DEAD = "dead"
    DIVERGED = "diverged"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """What the episodes on a run are worth."""

    EARLY = "early"
    """Before the end, or at its very step."""
    LATE = "late"
    MISSED = "missed"
    FALSE_ALARM = "false_alarm"
    QUIET = "quiet"
    """Nothing fired, and nothing had to; or nobody knows whether something had to."""
    NOT_JUDGED = "not_judged"
    """It could not be: the row's problem says why."""


FAILED: Final = frozenset({Outcome.DEAD, Outcome.DIVERGED})


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The losses of one segment of rank 0 in the order of their steps, shape (N,) each."""

    segment: int
    steps: Sequence[int] = ()
    values: Sequence[float] = ()
    norms: Mapping[int, float] = field(default_factory=dict)
    """The gradient norms of the segment, by step."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known of how a run ended. All steps may be None: not known."""

    finished: bool = False
    """It said so itself; or it is a log, which ends where it ends."""
    guard_stop: tuple[int, int | None] | None = None
    """Segment and step of a stop by the run's own guard."""
    left: tuple[int, int | None] | None = None
    """Segment and last step of what a person has rolled back, the first time."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a run, and the segment and step of its end where it is dead or diverged."""

    outcome: Outcome
    segment: int = 0
    step: int | None = None


def outcome(ended: Ended, curves: Iterable[LossCurve]) -> Found:
    """How the run came out: its first death, or else its first divergence."""
    told = list(curves)
    for curve in told:
        step = death(curve, is_last=curve is told[-1])
        if step is not None:
            return Found(Outcome.DEAD, curve.segment, step)
    if ended.guard_stop is not None:
        return Found(Outcome.DEAD, *ended.guard_stop)
    if ended.left is not None:
        return Found(Outcome.DIVERGED, *ended.left)
    step = departure(told[-1]) if told else None
    if step is not None:
        return Found(Outcome.DIVERGED, told[-1].segment, step)
    return Found(Outcome.HEALTHY if ended.finished and any(len(curve.steps) for curve in told) else Outcome.UNKNOWN)


def death(curve: LossCurve, *, is_last: bool) -> int | None:
    """The first step of the first `IN_A_ROW` losses that were not finite, or of those, or the zeros, that the curve ends with."""
    first, count = None, 0
    for step, value in zip(curve.steps, curve.values, strict=True):
        if math.isfinite(value):
            first, count = None, 0
            continue
        first, count = step if first is None else first, count + 1
        if count == IN_A_ROW:
            return first
    if not is_last:
        return None
    return filtered(curve) if first is None else first


def filtered(curve: LossCurve) -> int | None:
    """The first of the zeros that the curve ends with, `IN_A_ROW` at least, where they stand for losses that were not finite.

    A trainer that leaves such losses out of its mean logs 0.0 for them. The gradient norms from there on are not finite, or there
    are none; without any, the loss must have been something else before: one that is zero from the first on may be meant so.
    """
    count = next((at for at, value in enumerate(reversed(curve.values)) if value != 0), len(curve.values))
    if count < IN_A_ROW:
        return None
    begin = curve.steps[-count]
    norms = [norm for step, norm in curve.norms.items() if step >= begin]
    if any(map(math.isfinite, norms)) or (not norms and count == len(curve.values)):
        return None
    return begin


def departure(curve: LossCurve) -> int | None:
    """The step at which the loss left its best level for good, as seen from the end.

    Levels are medians of the last 5 % of the losses, 5 at least. None where the level at the end is not far over the best one,
    where the curve is short, and where a loss at or below 0 says that a ratio means nothing.
    """
    told = _thinned([(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)])
    values = [value for _, value in told]
    if len(values) < SHORTEST or min(values) <= 0:
        return None
    width = max(5, len(values) // 20)
    levels = _levels(values, width)
    best, last = min(levels), levels[-1]
    noise = 1.4826 * median(abs(value - level) for value, level in zip(values, levels, strict=True))
    if last < RATIO * best or last - best < max(SPREADS * noise, SHARE * (max(levels) - best)):
        return None
    place = len(levels) - 1
    while levels[place - 1] > (best + last) / 2:  # the best one lies below
        place -= 1
    return told[max(0, place - width // 2)][0]


def _thinned(told: list[tuple[int, float]]) -> list[tuple[int, float]]:
    size = -(-len(told) // MOST)
    if size == 1:
        return told
    parts = (told[at : at + size] for at in range(0, len(told), size))
    return [(part[0][0], median(value for _, value in part)) for part in parts]


def _levels(values: Sequence[float], width: int) -> list[float]:
    """The median of the last `width` values at each; of the first three at the first ones."""
    ranked: list[float] = []
    levels = []
    for at, value in enumerate(values):
        insort(ranked, value)
        if at >= width:
            del ranked[bisect_left(ranked, values[at - width])]
        levels.append(_median_of(ranked))
    return [levels[2]] * 2 + levels[2:]


def _median_of(ranked: Sequence[float]) -> float:
    """The median of values in rising order."""
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


def counted(alerts: Iterable[Alert], *, of_one_rule: bool) -> list[Alert]:
    """The episodes that count: of a pack those that would have paged somebody, of one rule on its own all."""
    return [each for each in alerts if of_one_rule or (each.severity is not Severity.INFO and not each.trial)]


def verdict(found: Found, alerts: Sequence[Alert], curves: Sequence[LossCurve]) -> tuple[Verdict, int | None]:
    """What the episodes on a run are worth, and how many steps before the end the first of those about it fired."""
    if found.outcome is Outcome.HEALTHY:
        return (Verdict.FALSE_ALARM if alerts else Verdict.QUIET), None
    if found.outcome not in FAILED:
        return Verdict.QUIET, None
    if found.step is None:  # dead, and nobody knows when: any episode says so
        return (Verdict.EARLY if alerts else Verdict.MISSED), None
    lead = _lead(found, found.step, alerts, curves)
    if lead is None:
        return Verdict.MISSED, None
    return (Verdict.EARLY if lead >= 0 else Verdict.LATE), lead


def _lead(found: Found, end: int, alerts: Sequence[Alert], curves: Sequence[LossCurve]) -> int | None:
    begin, until = _window(end, next((curve.steps for curve in curves if curve.segment == found.segment), ()))
    leads = []
    for alert in alerts:
        fired = alert.firing_step
        if fired is None or alert.segment > found.segment or (alert.segment < found.segment and not _lasts(alert, end)):
            continue
        if begin <= fired <= until or (fired < begin and _lasts(alert, end)):
            leads.append(end - fired)
    return max(leads, default=None)


def _window(end: int, steps: Sequence[int]) -> tuple[float, float]:
    """The first and the last step at which an episode may fire to be about the end at step `end`."""
    before, after = bisect_left(steps, end), bisect_right(steps, end)
    begin = steps[before - BEFORE] if before >= BEFORE else -math.inf
    return begin, steps[after + AFTER - 1] if after + AFTER <= len(steps) else math.inf


def _lasts(alert: Alert, end: int) -> bool:
    """Whether the episode was still going on at step `end`."""
    if alert.closed_because is CloseReason.REWOUND:
        return False
    return alert.resolved_step is None or alert.resolved_step >= end


@dataclass(frozen=True, slots=True)
class Row:
    """What a summary needs of a run. `points` are its logged losses (of a run without: the points that were judged)."""

    outcome: Outcome
    verdict: Verdict
    lead_steps: int | None
    points: int
    counted: int
    """Episodes that count, and the same of the rule as it is saved now (None where there is none to compare with)."""
    verdict_before: Verdict | None = None
    counted_before: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """All runs together. Everything `_before` is None where there is no saved rule to compare with."""

    failed_runs: int
    caught: int
    caught_before: int | None
    lead_steps_median: float | None
    healthy_runs: int
    false_alarms: int
    """Healthy runs with at least one episode."""
    false_alarms_before: int | None
    episodes_per_1000: float | None
    """On healthy runs, by logged point; None without any."""
    episodes_per_1000_before: float | None


_CAUGHT = frozenset({Verdict.EARLY, Verdict.LATE})


def summary(rows: Sequence[Row]) -> Summary:
    """The figures over all runs that were judged."""
    judged = [row for row in rows if row.verdict is not Verdict.NOT_JUDGED]
    failed = [row for row in judged if row.outcome in FAILED]
    healthy = [row for row in judged if row.outcome is Outcome.HEALTHY]
    leads = [row.lead_steps for row in failed if row.verdict is Verdict.EARLY and row.lead_steps is not None]
    compared = any(row.verdict_before is not None for row in judged)
    points = sum(row.points for row in healthy)
    return Summary(
        failed_runs=len(failed),
        caught=sum(row.verdict in _CAUGHT for row in failed),
        caught_before=sum(row.verdict_before in _CAUGHT for row in failed) if compared else None,
        lead_steps_median=float(median(leads)) if leads else None,
        healthy_runs=len(healthy),
        false_alarms=sum(row.verdict is Verdict.FALSE_ALARM for row in healthy),
        false_alarms_before=sum(row.verdict_before is Verdict.FALSE_ALARM for row in healthy) if compared else None,
        episodes_per_1000=_per_1000(sum(row.counted for row in healthy), points),
        episodes_per_1000_before=_per_1000(sum(row.counted_before or 0 for row in healthy), points) if compared else None,
    )


def _per_1000(episodes: int, points: int) -> float | None:
    return 1000 * episodes / points if points else None
