"""What a worker process does: one run, or one log that was brought along, judged by the rules that are asked about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from server.domain import backtests as domain
from server.domain.backtest import Recording
from server.domain.backtest_reports import Question, RunReport, in_order, not_judged, report
from server.domain.backtest_verdicts import Ended, summary
from server.domain.backtests import Backtest, Request, Result, RunsKind, Selection
from server.domain.imported_logs import BadLog, read_log
from server.domain.judging import Judging
from server.domain.rules import AlertRule, Scope
from server.store import backtest_recordings
from server.store import backtests as store
from server.store import runs as run_store
from server.store.backtest_recordings import TooManyPoints
from server.store.runs import Run


@dataclass(frozen=True, slots=True)
class Task:
    """One run, or the log of that number, to judge."""

    name: str
    run_id: str | None = None
    log: int | None = None


def tasks_of(connection: Connection, backtest: Backtest, now: datetime) -> tuple[list[Task], int]:
    """What is to be judged, and how many runs are left out because there are too many."""
    request = backtest.request
    chosen = runs_of(connection, request, now)
    tasks = [Task(run.name, run_id=run.run_id) for run in chosen[: domain.MOST_RUNS]]
    logs = store.read_logs(connection, backtest.backtest_id)
    tasks += [Task(name, log=number) for number, (name, _) in enumerate(logs, 1)]
    return tasks, max(0, len(chosen) - domain.MOST_RUNS)


def runs_of(connection: Connection, request: Request, now: datetime) -> list[Run]:
    """The stored runs that are asked for and that a rule is about."""
    return [run for run in _chosen(connection, request.runs, now) if _covers(request.rules, run)]


def unknown_runs(connection: Connection, selection: Selection) -> list[str]:
    """The picked ids that no stored run has."""
    if selection.kind is not RunsKind.PICKED:
        return []
    known = {run.run_id for run in run_store.list_all(connection)}
    return [run_id for run_id in selection.run_ids if run_id not in known]


def _chosen(connection: Connection, selection: Selection, now: datetime) -> Sequence[Run]:
    if selection.kind is RunsKind.NONE:
        return ()
    found = run_store.list_all(connection)
    if selection.kind is RunsKind.PICKED:
        picked = set(selection.run_ids)
        return [run for run in found if run.run_id in picked]
    if selection.kind is RunsKind.RECENT:
        since = now - timedelta(days=selection.days)
        return [run for run in found if run.heard_at >= since]
    return found


def _covers(rules: tuple[AlertRule, ...], run: Run) -> bool:
    """A run that no rule is about is not asked for."""
    return any(rule.scope.covers(run.run_id, run.project) for rule in rules)


def question_of(request: Request, tasks: int) -> Question:
    """What is asked of each run. A rule that is off is asked all the same: that is what a backtest is for."""
    enabled = tuple(replace(rule, enabled=True) for rule in request.rules)
    before = None if request.before is None else replace(request.before, enabled=True)
    return Question(enabled, before, request.of_one_rule, domain.episodes_each(tasks))


@dataclass(frozen=True, slots=True)
class Read:
    """A run as it was read: the points, or what is to be said of it without."""

    name: str
    recording: Recording | None = None
    ended: Ended | None = None
    known: RunReport | None = None

    def report(self, question: Question, now: datetime) -> RunReport:
        """What is said of it. Reads nothing, so that no transaction is open while it is judged."""
        if self.recording is None:
            return self.known or not_judged("nothing was read", name=self.name)
        return report(self.recording, self.ended or Ended(), question, now, name=self.name)


def read_run(connection: Connection, run_id: str, question: Question) -> Read:
    """What is stored of a run, as far as the rules look at it."""
    run = run_store.get(connection, run_id)
    if run is None:
        return Read(run_id, known=not_judged("it is not stored any more", name=run_id, run_id=run_id))
    rules = question.rules if question.before is None else (*question.rules, question.before)
    concerns = Judging(run.run_id, run.project, 0, rules).concerns
    try:
        recording, ended = backtest_recordings.read_recording(connection, run, concerns, domain.MOST_POINTS)
    except TooManyPoints as reason:
        return Read(run.name, known=not_judged(str(reason), name=run.name, run_id=run.run_id, project=run.project))
    return Read(run.name, recording, ended)


def judge_log(name: str, text: str, number: int, question: Question, now: datetime) -> RunReport:
    """What is said of a log that was brought along. It lies in no project, so no rule's scope leaves it out."""
    try:
        log = read_log(name, text)
    except BadLog as bad:
        return not_judged(str(bad), name=name, log=number)
    if log.points > domain.MOST_POINTS:
        why = f"it holds {log.points:,} points; at most {domain.MOST_POINTS:,} are judged at once"
        return not_judged(why, name=name, log=number)
    everywhere = tuple(replace(rule, scope=Scope()) for rule in question.rules)
    before = None if question.before is None else replace(question.before, scope=Scope())
    asked = replace(question, rules=everywhere, before=before)
    return report(log.recording(f"log-{number}"), Ended(finished=True), asked, now, name=name, log=number)


def result_of(reports: Mapping[int, RunReport], left_out: int) -> Result:
    """What came out of all tasks, by their number."""
    found = [reports[number] for number in sorted(reports)]
    return Result(summary([each.row for each in found]), tuple(in_order(found)), left_out)
