"""A run's life as the server hears of it: starts, heartbeats, silence, and the reply to each message.

Only the newest incarnation of rank 0 speaks for the run. An older one may still deliver what it has spooled, and another rank
may outlive rank 0 in a collective that never ends: neither says that the run is alive.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import runs as domain
from server.domain.countdowns import AFTER_START, is_behind
from server.domain.events import Event, EventType
from server.domain.runs import RunInput
from server.domain.wording.clauses import clause
from server.domain.wording.event_words import AGAIN, AN_EARLIER_PROCESS, THE_PROCESS, told
from server.domain.wording.words import Both, Value
from server.services import checkpoints, countdowns, liveness, reports
from server.services.errors import Invalid, NotFound
from server.services.recording import record
from server.store import commands as command_store
from server.store import countdowns as countdown_store
from server.store import events as event_store
from server.store import runs as store
from server.store.runs import Incarnation, Run
from server.store.touched import touch
from trainer_agent.wire import crash
from trainer_agent.wire import series as names
from trainer_agent.wire.codec import number_to_json
from trainer_agent.wire.messages import CheckpointSaved, Heartbeat, Reply, RunStart, SaveFailed
from trainer_agent.wire.vocabulary import CheckpointState, Phase, RunState, Severity

MAX_ID = 64
MAX_NAME = 256
MAX_WORD = 32
MAX_NUMBER = 2**31 - 1
"""Of ranks, world sizes and segments."""
MAX_LATEST = 100

MAX_REASON = 2_000

START_FIRST = "send RunStart for this incarnation and rank first"


def start_run(connection: Connection, start: RunStart, owner_token_id: str, now: datetime) -> Reply:
    """Take up a run, or a new incarnation of it. Saying it again changes nothing.

    Raises:
        NotFound: the run belongs to another token.
        Invalid: an id, a name or a number is larger than can be stored.
    """
    _check(start)
    known = store.lock(connection, start.run_id)
    if known is None and store.insert(connection, start.run_id, _first(start, owner_token_id, now)):
        touch(connection, start.run_id)
    run = owned(connection, start.run_id, owner_token_id)
    life = store.get_incarnation(connection, run.run_id, start.incarnation, start.rank)
    if life is None:
        life = Incarnation(run.run_id, start.incarnation, start.rank, 1, start.host[:MAX_NAME], start.pid, now, now)
        crash.reach("server.start_before_store")
        store.add_incarnation(connection, life)
        if start.rank == 0:
            _take_up(connection, run, start, now)
        crash.reach("server.start_stored")
    return reply(connection, life, now)


def _check(start: RunStart) -> None:
    for what, text, longest in (
        ("run_id", start.run_id, MAX_ID),
        ("incarnation", start.incarnation, MAX_ID),
        ("project", start.project, MAX_NAME),
        ("name", start.name, MAX_NAME),
        ("integration", start.integration, MAX_WORD),
    ):
        if not 1 <= len(text) <= longest:
            raise Invalid(f"{what} must have 1 to {longest} characters, not {len(text)}", f"send a shorter {what}")
    for what, number in (("rank", start.rank), ("world_size", start.world_size)):
        check_number(what, number)


def check_number(what: str, number: int) -> None:
    """That a rank, a world size or a segment can be stored."""
    if number > MAX_NUMBER:
        raise Invalid(f"{what} is {number}, more than {MAX_NUMBER}", f"send a true {what}")


def _first(start: RunStart, owner_token_id: str, now: datetime) -> dict[str, Any]:
    state = domain.RunStatus().state
    return {**_said(start), "owner_token_id": owner_token_id, "state": state.value, "created_at": now, "heard_at": now}


def _said(start: RunStart) -> dict[str, Any]:
    """What a start says of its run, by column."""
    return {
        "project": start.project,
        "name": start.name,
        "total_steps": start.total_steps,
        "world_size": start.world_size,
        "host": start.host[:MAX_NAME],
        "integration": start.integration,
        "capabilities": start.capabilities,
        "incapable_because": start.incapable_because,
        "data_modes": start.data_modes,
        "data_modes_because": start.data_modes_because,
        "automatic_rollback": start.automatic_rollback,
        "attributes": start.attributes,
    }


def _take_up(connection: Connection, run: Run, start: RunStart, now: datetime) -> None:
    """Rank 0 has started: the run is what it says now, and runs again if it had ended."""
    begun: dict[str, Any] = {"phase_since": now, "stepped_at": None, "pace": None}
    said = {**_said(start), "phase": Phase.STARTING.value, "ended_at": None, "state_reason": "", "latest": {}}
    store.update(connection, run.run_id, said | begun)
    run = replace(run, phase=Phase.STARTING, **begun)
    again = None if run.state is RunState.CREATED else AGAIN
    advance(connection, replace(run, name=start.name), RunInput.STARTED, now, host=start.host or None, again=again)


def owned(connection: Connection, run_id: str, owner_token_id: str) -> Run:
    """The run, locked.

    Raises:
        NotFound: there is no such run, or it belongs to another token, which is not told apart.
    """
    run = store.lock(connection, run_id)
    if run is None or run.owner_token_id != owner_token_id:
        raise NotFound(f"there is no run {run_id[:MAX_ID]} of this token", "send RunStart, with the token that began the run")
    return run


def speaking(connection: Connection, run: Run, incarnation: str, rank: int) -> Incarnation:
    """The incarnation of a message.

    Raises:
        NotFound: the server has not heard of it.
    """
    life = store.get_incarnation(connection, run.run_id, incarnation, rank)
    if life is None:
        raise NotFound(f"incarnation {incarnation[:MAX_ID]} of rank {rank} is not known", START_FIRST)
    return life


def leads(connection: Connection, life: Incarnation) -> bool:
    """Whether this incarnation speaks for the run."""
    return life.rank == 0 and store.newest_incarnation(connection, life.run_id) == life.incarnation


def advance(
    connection: Connection,
    run: Run,
    what: RunInput,
    now: datetime,
    *,
    reason: Both = ("", ""),
    life: Incarnation | None = None,
    **facts: Value,
) -> Run:
    """The run after `what`: its state saved, and told with the `facts` that its words need, where it is worth telling.

    `life` is the one that ended, where `what` is the end of one.
    """
    outcome = domain.step(run.status, what, now)
    values: dict[str, Any] = {"state": outcome.status.state, "deadline_at": outcome.status.deadline_at}
    if what not in domain.NO_WORD:
        values["heard_at"] = now
    has_moved = outcome.status.state is not run.state
    if has_moved:
        values |= _entered(run, outcome.status.state, reason[0], now)
    store.update(connection, run.run_id, values)
    run = replace(run, **values)
    if outcome.event is not None:
        data = {"name": run.name, **told(outcome.event, {"reason": reason}, **facts)}
        data |= {} if life is None else {"incarnation": life.incarnation}
        record(connection, Event(outcome.event, now, run.run_id, run.step, run.segment, data))
    if has_moved:
        liveness.look(connection, run, now)
    return run


def _entered(run: Run, state: RunState, reason: str, now: datetime) -> dict[str, Any]:
    """What else is different of a run that has just come into `state`: why it is there, and that it does nothing any more.

    Whatever it does now, it is watched from now: a step that it did not make while nobody heard of it is not missed. One that
    was stalled before is so still.
    """
    is_stalled = run.pace is not None and run.pace["is_stalled"]
    entered: dict[str, Any] = {"state_reason": reason} | ({} if is_stalled else {"phase_since": now})
    return entered | ({"ended_at": now, "phase": None} if state in domain.ENDED else {"ended_at": None})


def heard(connection: Connection, run: Run, now: datetime) -> Run:
    """The run after a message that does not say what it does: a lost one is again what its last heartbeat said."""
    again = RunInput.PAUSED if run.state is RunState.LOST and run.phase is Phase.PAUSED else RunInput.HEARD
    return advance(connection, run, again, now)


def revive(connection: Connection, run: Run, life: Incarnation, now: datetime) -> Run:
    """Take back that a process was killed: it speaks. Nothing where nobody said so of it."""
    if life.rank != 0:
        return run
    speaks_for_run = leads(connection, life)
    if speaks_for_run and not (run.state is RunState.FAILED and domain.was_called_killed(run.state_reason)):
        return run
    end = event_store.end_told_of(connection, run.run_id, life.incarnation)
    if end is None or not domain.was_called_killed(str(end.data.get("reason"))):
        return run
    what = RunInput.LIVES if speaks_for_run else RunInput.EARLIER_LIVES
    who = THE_PROCESS if speaks_for_run else AN_EARLIER_PROCESS
    return advance(connection, run, what, now, life=life, who=who)


def save_failed(connection: Connection, run: Run, failed: SaveFailed, now: datetime) -> Run:
    """A checkpoint could not be saved: people are called, once until a later save succeeds."""
    severity = Severity.INFO if run.save_failure is not None else Severity.CRITICAL
    reason = failed.reason[:MAX_REASON]
    failure = {"segment": run.segment, "step": failed.step, "at": now.isoformat(), "reason": reason}
    store.update(connection, run.run_id, {"save_failure": failure})
    words = told(EventType.CHECKPOINT_SAVE_FAILED, {"reason": clause(reason)}, step=failed.step, reason=clause(reason))
    data = {"severity": severity, **words}
    record(connection, Event(EventType.CHECKPOINT_SAVE_FAILED, now, run.run_id, failed.step, run.segment, data))
    return replace(run, save_failure=failure)


def saved(connection: Connection, run: Run, facts: CheckpointSaved) -> Run:
    """A checkpoint was saved, or is told of again: where it is newer than the save that failed, that is over."""
    failure = run.save_failure
    if failure is None or facts.state is not CheckpointState.COMPLETE:
        return run
    if (facts.segment, facts.step) < (failure["segment"], failure["step"]):
        return run
    store.update(connection, run.run_id, {"save_failure": None})
    touch(connection, run.run_id)
    return replace(run, save_failure=None)


def take_heartbeat(connection: Connection, heartbeat: Heartbeat, owner_token_id: str, now: datetime) -> Reply:
    """The run is alive. Shows what it does and its newest values, and judges nothing.

    Raises:
        NotFound: unknown run or incarnation.
    """
    run = owned(connection, heartbeat.run_id, owner_token_id)
    life = speaking(connection, run, heartbeat.incarnation, heartbeat.rank)
    made_seq = life.next_seq - 1 + max(0, heartbeat.waiting_records)
    store.update_incarnation(connection, life, next_seq=life.next_seq, heard_at=now, made_seq=made_seq)
    run = revive(connection, run, life, now)
    if is_behind(life.next_seq, life.made_seq) and not is_behind(life.next_seq, made_seq):
        countdowns.take_up(connection, run.run_id, now)
    if leads(connection, life):
        run = advance(connection, run, RunInput.PAUSED if heartbeat.phase is Phase.PAUSED else RunInput.RESUMED, now)
        _show(connection, run, heartbeat, now)
    return reply(connection, life, now)


def _show(connection: Connection, run: Run, heartbeat: Heartbeat, now: datetime) -> None:
    if run.state in domain.ENDED:
        return
    latest = {
        series: {"value": number_to_json(value), "step": heartbeat.step, "segment": heartbeat.segment}
        for series, value in list(heartbeat.latest.items())[:MAX_LATEST]
        if names.is_valid(series) and heartbeat.segment >= run.segment  # else they are of steps that a rollback left behind
    }
    if (run.phase, run.latest) != (heartbeat.phase, latest):
        store.update(connection, run.run_id, {"phase": heartbeat.phase.value, "latest": latest})
        touch(connection, run.run_id)
    liveness.heard(connection, run, heartbeat, now)


def reply_for(connection: Connection, run_id: str, incarnation: str, *, rank: int, owner_token_id: str, now: datetime) -> Reply:
    """What waits for an incarnation. Changes nothing, so it may run on a reading connection.

    Raises:
        NotFound: unknown run or incarnation.
    """
    run = store.get(connection, run_id)
    if run is None or run.owner_token_id != owner_token_id:
        raise NotFound(f"there is no run {run_id[:MAX_ID]} of this token", "send RunStart, with the token that began the run")
    return reply(connection, speaking(connection, run, incarnation, rank), now)


def reply(connection: Connection, life: Incarnation, now: datetime) -> Reply:
    """The answer to any message of `life`. Rank 0 alone is told commands and verdicts."""
    if life.rank != 0:
        return Reply(life.next_seq)
    return Reply(
        life.next_seq,
        reports.pending_for(connection, life.run_id, life.incarnation, now),
        checkpoints.verdicts(connection, life.run_id),
    )


def mark_overdue(connection: Connection, now: datetime) -> int:
    """Call the runs lost that were not heard of by their deadline. Gives how many."""
    overdue = store.overdue(connection, now)
    for run in overdue:
        since = f"{run.heard_at:%Y-%m-%d %H:%M:%S}"
        advance(connection, run, RunInput.SILENT, now, reason=clause(f"no word since {since} UTC"), since=since)
    return len(overdue)


def give_grace(connection: Connection, now: datetime) -> None:
    """The server has just started: nobody could be heard while it was away.

    So every live run, and every command that an agent has, gets one full limit, and people may still say no to a countdown.
    """
    store.renew_deadlines(connection, now + domain.LOST_AFTER)
    store.watch_afresh(connection, now)
    command_store.renew_deadlines(connection, now + domain.LOST_AFTER)
    countdown_store.postpone(connection, now + AFTER_START)
