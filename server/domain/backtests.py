"""A backtest as a job: what is asked, and how far it has come.

queued -> running -> succeeded | failed | cancelled         queued -> cancelled
running -> queued       its server ends, and another goes on with it
running -> running      its server has died, and another takes it up from the beginning; failed at the third time
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from .backtest_reports import RunReport
from .backtest_verdicts import Summary
from .rules import AlertRule

MOST_RUNS: Final = 2_000
MOST_LOGS: Final = 200
MOST_POINTS: Final = 4_000_000
"""Points of one run that are judged at once: 128 MB, and about a minute."""
MOST_WAITING: Final = 8
"""Jobs that wait or run; another is refused until one of them is over."""
MOST_KEPT: Final = 50
MOST_EPISODES: Final = 20_000
"""In one result, over all runs."""
MOST_ATTEMPTS: Final = 3
DIED_AFTER: Final = timedelta(seconds=15)
"""A server tells of each of its jobs every second; one of which nothing was heard for so long has lost its server."""


class BacktestState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN: Final = frozenset({BacktestState.QUEUED, BacktestState.RUNNING})


class RunsKind(StrEnum):
    """Which stored runs are judged."""

    RECENT = "recent"
    ALL = "all"
    PICKED = "picked"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which stored runs are judged: those heard of in the last `days`, all, those of `run_ids`, or none."""

    kind: RunsKind = RunsKind.NONE
    days: float = 30.0
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked, with the rules as they were at that moment."""

    rules: tuple[AlertRule, ...]
    before: AlertRule | None = None
    of_one_rule: bool = False
    runs: Selection = Selection()
    logs: int = 0
    """How many logs were brought along."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came out. `left_out`: runs that were asked for beyond `MOST_RUNS`, the oldest."""

    summary: Summary
    runs: tuple[RunReport, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Backtest:
    """A job as it stands."""

    backtest_id: str
    state: BacktestState
    request: Request
    done: int
    total: int
    points: int
    problem: str
    created_by: str
    created_at: datetime
    heard_at: datetime
    attempts: int = 0
    taken_by: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    def seconds(self, now: datetime) -> float:
        """How long it has been worked on."""
        if self.started_at is None:
            return 0.0
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())


def episodes_each(runs: int) -> int:
    """How many episodes of each run are listed."""
    return max(5, min(200, MOST_EPISODES // max(runs, 1)))
