"""Commands: made and cancelled. What becomes of them is in `reports`.

One command of a run is active at a time, and a stop may wait behind it, which two indexes see to; whoever loses a race reads
again and decides anew. A person's command ends a countdown: what a person wants is known then.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import admission
from server.domain import commands as domain
from server.domain.admission import Admission, Refusal, Request, Seen, Standing
from server.domain.commands import Hand, IssuedCommand
from server.domain.countdowns import CountdownInput
from server.store import commands as store
from server.store import countdowns as countdowns_store
from server.store import standing as standings
from server.store.standing import RunStanding
from trainer_agent.wire.codec import to_json
from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode

from . import rollbacks, transitions
from .errors import Conflict, Invalid, NotFound, Now, Refused, Stale
from .recording import record

RULE_PREFIX = "rule:"
"""`issued_by` of a command that no person gave; the rule's id follows."""


@dataclass(frozen=True, slots=True)
class NewCommand:
    """What somebody asks for.

    Of a rollback: `checkpoint_id` None is the proposal, `data` None what the run can do; `learning_rate_factor` and
    `max_grad_norm` None leave things as they are. `value` is of the kinds that set something. `seen_...` is the run as its
    author saw it; the step is only written down, since it is another by the time the request is here.
    """

    run_id: str
    kind: CommandKind
    idempotency_key: str
    issued_by: str
    seen_segment: int | None = None
    reason: str = ""
    checkpoint_id: str | None = None
    data: DataMode | None = None
    max_grad_norm: float | None = None
    seen_incarnation: str | None = None
    seen_step: int | None = None
    exclude_samples: tuple[int, ...] = ()
    exclude_documents: tuple[str, ...] = ()
    learning_rate_factor: float | None = None
    value: float | None = None
    issued_from: str = ""

    @property
    def request(self) -> Request:
        """What of it says what is to be done."""
        return Request(**{name: getattr(self, name) for name in Request.__slots__})

    @property
    def hand(self) -> Hand:
        """Who asks, and from where."""
        return Hand(self.issued_by, self.issued_from)


@dataclass(frozen=True, slots=True)
class Issued:
    """The command that now says what was asked for, and whether it was made by this request."""

    command: IssuedCommand
    created: bool


def issue(connection: Connection, new: NewCommand, now: datetime) -> Issued:
    """Make a command, or give the one that already says the same.

    Raises:
        NotFound: no such run.
        Invalid: the idempotency key was used for another request, or the request makes no sense.
        Stale: the run is in another segment or another process than its author saw.
        Refused: it may not be made now; `refusal` says why.
    """
    _check(new)
    for _ in range(2):  # the loser of a race finds the winner's command the second time
        standing = standings.read_standing(connection, new.run_id)
        if standing is None:
            raise NotFound("there is no such run", "open the list of runs")
        if (earlier := _earlier(connection, new)) is not None:
            return Issued(earlier, created=False)
        if (issued := _try(connection, new, standing, now)) is not None:
            store.keep_answer(connection, issued.command, new.idempotency_key, _digest(new), now)
            return issued
    raise Conflict("another command was given at the same moment", "look at the run as it is now and decide again")


def _check(new: NewCommand) -> None:
    """That the request makes sense by itself.

    Raises:
        Invalid: it does not.
    """
    if not new.idempotency_key or len(new.idempotency_key) > 256:
        raise Invalid("the idempotency key is missing or longer than 256 characters", "send a fresh random one")
    _check_number("max_grad_norm", new.max_grad_norm, admission.MAX_GRAD_NORM)
    _check_number("learning_rate_factor", new.learning_rate_factor, admission.MAX_LEARNING_RATE_FACTOR)
    if new.kind in domain.SETTERS:
        sets_factor = new.kind is CommandKind.SET_LEARNING_RATE_FACTOR
        most = admission.MAX_LEARNING_RATE_FACTOR if sets_factor else admission.MAX_GRAD_NORM
        if new.value is None:
            raise Invalid(f"a {new.kind} needs a value", f"give a value above 0 and up to {most:g}")
        _check_number("value", new.value, most)
    _check_fits(new)


def _check_number(name: str, number: float | None, most: float) -> None:
    if number is not None and not 0 < number <= most:
        raise Invalid(f"{name} is {number}", f"give a number above 0 and up to {most:g}")


def _check_fits(new: NewCommand) -> None:
    """That nothing is asked for which the kind or the mode does not have."""
    if new.value is not None and new.kind not in domain.SETTERS:
        raise Invalid(f"a {new.kind} takes no value", "leave it out")
    if new.kind is not CommandKind.ROLLBACK and replace(new.request, value=None) != Request(new.kind):
        raise Invalid(f"a {new.kind} goes to no checkpoint and changes nothing of the data", "leave out what is of a rollback")
    named = bool(new.exclude_samples or new.exclude_documents)
    if len(new.exclude_samples) > admission.MOST_SAMPLES or len(new.exclude_documents) > admission.MOST_DOCUMENTS:
        most = f"{admission.MOST_SAMPLES} samples and {admission.MOST_DOCUMENTS} documents"
        raise Invalid(f"at most {most} can be named", "name fewer")
    if new.data is DataMode.EXCLUDE and not named:
        raise Invalid("nothing is named to be excluded", "name samples or documents, or choose skip or replay")
    if new.data not in (None, DataMode.EXCLUDE) and named:
        raise Invalid(f"data is {new.data}, and samples or documents are named", "choose exclude, or name none")


