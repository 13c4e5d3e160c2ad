"""What the default rules see and what they cry wolf at, on labelled training logs, judged exactly as the server judges.

    python -m benchmarks.detection --corpus DIR

- plain: the default pack as it is, on all runs.
- left out: for each repository the thresholds are chosen on the runs of all others, among a small grid around the defaults, and
  judged on its own. The choice is always the same: the most runs seen soon after their fatal point, averaged by repository,
  among the settings with at most `EPISODES` episodes on randomly drawn healthy runs; then the fewest episodes on healthy runs;
  then the settings nearest to the defaults. What the rules *are* was still decided with all repositories in view.
- info: the rules that are shown and page nobody, as if they did.
- curve: recall against false alarms, with all thresholds of the statistical rules wider or narrower.

A run that was missed is listed with the widest narrowing on that curve at which it would have been seen in time.
"""

import math
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks._harness import Bar, at_least, at_most, finish, parser, say
from benchmarks._labelled_logs import HEALTHY, Corpus, Logged, Outcome, Run, Score, load, score, watch
from server.domain.default_rules import DEFAULT_RULES
from server.domain.detectors.base import DetectorKind
from server.domain.judging import Judging
from server.domain.points import Point
from server.domain.rules import AlertRule, settings_of
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import AlertState, Severity

COLUMNS: Final = {
    "loss": series.LOSS,
    "grad_norm": series.GRAD_NORM,
    "learning_rate": series.LEARNING_RATE,
    "loss_scale": series.LOSS_SCALE,
}
IN_ORDER: Final = sorted((name, column) for column, name in COLUMNS.items())
"""Points of one step come in the order of their series' names, as the agent sends them."""

EPISODES: Final = 1
RATIOS: Final = (0.75, 1.0, 1.33)
SPREADS: Final = (0.67, 1.0, 1.5)
CURVE: Final = (0.4, 0.55, 0.75, 1.0, 1.33, 1.8, 2.5)
QUICK_CURVE: Final = (0.55, 1.0, 1.8)

STATISTICAL: Final = frozenset({DetectorKind.SPIKE, DetectorKind.DIVERGENCE, DetectorKind.RAMP})
SCALED_RATIOS: Final = ("times", "alone_times", "start_times", "young_times")


class Pack:
    """Rules at their posts on one run. `feed` names those that fire at `least` severity or above, after the point."""

    def __init__(self, rules: Iterable[AlertRule], severities: Iterable[Severity]) -> None:
        self._judging = Judging("run", "", 0, rules)
        self._severities, self._seq, self._firing = frozenset(severities), 0, dict[str, Severity]()

    def feed(self, step: float, logged: Logged) -> list[str]:
        """Judge what was logged at a step. Keys: `loss`, `grad_norm`, `learning_rate`, `loss_scale`, as far as logged."""
        self._seq += 1
        for name, column in IN_ORDER:
            if column in logged:
                for change in self._judging.judge(Point(name, 1, 0, self._seq, int(step), 0.0, logged[column])):
                    if change.outcome.after is AlertState.FIRING:
                        self._firing[change.rule.rule_id] = change.rule.severity
                    else:
                        self._firing.pop(change.rule.rule_id, None)
        return [rule_id for rule_id, severity in self._firing.items() if severity in self._severities]


PAGING: Final = (Severity.WARNING, Severity.CRITICAL)


class DefaultPack(Pack):
    """The default rules; `feed` names what fires at `warning` or above."""

    def __init__(self) -> None:
        super().__init__(DEFAULT_RULES, PAGING)


class InfoPack(Pack):
    """The default rules; `feed` names what only the page shows."""

    def __init__(self) -> None:
        super().__init__(DEFAULT_RULES, (Severity.INFO,))


@dataclass(frozen=True, slots=True)
class Scale:
    """How much wider than by default the statistical rules are: their ratios (the part above 1) and their spreads."""

    ratios: float = 1.0
    spreads: float = 1.0

    @property
    def distance(self) -> float:
        """How far from the defaults."""
        return abs(math.log(self.ratios)) + abs(math.log(self.spreads))

    def of(self, rule: AlertRule) -> AlertRule:
        """The rule at this scale."""
        if rule.detector not in STATISTICAL:
            return rule
        settings = settings_of(rule)
        for name in SCALED_RATIOS:
            if settings.get(name, 0.0) > 1:
                settings[name] = 1 + (settings[name] - 1) * self.ratios
        return replace(rule, settings=settings | {"spreads": settings["spreads"] * self.spreads})


def main() -> int:
    """The benchmark. Exit status 1 when a bar is missed, 2 when there is no corpus."""
    options = _options()
    try:
        runs = load(options.corpus)
    except Corpus as problem:
        say(str(problem))
        return 2
    say(f"{len(runs)} runs, {sum(len(run.points) for run in runs)} logged points")
    plain, seconds = _timed(runs, options.repeat)
    results = _results(runs, plain, CURVE if not options.quick else QUICK_CURVE, quick=options.quick)
    microseconds = 1e6 * seconds / sum(len(run.points) for run in runs)
    results["microseconds_per_point"] = microseconds
    return finish("detection", options, results, [*_bars(score(plain)), at_most("us per logged point", microseconds, 50)])


def _options() -> Namespace:
    made = parser("detection", "What the default rules see and cry wolf at, on labelled training logs.")
    made.add_argument("--corpus", type=Path, required=True, help="folder with index.csv and runs/")
    made.add_argument("--repeat", type=int, default=2, help="passes over the corpus that the time is the best of")
    return made.parse_args()


