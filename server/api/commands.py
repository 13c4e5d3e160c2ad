"""Commands and countdowns, for people."""

import dataclasses
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, ConfigDict, Field

from server.domain.admission import MAX_GRAD_NORM, MAX_LEARNING_RATE_FACTOR, MOST_DOCUMENTS, MOST_SAMPLES
from server.domain.commands import IssuedCommand
from server.domain.countdowns import Countdown
from server.services import commands as service
from server.services import countdowns
from server.services.commands import NewCommand
from server.services.errors import NotFound
from server.store import commands as store
from server.store import countdowns as countdown_store
from server.store import runs as run_store
from server.store.commands import Change
from trainer_agent.wire.vocabulary import CommandKind, DataMode

from .deps import ID_PATTERN, MAX_INTEGER, Context, Id, In, RunId, Whose
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs/{run_id}", route_class=PeopleRoute, tags=["commands"])


Whole = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Factor = Annotated[float, Field(gt=0, le=MAX_LEARNING_RATE_FACTOR, allow_inf_nan=False)]
Norm = Annotated[float, Field(gt=0, le=MAX_GRAD_NORM, allow_inf_nan=False)]


class CommandIn(BaseModel):
    """What a person wants done. `seen_...` is the run as the page showed it when the button was pressed."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal["stop", "rollback", "save", "pause", "resume", "set_learning_rate_factor", "set_max_grad_norm"]
    seen_segment: Whole
    seen_incarnation: Annotated[str, Field(pattern=ID_PATTERN)] | None = None
    seen_step: Whole | None = None
    reason: Annotated[str, Field(max_length=2000)] = ""
    checkpoint_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    data: Literal["replay", "skip", "exclude"] | None = None
    exclude_samples: Annotated[list[Whole], Field(max_length=MOST_SAMPLES)] = []
    exclude_documents: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=MOST_DOCUMENTS)] = []
    learning_rate_factor: Factor | None = None
    max_grad_norm: Norm | None = None
    value: Norm | None = None


class ChangeOut(BaseModel):
    """One line of a command's history: from which state into which, when, why, by whom, from where."""

    before: str | None
    state: str
    at: datetime
    reason: str
    by: str
    place: str


class RollbackOut(BaseModel):
    """Where a rollback goes and what is different afterwards."""

    checkpoint_id: str
    target_step: int
    new_segment: int
    data: str
    skip_from_step: int | None
    skip_to_step: int | None
    exclude_samples: list[int]
    exclude_documents: list[str]
    learning_rate_factor: float | None
    max_grad_norm: float | None
    first_sign_step: int | None


