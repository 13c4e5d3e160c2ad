"""What becomes of commands: handed out, reported on, expired, left behind.

The word of a process counts for the commands that were made for it. A later process has read the journal of the one before, so
its word on how a command of that one ended counts too, and that it is still being done; nothing else it says of it does.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain import admission
from server.domain import commands as domain
from server.domain.commands import SERVER, Hand, IssuedCommand
from server.store import commands as store
from server.store import runs as run_store
from server.store import standing as standings
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Report, SegmentStarted
from trainer_agent.wire.vocabulary import CommandState, SegmentCause

from . import transitions


def pending_for(connection: Connection, run_id: str, incarnation: str, now: datetime) -> tuple[Command, ...]:
    """What waits to be handed to this incarnation, as it travels: limits are the seconds that remain."""
    return tuple(
        Command(
            command_id=each.command_id,
            kind=each.kind,
            incarnation=each.incarnation,
            segment=each.segment,
            deliver_within_seconds=(each.deadline_at - now).total_seconds(),
            execute_within_seconds=domain.EXECUTE_WITHIN[each.kind].total_seconds(),
            reason=each.reason,
            issued_by=each.issued_by,
            rollback=each.rollback,
            value=each.value,
        )
        for each in store.queued_for(connection, run_id, incarnation)
        if each.deadline_at is not None and each.deadline_at > now
    )


def take_report(connection: Connection, run_id: str, incarnation: str, report: Report, now: datetime) -> IssuedCommand | None:
    """Take the agent's word on a command: the command as it changed by it, or None where the word changed nothing.

    A word that comes too late for its arrow (the command was cancelled while the agent had it) does not change the state, but
    is added to the outcome: nobody is to read "cancelled" of what was done.
    """
    command = store.read_command(connection, run_id, report.command_id)
    if command is None or not _may_speak(connection, command, incarnation, report.state):
        return None
    if domain.may_follow(command.state, report.state):
        details = {"weights_sha256": report.weights_sha256} if report.weights_sha256 else None
        by = domain.trainer(incarnation)
        return _move(connection, command, report.state, report.reason, now, by=by, step=report.step, details=details)
    if domain.contradicts(command.state, report.state):
        transitions.amend_command(connection, command, domain.too_late(report.state, report.step), now)
    return None


def _may_speak(connection: Connection, command: IssuedCommand, incarnation: str, state: CommandState) -> bool:
    """Whether what this process says of the command counts."""
    if state not in domain.BY_REPORT or command.behind is not None:
        return False
    if command.incarnation == incarnation:
        return True
    return state in domain.BY_JOURNAL and run_store.is_newer(connection, command.run_id, incarnation, command.incarnation)


def _move(
    connection: Connection,
    command: IssuedCommand,
    following: CommandState,
    outcome: str,
    now: datetime,
    *,
    by: Hand = SERVER,
    **more: Any,
) -> IssuedCommand:
    """Move a command; when it ends, the stop that waits behind it gets its turn."""
    moved = transitions.move_command(connection, command, following, outcome, now, by=by, **more)
    if moved.state not in domain.ACTIVE:
        _release(connection, moved, now)
    return moved


def _release(connection: Connection, ended: IssuedCommand, now: datetime) -> None:
    """Address the stop that waited behind `ended` to the process and the segment of this moment."""
    waiting = store.waiting_command(connection, ended.run_id)
    standing = standings.read_standing(connection, ended.run_id)
    if waiting is None or standing is None or waiting.behind != ended.command_id:
        return
    if not admission.is_live(standing.state):
        transitions.move_command(connection, waiting, CommandState.EXPIRED, "the run ended before it was begun", now)
        return
    went_back = ended.rollback is not None and ended.state is CommandState.SUCCEEDED
    reached = ended.rollback.new_segment if ended.rollback is not None and went_back else 0  # its segment may be told later
    deadline = domain.deadline(waiting.kind, CommandState.QUEUED, now)
    segment = max(standing.segment, reached)
    transitions.change_command(
        connection, waiting, now, behind=None, incarnation=standing.incarnation, segment=segment, deadline_at=deadline
    )


def expire_due(connection: Connection, now: datetime) -> int:
    """End the commands whose time is up: not begun is expired, begun is unconfirmed. How many."""
    return sum(_expire(connection, each, now) for each in store.overdue_commands(connection, now))


def _expire(connection: Connection, due: IssuedCommand, now: datetime) -> bool:
    """Whether it was ended. Not when another server process is busy with the run: it may be taking a word on the command."""
    if run_store.lock(connection, due.run_id, wait=False) is None:
        return False
    command = store.read_command(connection, due.run_id, due.command_id)
    if command is None or command.deadline_at is None or command.deadline_at > now:
        return False
    _move(connection, command, domain.overdue(command.state), domain.why_overdue(command.state), now)
    return True


def segment_started(connection: Connection, run_id: str, incarnation: str, started: SegmentStarted, now: datetime) -> None:
    """The run goes on in another segment: what was meant for an earlier one follows it, waits for a word, or will never be done.

    made for         state      the segment opens by     becomes
    this process     not begun  a start or restart       addressed to it: the process had not yet begun its loop
    this process     not begun  another rollback         expired
    this process     running    any                      stays: it may still be reported on
    an earlier one   not begun  any                      expired, unless its journal is heard of within `AFTER_RESTART`
    an earlier one   running    any                      unconfirmed: the process that began it is dead
    """
    command = store.active_command(connection, run_id)
    if command is None or command.segment >= started.segment or command.command_id == started.command_id:
        return
    if command.incarnation == incarnation:
        _follow(connection, command, started, now)
    elif _is_orphaned(connection, command):
        _leave_behind(connection, command, started, now)


def _follow(connection: Connection, command: IssuedCommand, started: SegmentStarted, now: datetime) -> None:
    if command.state not in domain.ON_THE_WAY:
        return
    if started.cause is SegmentCause.ROLLBACK:
        said = f"the run went on in segment {started.segment} before it was begun"
        _move(connection, command, CommandState.EXPIRED, said, now)
        return
    rollback = command.rollback and replace(command.rollback, new_segment=started.segment + 1)
    transitions.change_command(connection, command, now, segment=started.segment, rollback=rollback)


def _leave_behind(connection: Connection, command: IssuedCommand, started: SegmentStarted, now: datetime) -> None:
    if command.state in domain.ON_THE_WAY:
        until = now + domain.AFTER_RESTART
        if command.deadline_at is None or command.deadline_at > until:
            transitions.change_command(connection, command, now, deadline_at=until)
        return
    said = f"the trainer started again in segment {started.segment} before it said how it ended"
    _move(connection, command, domain.overdue(command.state), said, now)


def _is_orphaned(connection: Connection, command: IssuedCommand) -> bool:
    """Whether a newer life of the run has taken over from the one that the command was given to."""
    standing = standings.read_standing(connection, command.run_id)
    return standing is not None and standing.incarnation != command.incarnation


def end_with_run(connection: Connection, run_id: str, now: datetime) -> None:
    """The run is over: what is not done now will not be done, and what had begun was not reported on."""
    command = store.active_command(connection, run_id)
    if command is not None:
        begun = command.state is CommandState.RUNNING
        said = "the run ended without a word on it" if begun else "the run ended before it was begun"
        _move(connection, command, domain.overdue(command.state), said, now)
