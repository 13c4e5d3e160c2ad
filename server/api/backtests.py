"""Backtests, for people: what rules would have made of stored runs, and of logs brought along."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from server.domain import backtests as domain
from server.domain.backtests import Backtest, RunsKind, Selection
from server.services import backtests as service
from server.store import backtests as store

from .deps import ID_PATTERN, By, Context, Id, In, Out
from .door import PeopleRoute
from .points import SeriesName, drawn
from .problems import invalid
from .rules import RuleSaid

MAX_LOG_BYTES = 8 << 20
"""All logs of one backtest, as they travel."""
MAX_DAYS = 36_500


class BacktestRoute(PeopleRoute):
    """Takes logs, so its bodies are larger than others."""

    most_bytes: ClassVar[int] = MAX_LOG_BYTES


router = APIRouter(prefix="/api/backtests", route_class=BacktestRoute, tags=["backtests"])


class RunsSaid(BaseModel):
    """Which stored runs: those heard of in the last days, all, some, or none."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal["recent", "all", "picked", "none"] = "none"
    days: Annotated[float, Field(gt=0, le=MAX_DAYS, allow_inf_nan=False)] = 30.0
    run_ids: Annotated[list[Annotated[str, Field(pattern=ID_PATTERN)]], Field(max_length=domain.MOST_RUNS)] = []


class LogSaid(BaseModel):
    """A log of another tool: trainer_state.json, CSV or JSON lines."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Annotated[str, Field(min_length=1, max_length=256)]
    text: str


class NewBacktest(BaseModel):
    """One rule, saved or not, or the whole pack; and what it is tried on."""

    model_config = ConfigDict(extra="forbid")
    rule: RuleSaid | None = None
    rule_id: Annotated[str, Field(pattern=ID_PATTERN)] | None = None
    """The saved rule that it would become, to be compared with."""
    pack: Annotated[bool, Field(strict=True)] = False
    runs: RunsSaid = RunsSaid()
    logs: Annotated[list[LogSaid], Field(max_length=domain.MOST_LOGS)] = []


class BacktestBegun(Out):
    """The job that was made."""

    backtest_id: str


class EpisodeOut(Out):
    """One stretch in which a rule would have fired."""

    rule_id: str
    rule_name: str
    title: str
    series: str
    rank: int
    segment: int
    severity: str
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


class RunReportOut(Out):
    """What the rules would have made of one run or log."""

    run_id: str | None
    log: int | None
    name: str
    project: str
    outcome: Literal["dead", "diverged", "healthy", "unknown"]
    ended_step: int | None
    ended_segment: int | None
    points: int
    losses: int
    verdict: Literal["early", "late", "missed", "false_alarm", "quiet", "not_judged"]
    lead_steps: int | None
    counted: int
    episodes: list[EpisodeOut]
    episodes_total: int
    verdict_before: str | None
    episodes_before: int | None
    problem: str
    series: list[str]


class SummaryOut(Out):
    """All runs together; what ends in `_before` is null where there is no saved rule to compare with."""

    failed_runs: int
    caught: int
    caught_before: int | None
    lead_steps_median: float | None
    healthy_runs: int
    false_alarms: int
    false_alarms_before: int | None
    episodes_per_1000: float | None
    episodes_per_1000_before: float | None


class ResultOut(Out):
    """What came out."""

    summary: SummaryOut
    runs: list[RunReportOut]
    left_out: int


class BacktestOut(Out):
    """A job as it stands."""

    backtest_id: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    done: int
    total: int
    seconds: float
    points: int
    problem: str | None
    created_by: str
    created_at: datetime
    result: ResultOut | None


class Backtests(Out):
    """The jobs asked for last, without their results."""

    backtests: list[BacktestOut]


@router.post("", status_code=202)
def start_backtest(body: NewBacktest, context: In, caller: By) -> BacktestBegun:
    """Start one; read how far it is, and what came out, under its id."""
    if body.rule is None and not body.pack:
        raise invalid("rule", "is missing: give a rule, or say pack for all that are enabled")
    if body.runs.kind == "none" and not body.logs:
        raise invalid("runs", "is none, and there are no logs: nothing to judge")
    now, given = context.now(), None if body.pack or body.rule is None else body.rule.given()
    selection = Selection(RunsKind(body.runs.kind), body.runs.days, tuple(body.runs.run_ids))
    with context.database.reading() as connection:
        request = service.asked(connection, given, body.rule_id, selection, len(body.logs))
        service.refuse_nothing(connection, request, now)
    logs = [(log.name, log.text) for log in body.logs]
    made = context.database.writer.submit(lambda c: service.create(c, request, logs, caller.name, now))
    context.wake_backtests()
    return BacktestBegun(backtest_id=made.backtest_id)


@router.get("")
def list_backtests(context: In, limit: Annotated[int, Query(ge=1, le=domain.MOST_KEPT)] = 20) -> Backtests:
    """The newest jobs, without their results."""
    with context.database.reading() as connection:
        found = store.newest(connection, limit)
    return Backtests(backtests=[backtest_out(context, each) for each in found])


@router.get("/{backtest_id}")
def read_backtest(backtest_id: Id, context: In) -> BacktestOut:
    """How far it is; what came out, once it has succeeded."""
    with context.database.reading() as connection:
        found = service.require(connection, backtest_id)
        result = store.read_result(connection, backtest_id)
    return backtest_out(context, found, result)


@router.delete("/{backtest_id}")
def cancel_backtest(backtest_id: Id, context: In) -> BacktestOut:
    """Cancel it. One that is over stays what it is."""
    now = context.now()
    cancelled = context.database.writer.submit(lambda connection: service.cancel(connection, backtest_id, now))
    context.wake_backtests()
    return backtest_out(context, cancelled)


@router.get(
    "/{backtest_id}/logs/{number}/points",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def read_log_points(
    *,
    backtest_id: Id,
    number: Annotated[int, Path(ge=1, le=domain.MOST_LOGS)],
    context: In,
    series: SeriesName,
    points: Annotated[int, Query(ge=16, le=20_000)] = 1_000,
) -> Response:
    """A curve of a log that was brought along, in the form of a run's."""
    with context.database.reading() as connection:
        trace = service.curve(connection, backtest_id, number, series)
    return drawn(series, 0, (trace,), points)


def backtest_out(context: Context, backtest: Backtest, result: dict[str, Any] | None = None) -> BacktestOut:
    """A job as the API shows it."""
    return BacktestOut(
        backtest_id=backtest.backtest_id,
        state=backtest.state.value,
        done=backtest.done,
        total=backtest.total,
        seconds=backtest.seconds(context.now()),
        points=backtest.points,
        problem=backtest.problem or None,
        created_by=backtest.created_by,
        created_at=backtest.created_at,
        result=None if result is None else ResultOut.model_validate(result),
    )