class CommandOut(BaseModel):
    """A command as the page shows it."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
    command_id: str
    run_id: str
    kind: str
    state: str
    reason: str
    issued_by: str
    issued_from: str
    issued_at: datetime
    updated_at: datetime
    deadline_at: datetime | None
    incarnation: str
    segment: int
    behind: str | None
    value: float | None
    outcome: str
    step: int | None
    history: list[ChangeOut]
    rollback: RollbackOut | None


class Commands(BaseModel):
    """All commands of a run."""

    commands: list[CommandOut]


class CountdownOut(BaseModel):
    """What a rule will do unless somebody cancels it."""

    countdown_id: str
    run_id: str
    kind: str
    due_at: datetime
    remaining_seconds: float
    total_seconds: float
    rule_id: str
    rule_name: str
    alert_id: str
    checkpoint_id: str | None
    target_step: int | None
    dry_run: bool
    waits: str


class AfterCountdown(BaseModel):
    """What is left after a countdown was ended: the next one, if any, and the command it became, if any."""

    countdown: CountdownOut | None
    command: CommandOut | None


def command_out(command: IssuedCommand, history: tuple[Change, ...]) -> CommandOut:
    """A command as the API shows it."""
    return CommandOut(
        command_id=command.command_id,
        run_id=command.run_id,
        kind=command.kind.value,
        state=command.state.value,
        reason=command.reason,
        issued_by=command.issued_by,
        issued_from=command.issued_from,
        issued_at=command.issued_at,
        updated_at=command.updated_at,
        deadline_at=command.deadline_at,
        incarnation=command.incarnation,
        segment=command.segment,
        behind=command.behind,
        value=command.value,
        outcome=command.outcome,
        step=command.step,
        history=[ChangeOut(**dataclasses.asdict(each)) for each in history],
        rollback=None if command.rollback is None else RollbackOut(**dataclasses.asdict(command.rollback)),
    )


def countdown_out(countdown: Countdown, now: datetime) -> CountdownOut:
    """A countdown as the API shows it."""
    return CountdownOut(
        countdown_id=countdown.countdown_id,
        run_id=countdown.run_id,
        kind=countdown.action.kind.value,
        due_at=countdown.due_at,
        remaining_seconds=max(0.0, (countdown.due_at - now).total_seconds()),
        total_seconds=(countdown.due_at - countdown.started_at).total_seconds(),
        rule_id=countdown.rule_id,
        rule_name=countdown.rule_name,
        alert_id=countdown.alert_id,
        checkpoint_id=countdown.checkpoint_id,
        target_step=countdown.target_step,
        dry_run=countdown.action.dry_run,
        waits=countdown.outcome,
    )


@router.get("/commands")
def list_commands(run_id: RunId, context: In) -> Commands:
    """All commands of a run, newest first, each with its whole history."""
    with context.database.reading() as connection:
        if run_store.get(connection, run_id) is None:
            raise NotFound(f"there is no run {run_id}", "open the list of runs")
        histories = store.read_histories(connection, [run_id])
        given = store.read_commands(connection, run_id)
    return Commands(commands=[command_out(each, histories.get(each.command_id, ())) for each in given])


@router.post("/commands", status_code=202, responses={200: {"model": CommandOut}})
def issue_command(
    *,
    run_id: RunId,
    body: CommandIn,
    response: Response,
    context: In,
    whose: Whose,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")],
) -> CommandOut:
    """A command in line for the run: 202 when it is new, 200 when it was there already."""
    new = NewCommand(
        run_id=run_id,
        kind=CommandKind(body.kind),
        seen_segment=body.seen_segment,
        seen_incarnation=body.seen_incarnation,
        seen_step=body.seen_step,
        reason=body.reason,
        checkpoint_id=body.checkpoint_id,
        data=None if body.data is None else DataMode(body.data),
        exclude_samples=tuple(sorted(set(body.exclude_samples))),
        exclude_documents=tuple(sorted(set(body.exclude_documents))),
        learning_rate_factor=body.learning_rate_factor,
        max_grad_norm=body.max_grad_norm,
        value=body.value,
        idempotency_key=idempotency_key,
        issued_by=whose.name,
        issued_from=whose.place,
    )
    now = context.now()
    issued = context.database.writer.submit(lambda connection: service.issue(connection, new, now))
    if not issued.created:
        response.status_code = 200
    return _shown(context, issued.command)


@router.post("/commands/{command_id}/cancel")
def cancel_command(run_id: RunId, command_id: Id, context: In, whose: Whose) -> CommandOut:
    """The command, cancelled."""
    now = context.now()
    cancelled = context.database.writer.submit(lambda connection: service.cancel(connection, run_id, command_id, whose, now))
    return _shown(context, cancelled)


@router.post("/countdown/cancel")
def cancel_countdown(run_id: RunId, context: In, whose: Whose) -> AfterCountdown:
    """End the run's countdown without the command."""
    now = context.now()
    context.database.writer.submit(lambda connection: countdowns.cancel(connection, run_id, whose, now))
    return _after(context, run_id, now)


@router.post("/countdown/now")
def hurry_countdown(run_id: RunId, context: In, whose: Whose) -> AfterCountdown:
    """Give the countdown's command now."""
    now = context.now()
    context.database.writer.submit(lambda connection: countdowns.run_now(connection, run_id, whose, now))
    return _after(context, run_id, now)


def _shown(context: Context, command: IssuedCommand) -> CommandOut:
    with context.database.reading() as connection:
        history = store.read_histories(connection, [command.run_id]).get(command.command_id, ())
    return command_out(command, history)


def _after(context: Context, run_id: str, now: datetime) -> AfterCountdown:
    with context.database.reading() as connection:
        countdown = countdown_store.active_countdown(connection, run_id)
        command = store.active_command(connection, run_id)
    return AfterCountdown(
        countdown=None if countdown is None else countdown_out(countdown, now),
        command=None if command is None else _shown(context, command),
    )
