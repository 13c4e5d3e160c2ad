"""What a backtest says of one run, and of all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import Severity

from . import wording
from .alerts import Alert
from .backtest import Recording, by_step, replay
from .backtest_verdicts import Ended, LossCurve, Outcome, Row, Verdict, counted, outcome, verdict
from .detectors.absence import ABSENCES
from .rules import AlertRule

MOST_NAMED: Final = 20
"""Series that are named where a rule matches none."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One stretch in which a rule would have fired: from `firing_step` to `resolved_step` (None: to the end of its segment)."""

    rule_id: str
    rule_name: str
    title: str
    series: str
    rank: int
    segment: int
    severity: Severity
    trial: bool
    onset_step: int
    firing_step: int
    resolved_step: int | None
    closed_because: str | None
    value: float
    limit: float | None
    detector: str
    evidence: dict[str, float]
    text: str
    texts: dict[str, str]
    """The same in each language."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What the rules would have made of one run or log. `log` is the number of the log, from 1; None for a stored run."""

    run_id: str | None
    log: int | None
    name: str
    project: str
    outcome: Outcome
    ended_step: int | None
    ended_segment: int | None
    points: int
    """All points that were judged."""
    losses: int
    verdict: Verdict
    lead_steps: int | None
    counted: int
    """Episodes that the verdict looks at: of a pack those that would have paged somebody, of one rule all."""
    episodes: tuple[Episode, ...] = ()
    """The first ones; `episodes_total` says how many there are."""
    episodes_total: int = 0
    verdict_before: Verdict | None = None
    episodes_before: int | None = None
    problem: str = ""
    """Why it, or a part of it, could not be judged."""
    series: tuple[str, ...] = field(default=())
    """What can be drawn of a log. Empty for a stored run, whose page knows."""

    @property
    def row(self) -> Row:
        """What the summary needs."""
        return Row(
            self.outcome,
            self.verdict,
            self.lead_steps,
            self.losses or self.points,
            self.counted,
            self.verdict_before,
            self.episodes_before,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of each run: the rules, and the one as it is saved now where there is something to compare with.

    `of_one_rule`: it is about one rule, whose every episode counts, whatever its severity.
    """

    rules: tuple[AlertRule, ...]
    before: AlertRule | None = None
    of_one_rule: bool = False
    most_episodes: int = 200


def report(
    recording: Recording,
    ended: Ended,
    question: Question,
    now: datetime,
    *,
    name: str,
    log: int | None = None,
) -> RunReport:
    """Judge a run by the rules, and say what that is worth."""
    curves = loss_curves(recording)
    found = outcome(ended, curves)
    replayed = replay(recording, question.rules, now)
    alerts = replayed.alerts
    counting = counted(alerts, of_one_rule=question.of_one_rule)
    unmatched = _unmatched(recording, question)
    reached, lead = verdict(found, counting, curves) if not unmatched else (Verdict.NOT_JUDGED, None)
    before = None if question.before is None else replay(recording, (question.before,), now).alerts
    return RunReport(
        run_id=recording.run_id if log is None else None,
        log=log,
        name=name,
        project=recording.project,
        outcome=found.outcome,
        ended_step=found.step,
        ended_segment=found.segment if found.step is not None else None,
        points=sum(len(column.step) for column in recording.columns),
        losses=sum(len(curve.steps) for curve in curves),
        verdict=reached,
        lead_steps=lead,
        counted=len(counting),
        episodes=tuple(map(_episode, alerts[: question.most_episodes])),
        episodes_total=len(alerts),
        verdict_before=None if before is None else verdict(found, before, curves)[0],
        episodes_before=None if before is None else len(before),
        problem=unmatched
        or "; ".join(
            f"the rule {each.rule.name} judges no more from step {each.point.step} on: {each.text}" for each in replayed.failures
        ),
        series=tuple(sorted({column.series for column in recording.columns})) if log is not None else (),
    )


def _unmatched(recording: Recording, question: Question) -> str:
    """Why the one rule that is asked about sees no point of the run; empty where it sees some. Of a pack many see none."""
    if not question.of_one_rule:
        return ""
    known = sorted({column.series for column in recording.columns} | set(recording.unread))
    rules = question.rules
    if any(rule.watches(name) for rule in rules for name in known):
        return ""
    if all(rule.detector in ABSENCES for rule in rules):
        return "rules on absence go by the server's clock and are not judged again"
    asked = ", ".join(rule.series for rule in rules)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return f"no series {asked}; there are {', '.join(known[:MOST_NAMED])}{more}" if known else f"no series {asked}, nor any other"


def not_judged(why: str, *, name: str, run_id: str | None = None, project: str = "", log: int | None = None) -> RunReport:
    """A run of which nothing can be said, and why."""
    return RunReport(run_id, log, name, project, Outcome.UNKNOWN, None, None, 0, 0, Verdict.NOT_JUDGED, None, 0, problem=why)


def loss_curves(recording: Recording) -> list[LossCurve]:
    """The loss of each segment of rank 0, in the order of the segments."""
    mine = [column for column in recording.columns if column.series == series.LOSS and column.rank == 0]
    norms = [column for column in recording.columns if column.series == series.GRAD_NORM and column.rank == 0]
    curves = []
    for segment in sorted({column.segment for column in mine}):
        points = by_step(column for column in mine if column.segment == segment)
        beside = {point.step: point.value for point in by_step(each for each in norms if each.segment == segment)}
        curves.append(LossCurve(segment, [point.step for point in points], [point.value for point in points], beside))
    return curves


def _episode(alert: Alert) -> Episode:
    assert alert.firing_step is not None
    return Episode(
        rule_id=alert.rule_id,
        rule_name=alert.rule_name,
        title=alert.title,
        series=alert.series,
        rank=alert.rank,
        segment=alert.segment,
        severity=alert.severity,
        trial=alert.trial,
        onset_step=alert.onset_step,
        firing_step=alert.firing_step,
        resolved_step=alert.resolved_step,
        closed_because=None if alert.closed_because is None else alert.closed_because.value,
        value=alert.value,
        limit=alert.limit,
        detector=alert.detector,
        evidence=dict(alert.evidence),
        text=alert.text,
        texts=wording.texts(alert),
    )


def in_order(reports: Iterable[RunReport]) -> Sequence[RunReport]:
    """As people read them: what went wrong first, the longest lead first; then false alarms; then what was quiet."""
    places = {verdict: place for place, verdict in enumerate(_PLACES)}
    return sorted(reports, key=lambda each: (places[each.verdict], -(each.lead_steps or 0), each.name, each.log or 0))


_PLACES = (Verdict.EARLY, Verdict.LATE, Verdict.MISSED, Verdict.FALSE_ALARM, Verdict.NOT_JUDGED, Verdict.QUIET)
