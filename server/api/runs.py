"""Runs, for people: the list, and one run with all that its page shows."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection

from server.domain import checkpoints as checkpoints_domain
from server.domain.alerts import Alert
from server.services import checkpoints as checkpoints_service
from server.services.checkpoints import Proposal
from server.services.errors import NotFound
from server.store import alerts, checkpoints, commands, countdowns, events, segments, summaries
from server.store import runs as store
from server.store.checkpoints import Checkpoint
from server.store.events import StoredEvent
from server.store.runs import Run
from server.store.segments import Segment
from server.store.summaries import Summary
from trainer_agent.wire import series as names
from trainer_agent.wire.codec import number_from_json
from trainer_agent.wire.vocabulary import AlertState, Severity

from .alerts import AlertOut, alert_out
from .commands import CommandOut, CountdownOut, command_out, countdown_out
from .deps import In, RunId
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs", route_class=PeopleRoute, tags=["runs"])

MOST_ALERTS = 200
MOST_EVENTS = 100

_LOUDNESS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_SPEAKING = frozenset({AlertState.FIRING, AlertState.RECOVERING})
"""An alert that recovers still counts: `keep_firing_for` says how long."""


class Out(BaseModel):
    """What all answers here have in common: numbers that are not finite are the strings of docs/api.md."""

    model_config = ConfigDict(ser_json_inf_nan="strings")


class LastValue(Out):
    """The newest value of a series."""

    value: float
    step: int | None


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
    revision: int


class RunSummary(_Run):
    """A run as the list shows it."""

    alerts: RunAlerts


class SegmentOut(Out):
    """A stretch of the run between starts or rollbacks."""

    segment: int
    from_step: int
    last_step: int | None
    cause: str
    parent: int | None
    command_id: str | None
    checkpoint_id: str | None
    started_at: datetime
    attributes: dict[str, Any]


class CheckpointOut(Out):
    """A checkpoint with its verdict."""

    checkpoint_id: str
    segment: int
    step: int
    state: str
    reason: str
    saved_at: datetime
    size_bytes: int
    directory: str
    superseded: bool


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


class PassedOver(Out):
    """A checkpoint newer than the proposed one, and why it is not it."""

    checkpoint_id: str
    step: int
    reason: str


class ProposalOut(Out):
    """Where a rollback would go now."""

    target: str | None
    passed_over: list[PassedOver]
    first_sign_step: int | None


class EventOut(Out):
    """One thing that happened."""

    event_id: int
    type: str
    at: datetime
    run_id: str | None
    step: int | None
    segment: int | None
    data: dict[str, Any]


class RunDetail(_Run):
    """A run as its page shows it."""

    capabilities: list[str]
    incapable_because: str
    automatic_rollback: bool
    world_size: int
    dropped_records: int
    segments: list[SegmentOut]
    checkpoints: list[CheckpointOut]
    alerts: list[AlertOut]
    commands: list[CommandOut]
    series: list[SeriesSummary]
    proposal: ProposalOut
    events: list[EventOut]


class Runs(Out):
    """All runs."""

    runs: list[RunSummary]


@router.get("")
def list_runs(context: In) -> Runs:
    """All runs, those that are running first, then by when they were heard of."""
    now = context.now()
    with context.database.reading() as connection:
        found = store.list_all(connection)
        lines = summaries.read_sparklines(connection, [run.run_id for run in found])
        open_alerts = alerts.open_alerts(connection)
        return Runs(
            runs=[
                RunSummary(
                    **_fields(connection, run, lines, now, summaries.read_summaries(connection, run.run_id)),
                    alerts=_firing(run, [alert for alert in open_alerts if alert.run_id == run.run_id]),
                )
                for run in found
            ]
        )


@router.get("/{run_id}")
def read_run(run_id: RunId, context: In) -> RunDetail:
    """One run with all that its page shows."""
    now = context.now()
    with context.database.reading() as connection:
        run = store.get(connection, run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}", "open the list of runs")
        known = summaries.read_summaries(connection, run_id)
        lines = summaries.read_sparklines(connection, [run_id])
        histories = commands.read_histories(connection, run_id)
        return RunDetail(
            **_fields(connection, run, lines, now, known),
            capabilities=[kind.value for kind in run.capabilities],
            incapable_because=run.incapable_because,
            automatic_rollback=run.automatic_rollback,
            world_size=run.world_size,
            dropped_records=run.dropped_records,
            segments=[segment_out(each) for each in segments.read_segments(connection, run_id)],
            checkpoints=_checkpoints(connection, run_id),
            alerts=[alert_out(each, run.name) for each in alerts.read_alerts(connection, run_id, limit=MOST_ALERTS)],
            commands=[
                command_out(each, histories.get(each.command_id, ())) for each in commands.read_commands(connection, run_id)
            ],
            series=[series_out(each) for each in known],
            proposal=proposal_out(checkpoints_service.propose(connection, run_id)),
            events=[event_out(each) for each in events.newest(connection, run_id, limit=MOST_EVENTS)],
        )


def _fields(
    connection: Connection, run: Run, lines: Mapping[str, Iterable[float]], now: datetime, known: Iterable[Summary]
) -> dict[str, Any]:
    """What list and page both show of a run."""
    command = commands.active_command(connection, run.run_id)
    countdown = countdowns.active_countdown(connection, run.run_id)
    history = () if command is None else commands.read_histories(connection, run.run_id).get(command.command_id, ())
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
        "latest": _latest(run, known),
        "sparkline": list(lines.get(run.run_id, ())),
        "countdown": None if countdown is None else countdown_out(countdown, now),
        "command": None if command is None else command_out(command, history),
        "revision": run.revision,
    }


def _latest(run: Run, known: Iterable[Summary]) -> dict[str, LastValue]:
    """The newest stored values, and over them those of the last heartbeat: while a backlog drains they are ahead."""
    stored = {each.series: LastValue(value=each.last_value, step=each.last_step) for each in known}
    heard = {name: LastValue(value=number_from_json(each["value"]), step=each["step"]) for name, each in run.latest.items()}
    ahead = {name: each for name, each in heard.items() if name not in stored or (each.step or 0) > (stored[name].step or 0)}
    return stored | ahead


def _firing(run: Run, open_alerts: Iterable[Alert]) -> RunAlerts:
    speaking = [alert for alert in open_alerts if alert.state in _SPEAKING]
    worst = max(speaking, key=lambda alert: (_LOUDNESS[alert.severity], -alert.onset_step), default=None)
    return RunAlerts(firing=len(speaking), worst=None if worst is None else alert_out(worst, run.name))


def segment_out(segment: Segment) -> SegmentOut:
    """A segment as the API shows it."""
    return SegmentOut(
        segment=segment.segment,
        from_step=segment.from_step,
        last_step=segment.last_step,
        cause=segment.cause.value,
        parent=segment.parent,
        command_id=segment.command_id,
        checkpoint_id=segment.checkpoint_id,
        started_at=segment.started_at,
        attributes=segment.attributes,
    )


def _checkpoints(connection: Connection, run_id: str) -> list[CheckpointOut]:
    from_steps = {each.segment: each.from_step for each in segments.read_segments(connection, run_id)}
    return [checkpoint_out(each, from_steps) for each in checkpoints.read_checkpoints(connection, run_id)]


def checkpoint_out(checkpoint: Checkpoint, from_steps: Mapping[int, int]) -> CheckpointOut:
    """A checkpoint as the API shows it."""
    facts = checkpoint.facts
    return CheckpointOut(
        checkpoint_id=facts.checkpoint_id,
        segment=facts.segment,
        step=facts.step,
        state=checkpoint.judged.state.value,
        reason=checkpoint.judged.reason,
        saved_at=checkpoint.saved_at,
        size_bytes=facts.size_bytes,
        directory=facts.directory,
        superseded=checkpoints_domain.is_superseded(facts.segment, facts.step, from_steps),
    )


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


def proposal_out(proposal: Proposal) -> ProposalOut:
    """Where a rollback would go now, as the API shows it."""
    target = proposal.choice.target
    passed = [
        PassedOver(checkpoint_id=each.checkpoint_id, step=each.step, reason=reason)
        for each, reason in proposal.choice.passed_over
    ]
    target_id = None if target is None else target.checkpoint_id
    return ProposalOut(target=target_id, passed_over=passed, first_sign_step=proposal.first_sign_step)


def event_out(stored: StoredEvent) -> EventOut:
    """An event as the API shows it."""
    event = stored.event
    return EventOut(
        event_id=stored.event_id,
        type=event.type.value,
        at=event.at,
        run_id=event.run_id,
        step=event.step,
        segment=event.segment,
        data=event.data,
    )
