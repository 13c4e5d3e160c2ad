"""Backtests: asked for by people, worked on by a server process, read by whoever asks."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import backtests as domain
from server.domain.backtests import Backtest, BacktestState, Request, Result, Selection
from server.domain.imported_logs import BadLog, read_log
from server.domain.rule_changes import made
from server.domain.rule_flaws import WrongRuleError
from server.store import backtest_recordings
from server.store import backtests as store
from server.store import rules as rules_store
from server.store.backtests import Logs
from server.store.points import Trace

from . import backtest_tasks
from .errors import Conflict, Invalid, NotFound

NOT_SAVED = "not-saved"
"""The id of a rule that nobody has saved yet."""


MOST_NAMED = 5
"""Ids of unknown runs that a refusal names."""


def create(connection: Connection, request: Request, logs: Logs, by: str, now: datetime) -> Backtest:
    """A new job, waiting to be taken.

    Raises:
        Conflict: too many wait already.
    """
    if store.count_open(connection) >= domain.MOST_WAITING:
        raise Conflict(f"{domain.MOST_WAITING} backtests wait or run already", "wait until one is done, or cancel one")
    store.prune(connection, domain.MOST_KEPT - 1)
    backtest_id = f"b_{secrets.token_hex(12)}"
    backtest = Backtest(backtest_id, BacktestState.QUEUED, request, 0, 0, 0, "", by, now, now)
    store.add(connection, backtest, logs)
    return backtest


def refuse_nothing(connection: Connection, request: Request, now: datetime) -> None:
    """Refuse what would succeed without having judged anything.

    Raises:
        Invalid: a picked run is not stored, no rule is enabled, or there is neither a run nor a log.
    """
    unknown = backtest_tasks.unknown_runs(connection, request.runs)
    if unknown:
        more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        raise _nothing("runs.run_ids", f"there is no run {', '.join(unknown[:MOST_NAMED])}{more}", "pick runs that are stored")
    if not request.rules:
        raise _nothing("pack", "nothing to judge by: no rule is enabled", "enable one, or give a rule")
    if not request.logs and not backtest_tasks.runs_of(connection, request, now):
        raise _nothing(
            "runs", "nothing to judge: no stored run is among these that the rule is about", "choose others, or give logs"
        )


def _nothing(field: str, why: str, fix: str) -> Invalid:
    return Invalid(f"{field}: {why}", fix, [(field, why)])


def asked(
    connection: Connection, given: Mapping[str, Any] | None, rule_id: str | None, selection: Selection, logs: int
) -> Request:
    """What is asked of one rule, beside the one of its id as it is saved now; or, without a rule, of all that are enabled.

    `given` is parsed JSON, as for a new rule.

    Raises:
        Invalid: the rule is none; its `errors` list all wrong fields.
    """
    if given is None:
        return Request(rules_store.read_rules(connection, enabled_only=True), runs=selection, logs=logs)
    try:
        rule = made(given, rule_id or NOT_SAVED)
    except WrongRuleError as wrong:
        errors = [(flaw.field, flaw.message) for flaw in wrong.flaws]
        raise Invalid(str(wrong), "correct the named fields and send it again", errors) from None
    before = None if rule_id is None else rules_store.read_rule(connection, rule_id)
    return Request((rule,), before, of_one_rule=True, runs=selection, logs=logs)


def require(connection: Connection, backtest_id: str) -> Backtest:
    """The job.

    Raises:
        NotFound: there is none of that id, or not any more.
    """
    found = store.get(connection, backtest_id)
    if found is None:
        fix = f"start it again: the newest {domain.MOST_KEPT} are kept"
        raise NotFound(f"there is no backtest {backtest_id[:80]!r}", fix)
    return found


def cancel(connection: Connection, backtest_id: str, now: datetime) -> Backtest:
    """The job after it was cancelled; one that is over stays what it is."""
    require(connection, backtest_id)
    store.cancel(connection, backtest_id, now)
    return require(connection, backtest_id)


def curve(connection: Connection, backtest_id: str, number: int, series: str) -> Trace:
    """A series of the log of that number, to be drawn.

    Raises:
        NotFound: there is no such backtest, log or series.
    """
    require(connection, backtest_id)
    logs = store.read_logs(connection, backtest_id)
    if not 1 <= number <= len(logs):
        raise NotFound(f"the backtest has no log {number}", f"it has {len(logs)}, numbered from 1")
    try:
        columns = read_log(*logs[number - 1]).columns
    except BadLog as bad:
        raise NotFound(f"nothing of the log can be drawn: {bad}", "correct the log and start again") from None
    if series not in columns:
        raise NotFound(f"the log has no series {series}", f"it has {', '.join(sorted(columns))[:500]}")
    return backtest_recordings.trace_of(*columns[series][1:])


# --- the work on a job ---


def take(connection: Connection, worker: str, now: datetime) -> Backtest | None:
    """A job for a server process, or None. One that has killed its server too often is ended instead."""
    while (taken := store.take(connection, worker, now, now - domain.DIED_AFTER)) is not None:
        if taken.attempts <= domain.MOST_ATTEMPTS:
            return taken
        problem = (
            f"The server ended {domain.MOST_ATTEMPTS} times while it worked on this: ask for fewer runs, or look into its log"
        )
        end(connection, taken.backtest_id, worker, BacktestState.FAILED, now, problem=problem)
    return None


def take_over(connection: Connection, now: datetime) -> None:
    """The only server process of a database has just started: whoever worked on a job is gone."""
    store.orphan(connection, now - 2 * domain.DIED_AFTER)


def end(
    connection: Connection,
    backtest_id: str,
    worker: str,
    state: BacktestState,
    now: datetime,
    *,
    problem: str = "",
    result: Result | None = None,
) -> bool:
    """Write down how a job ended; False when it is not the worker's any more."""
    values: dict[str, Any] = {"state": state.value, "ended_at": now, "heard_at": now, "problem": problem}
    if result is not None:
        values |= {
            "result": store.as_result(result),
            "done": len(result.runs),
            "points": sum(each.points for each in result.runs),
        }
    return store.save(connection, backtest_id, worker, values)


def release(connection: Connection, backtest_id: str, worker: str, now: datetime) -> None:
    """Leave a job to the next server process: this one ends, which is no fault of the job."""
    values: dict[str, Any] = {"state": BacktestState.QUEUED.value, "taken_by": None, "heard_at": now, "attempts": 0}
    store.save(connection, backtest_id, worker, values)
