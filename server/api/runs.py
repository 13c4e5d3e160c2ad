"""Runs, for people: the list, and one run with all that its page shows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from server.domain.alerts import Alert
from server.domain.commands import IssuedCommand
from server.domain.countdowns import BREAKER_RULE_ID, Countdown
from server.domain.events import EventType
from server.domain.runs import ENDED
from server.services import checkpoints as checkpoints_service
from server.services.alert_words import Teller
from server.services.errors import NotFound
from server.store import alerts, checkpoints, commands, countdowns, events, incidents, segments, summaries
from server.store import runs as store
from server.store.commands import Change
from server.store.runs import Run
from server.store.summaries import Summary
from trainer_agent.wire import series as names
from trainer_agent.wire.codec import number_from_json
from trainer_agent.wire.vocabulary import AlertState, Severity

from .alerts import AlertOut, alert_out
from .checkpoints import CheckpointOut, ProposalOut, checkpoint_out, proposal_out
from .commands import CommandOut, CountdownOut, command_out, countdown_out
from .deps import In, Out, RunId
from .door import PeopleRoute
from .events import EventOut, event_out
from .holds import HoldOut, hold_out
from .incidents import IncidentOut, Shown
from .segments import SegmentOut, segment_out

router = APIRouter(prefix="/api/runs", route_class=PeopleRoute, tags=["runs"])

MOST_ALERTS = 200
MOST_EVENTS = 100
MOST_CHECKS = 500

_LOUDNESS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_SPEAKING = frozenset({AlertState.FIRING, AlertState.RECOVERING})
"""An alert that recovers still counts: `keep_firing_for` says how long."""


class LastValue(Out):
    """The newest value of a series."""

    value: float
    step: int | None


class SaveFailureOut(Out):
    """The last save that failed, as long as no later one has succeeded."""

    segment: int
    step: int
    at: datetime
    reason: str


class Stalled(Out):
    """A run that is heard of and makes no step: since when, and how long it may take."""

    since: datetime
    limit_seconds: float


class RunAlerts(Out):
    """How many alerts of a run are firing, and the worst of them."""

    firing: int
    worst: AlertOut | None


class _Run(Out):
    """What list and page both show."""

    run_id: str
    project: str
    name: str
    state: str
    state_reason: str
    step: int | None
    total_steps: int | None
    segment: int
    host: str
    integration: str
    attributes: dict[str, Any]
    created_at: datetime
    heard_at: datetime
    ended_at: datetime | None
    phase: str | None
    latest: dict[str, LastValue]
    sparkline: list[float]
    countdown: CountdownOut | None
    command: CommandOut | None
    waiting_command: CommandOut | None
    save_failure: SaveFailureOut | None
    hold: HoldOut | None
    stalled: Stalled | None
    revision: int


class RunSummary(_Run):
    """A run as the list shows it."""

    alerts: RunAlerts


class SeriesSummary(Out):
    """What is known of a series without reading its points."""

    series: str
    unit: str
    count: int
    nonfinite_count: int
    first_nonfinite_step: int | None
    min: float | None
    max: float | None
    last: LastValue


class RunDetail(_Run):
    """A run as its page shows it."""

    incarnation: str
    capabilities: list[str]
    incapable_because: str
    data_modes: list[str]
    data_modes_because: str
    automatic_rollback: bool
    world_size: int
    dropped_records: int
    segments: list[SegmentOut]
    checkpoints: list[CheckpointOut]
    alerts: list[AlertOut]
    incident: IncidentOut | None
    commands: list[CommandOut]
    series: list[SeriesSummary]
    proposal: ProposalOut
    events: list[EventOut]


class Runs(Out):
    """All runs."""

    runs: list[RunSummary]


@dataclass(frozen=True, slots=True)
class _About:
    """What is known of some runs beside their own rows, by run: as many queries for all of them as for one."""

    summaries: Mapping[str, Sequence[Summary]]
    lines: Mapping[str, Sequence[float]]
    countdowns: Mapping[str, Countdown]
    commands: Mapping[str, IssuedCommand]
    waiting: Mapping[str, IssuedCommand]
    histories: Mapping[str, tuple[Change, ...]]
    """By command."""
    stalls: Mapping[str, Alert]

    @classmethod
    def read(cls, connection: Connection, run_ids: Collection[str]) -> "_About":
        in_line = commands.in_line(connection, run_ids)
        return cls(
            summaries.read_summaries(connection, run_ids),
            summaries.read_sparklines(connection, run_ids),
            countdowns.active_countdowns(connection, run_ids),
            {each.run_id: each for each in in_line if each.behind is None},
            {each.run_id: each for each in in_line if each.behind is not None},
            commands.read_histories(connection, {each.run_id for each in in_line}),
            alerts.stalls(connection, run_ids),
        )

    def shown(self, command: IssuedCommand | None) -> CommandOut | None:
        """A command with its history; None for none."""
        return None if command is None else command_out(command, self.histories.get(command.command_id, ()))


@router.get("")
def list_runs(context: In) -> Runs:
    """All runs, those that are running first, then by when they were heard of."""
    now = context.now()
    with context.database.reading() as connection:
        found = store.list_all(connection)
        about = _About.read(connection, [run.run_id for run in found])
        unsettled: dict[str, list[Alert]] = {}
        for alert in alerts.unsettled(connection):
            unsettled.setdefault(alert.run_id, []).append(alert)
    return Runs(
        runs=[RunSummary(**_fields(run, about, now), alerts=_troubles(run, unsettled.get(run.run_id, ()))) for run in found]
    )


@router.get("/{run_id}")
def read_run(run_id: RunId, context: In) -> RunDetail:
    """One run with all that its page shows."""
    with context.database.reading() as connection:
        run = store.get(connection, run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}", "open the list of runs")
        return RunDetail(**_detail(connection, run, context.now()))


def _detail(connection: Connection, run: Run, now: datetime) -> dict[str, Any]:
    run_id, about = run.run_id, _About.read(connection, [run.run_id])
    stretches, saved = segments.read_segments(connection, run_id), checkpoints.read_checkpoints(connection, run_id)
    from_steps = {each.segment: each.from_step for each in stretches}
    proposal = checkpoints_service.proposal(saved, alerts.open_alerts(connection, run_id), from_steps)
    histories = commands.read_histories(connection, [run_id])
    given = commands.read_commands(connection, run_id)
    incident, teller = incidents.open_incident(connection, run_id), Teller(connection, run_id, now)
    checked = events.newest(connection, run_id, (EventType.RUN_RESUME_CHECKED,), limit=MOST_CHECKS)
    checks = {each.event.segment: list(each.event.data.get("findings", ())) for each in reversed(checked)}
    return {
        **_fields(run, about, now),
        "incarnation": store.newest_incarnation(connection, run_id) or "",
        "capabilities": [kind.value for kind in run.capabilities],
        "incapable_because": run.incapable_because,
        "data_modes": [mode.value for mode in run.data_modes],
        "data_modes_because": run.data_modes_because,
        "automatic_rollback": run.automatic_rollback,
        "world_size": run.world_size,
        "dropped_records": run.dropped_records,
        "segments": [segment_out(each, checks.get(each.segment)) for each in stretches],
        "checkpoints": [checkpoint_out(each, proposal, from_steps) for each in saved],
        "alerts": [alert_out(each, run.name, teller) for each in alerts.read_alerts(connection, run_id, limit=MOST_ALERTS)],
        "incident": None if incident is None else Shown(connection, [run_id], now).out(incident),
        "commands": [command_out(each, histories.get(each.command_id, ())) for each in given],
        "series": [series_out(each) for each in about.summaries.get(run_id, ())],
        "proposal": proposal_out(proposal, run.data_modes),
        "events": [event_out(each) for each in events.newest(connection, run_id, limit=MOST_EVENTS)],
    }


def _fields(run: Run, about: _About, now: datetime) -> dict[str, Any]:
    """What list and page both show of a run."""
    countdown = about.countdowns.get(run.run_id)
    return {
        "run_id": run.run_id,
        "project": run.project,
        "name": run.name,
        "state": run.state.value,
        "state_reason": run.state_reason,
        "step": run.step,
        "total_steps": run.total_steps,
        "segment": run.segment,
        "host": run.host,
        "integration": run.integration,
        "attributes": run.attributes,
        "created_at": run.created_at,
        "heard_at": run.heard_at,
        "ended_at": run.ended_at,
        "phase": None if run.phase is None else run.phase.value,
        "latest": _latest(run, about.summaries.get(run.run_id, ())),
        "sparkline": list(about.lines.get(run.run_id, ())),
        "countdown": None if countdown is None else countdown_out(countdown, now),
        "command": about.shown(about.commands.get(run.run_id)),
        "waiting_command": about.shown(about.waiting.get(run.run_id)),
        "save_failure": None if run.save_failure is None else SaveFailureOut(**run.save_failure),
        "hold": hold_out(run.hold, now),
        "stalled": _stalled(about.stalls.get(run.run_id)),
        "revision": run.revision,
    }


def _stalled(alert: Alert | None) -> Stalled | None:
    return None if alert is None else Stalled(since=alert.onset_at, limit_seconds=alert.limit or 0.0)


def _latest(run: Run, known: Iterable[Summary]) -> dict[str, LastValue]:
    """The newest stored values, and over them those of the last heartbeat: while a backlog drains they are ahead.

    After a rollback the steps of a backlog are the higher ones and yet the older, so the segment counts first.
    """
    places = {each.series: (each.last_segment, each.last_step) for each in known}
    latest = {each.series: LastValue(value=each.last_value, step=each.last_step) for each in known}
    for name, each in run.latest.items():
        place = each.get("segment", run.segment), each["step"] or 0  # a row of an earlier version has no segment
        if name not in places or place > places[name]:
            latest[name] = LastValue(value=number_from_json(each["value"]), step=each["step"])
    return latest


def _troubles(run: Run, unsettled: Iterable[Alert]) -> RunAlerts:
    """How many alerts fire, and the worst of them; of a run that has ended, the worst that its end cut off. None on trial."""
    told = [alert for alert in unsettled if not alert.trial]
    firing = [alert for alert in told if alert.state in _SPEAKING]
    cut_off = [alert for alert in told if alert.resolved_at == run.ended_at and alert.severity is not Severity.INFO]
    speaking = cut_off if run.state in ENDED else firing
    worst = max(speaking, key=_gravity, default=None)
    return RunAlerts(firing=len(firing), worst=None if worst is None else alert_out(worst, run.name))


def _gravity(alert: Alert) -> tuple[int, bool, int]:
    """The gravest first, then what is wrong before that nothing was done about it, then the earliest."""
    return _LOUDNESS[alert.severity], alert.rule_id != BREAKER_RULE_ID, -alert.onset_step


def series_out(summary: Summary) -> SeriesSummary:
    """A summary as the API shows it."""
    return SeriesSummary(
        series=summary.series,
        unit=names.unit(summary.series),
        count=summary.count,
        nonfinite_count=summary.nonfinite_count,
        first_nonfinite_step=summary.first_nonfinite_step,
        min=summary.minimum,
        max=summary.maximum,
        last=LastValue(value=summary.last_value, step=summary.last_step),
    )