def _timed(runs: Sequence[Run], repeat: int) -> tuple[list[Outcome], float]:
    """The default pack's outcomes, and the processor seconds of the fastest pass: others may use the machine meanwhile."""
    seconds, outcomes = math.inf, list[Outcome]()
    for _ in range(max(1, repeat)):
        begin = time.process_time()
        outcomes = [watch(DefaultPack, run) for run in runs]
        seconds = min(seconds, time.process_time() - begin)
    return outcomes, seconds


def _results(runs: Sequence[Run], plain: Sequence[Outcome], curve: Sequence[float], *, quick: bool) -> dict[str, Any]:
    by_scale = {Scale(): list(plain)}

    def at(scale: Scale) -> list[Outcome]:
        if scale not in by_scale:
            say(f"thresholds at ratios x{scale.ratios:g}, spreads x{scale.spreads:g}")
            by_scale[scale] = _outcomes(runs, scale)
        return by_scale[scale]

    joint = {factor: at(Scale(factor, factor)) for factor in curve}
    grid = [Scale()] if quick else [Scale(ratios, spreads) for ratios in RATIOS for spreads in SPREADS]
    chosen, left_out = _left_out({scale: at(scale) for scale in grid})
    return {
        "plain": _told(score(plain)),
        "left_out": {"grid": len(grid), "settings_chosen": _counted(chosen.values())} | _told(score(left_out)),
        "info": _told(score([watch(InfoPack, run) for run in runs])),
        "curve": {f"x{factor:g}": _short(score(outcomes)) for factor, outcomes in joint.items()},
        "missed": _missed(plain, joint),
        "missed_left_out": _missed(left_out, joint),
        "false_alarms": _false_alarms(plain),
    }


def _outcomes(runs: Sequence[Run], scale: Scale) -> list[Outcome]:
    rules = [scale.of(rule) for rule in DEFAULT_RULES if rule.severity in PAGING]
    return [watch(lambda: Pack(rules, PAGING), run) for run in runs]


def _left_out(by_scale: Mapping[Scale, Sequence[Outcome]]) -> tuple[dict[str, Scale], list[Outcome]]:
    """For each repository the scale chosen without it, and the outcomes of its runs at that scale."""
    chosen, outcomes = dict[str, Scale](), list[Outcome]()
    for repository in sorted({each.run.repository for each in next(iter(by_scale.values()))}):
        others = {scale: [each for each in all_of if each.run.repository != repository] for scale, all_of in by_scale.items()}
        scale = min(others, key=lambda each: _worth(each, others[each]))
        chosen[repository] = scale
        outcomes += [each for each in by_scale[scale] if each.run.repository == repository]
    return chosen, outcomes


def _worth(scale: Scale, outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """What the choice is made by; the least is the best."""
    seen: dict[str, list[bool]] = {}
    for each in outcomes:
        if each.run.label != HEALTHY:
            seen.setdefault(each.run.repository, []).append(each.soon)
    recall = sum(sum(each) / len(each) for each in seen.values()) / max(1, len(seen))
    summed = score(outcomes)
    return max(summed.random_episodes, EPISODES), -round(recall, 9), summed.healthy_episodes, scale.distance


def _counted(scales: Iterable[Scale]) -> str:
    told = [f"ratios x{each.ratios:g} spreads x{each.spreads:g}" for each in scales]
    return ", ".join(f"{each}: {told.count(each)}" for each in dict.fromkeys(told))


def _told(summed: Score) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in asdict(summed).items()}


def _short(summed: Score) -> dict[str, Any]:
    classes = {name: summed.classes[name]["soon_after"] for name in ("exploded", "spike_recovered")}
    return classes | {
        "ever_but_plateaus": summed.ever_but_plateaus,
        "recall_by_repository": summed.recall_by_repository,
        "random_episodes": summed.random_episodes,
        "healthy_episodes": summed.healthy_episodes,
    }


def _missed(outcomes: Sequence[Outcome], joint: Mapping[float, Sequence[Outcome]]) -> dict[str, str]:
    """What was not seen soon after the fatal point, and what it would have taken."""
    return {
        each.run.run_id: _why(each, [factor for factor, others in joint.items() if _at(others, each.run).soon])
        for each in outcomes
        if each.run.label != HEALTHY and not each.soon
    }


def _at(outcomes: Sequence[Outcome], run: Run) -> Outcome:
    return next(each for each in outcomes if each.run.run_id == run.run_id)


def _why(missed: Outcome, factors: Sequence[float]) -> str:
    run = missed.run
    taken = f"seen with thresholds x{max(factors):g}" if factors else "not seen with any thresholds tried"
    later = "seen later" if missed.ever else "never seen"
    note = f"; {run.note}" if run.note else ""
    return f"{run.label}, onset {run.onset}, fatal {run.fatal} of {len(run.points)}, {later}; {taken}{note} ({run.repository})"


def _false_alarms(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {each.run.run_id: _alarm(each) for each in outcomes if each.run.label == HEALTHY and each.episodes}


def _alarm(outcome: Outcome) -> str:
    run = outcome.run
    return f"{outcome.episodes} in {len(run.points)} points: {', '.join(outcome.names)}; {run.draw} ({run.repository})"


def _bars(plain: Score) -> list[Bar]:
    classes = plain.classes
    return [
        at_least("NaN, in time", classes["diverged_nan"]["in_time"], 1.0),
        at_least("all zero, in time", classes["collapsed_zero"]["in_time"], 1.0),
        at_least("exploded, within 10 points after fatal", classes["exploded"]["soon_after"], 0.85),
        at_least("spikes, within 10 points after the peak", classes["spike_recovered"]["soon_after"], 0.90),
        at_least("unhealthy but plateaus, ever", plain.ever_but_plateaus, 0.95),
        at_least("in time, averaged by repository", plain.recall_by_repository, 0.85),
        at_most("episodes on random healthy runs", plain.random_episodes, EPISODES),
    ]


if __name__ == "__main__":
    sys.exit(main())