def _earlier(connection: Connection, new: NewCommand) -> IssuedCommand | None:
    """What a request with this key was answered with before."""
    known = store.answered(connection, new.run_id, new.idempotency_key)
    if known is None:
        return None
    if known.request_digest != _digest(new):
        raise Invalid("this idempotency key was used for another request", "use a new key for each new request")
    return store.read_command(connection, new.run_id, known.command_id)


def _digest(new: NewCommand) -> str:
    """What was asked for, by whom, from where and when left out."""
    asked = to_json(new)
    for name in ("idempotency_key", "issued_by", "issued_from"):
        del asked[name]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _try(connection: Connection, new: NewCommand, standing: RunStanding, now: datetime) -> Issued | None:
    """The command as admitted; None when somebody else was quicker."""
    where = _where(connection, standing)
    admitted = admission.admit(new.request, where, Seen(new.seen_segment, new.seen_incarnation))
    if admitted.refusal is not None:
        raise _refused(admitted.refusal, standing, where)
    if admitted.same_as is not None:
        return Issued(admitted.same_as, created=False)
    rollback = rollbacks.payload(connection, new.request, standing) if new.kind is CommandKind.ROLLBACK else None
    if admitted.supersedes is not None:
        said = f"replaced by a {new.kind} of {new.issued_by}"
        transitions.move_command(connection, admitted.supersedes, CommandState.SUPERSEDED, said, now, by=new.hand)
    command = _made(new, standing, admitted, rollback, now)
    if not store.add_command(connection, command):
        return None
    seen = {"seen_segment": new.seen_segment, "seen_incarnation": new.seen_incarnation, "seen_step": new.seen_step}
    record(connection, transitions.command_event(command, new.reason, now, by=new.hand, details=seen))
    if not new.issued_by.startswith(RULE_PREFIX):
        _overtake_countdown(connection, command, now)
    return Issued(command, created=True)


def _where(connection: Connection, standing: RunStanding) -> Standing:
    return Standing(
        state=standing.state,
        segment=standing.segment,
        capabilities=standing.capabilities,
        active_command=store.active_command(connection, standing.run_id),
        incarnation=standing.incarnation,
        was_paused=standing.was_paused,
        waiting_command=store.waiting_command(connection, standing.run_id),
    )


def _refused(refusal: Refusal, standing: RunStanding, where: Standing) -> Refused | Stale:
    active = where.active_command
    if refusal is Refusal.MOVED_ON:
        step = standing.step if standing.has_step else None
        return Stale(Now(standing.state, standing.segment, standing.incarnation, step, active))
    if refusal is Refusal.NOT_CAPABLE:
        detail = f"{refusal}: {standing.incapable_because}" if standing.incapable_because else refusal.value
        return Refused(refusal, detail, "do it by hand where the run was started")
    if refusal is Refusal.ALREADY_ACTIVE and active is not None:
        detail = f"a {active.kind} is {active.state} on this run"
        if where.waiting_command is not None:
            detail += ", and a stop waits behind it"
        return Refused(refusal, detail, "wait for it, or cancel it while it is not yet running", active.command_id)
    if refusal in (Refusal.ALREADY_PAUSED, Refusal.NOT_PAUSED):
        return Refused(refusal, fix="look at the run as it is now")
    return Refused(refusal, f"{refusal}: it is {standing.state}", "start the run again; it takes up where it was")


def _made(
    new: NewCommand, standing: RunStanding, admitted: Admission, rollback: RollbackPayload | None, now: datetime
) -> IssuedCommand:
    unique = json.dumps([new.run_id, new.idempotency_key]).encode()
    behind = None if admitted.behind is None else admitted.behind.command_id
    return IssuedCommand(
        run_id=new.run_id,
        command_id=f"c_{hashlib.sha256(unique).hexdigest()[:24]}",
        kind=new.kind,
        state=CommandState.QUEUED,
        incarnation=standing.incarnation,
        segment=standing.segment,
        reason=new.reason,
        issued_by=new.issued_by,
        rollback=rollback,
        outcome="",
        step=None,
        idempotency_key=new.idempotency_key,
        request_digest=_digest(new),
        issued_at=now,
        updated_at=now,
        deadline_at=domain.deadline(new.kind, CommandState.QUEUED, now) if behind is None else None,
        value=new.value,
        behind=behind,
        issued_from=new.issued_from,
    )


def _overtake_countdown(connection: Connection, command: IssuedCommand, now: datetime) -> None:
    countdown = countdowns_store.active_countdown(connection, command.run_id)
    if countdown is not None:
        said = f"{command.issued_by} gave the command {command.kind}"
        transitions.end_countdown(connection, countdown, CountdownInput.OVERTAKE, said, now)


def cancel(connection: Connection, run_id: str, command_id: str, by: Hand, now: datetime) -> IssuedCommand:
    """The command, cancelled. Cancelling it twice is cancelling it once.

    Raises:
        NotFound: the run has no such command.
        Conflict: it is running or has ended.
    """
    standings.read_standing(connection, run_id)  # locks the run: its report may be on the way in another server process
    command = store.read_command(connection, run_id, command_id)
    if command is None:
        raise NotFound("this run has no such command", "look at the run as it is now")
    cancelled = transitions.move_command(connection, command, CommandState.CANCELLED, f"cancelled by {by.name}", now, by=by)
    if cancelled.state is not CommandState.CANCELLED:
        raise Conflict(f"the command is {cancelled.state} already", "look at the run as it is now")
    return cancelled
