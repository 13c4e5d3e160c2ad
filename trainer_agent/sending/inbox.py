"""Inbox: the commands that came for this process, each given to the training at most once. Pure.

    (new)   -> waiting    for this incarnation and segment, in time           reported as delivered
    (new)   -> refused    for another one, incomplete, or too late            reported as rejected, with the reason
    waiting -> taken      the training has it, and reports from here on
    waiting -> waiting    the loop of this process only begins: it is for the segment that begins with it
    waiting -> refused    the segment moved on by a rollback, its time ran out, or a stop overtook it
    taken, refused        the same command again says nothing

A process is told commands before its loop begins, as while it loads its data. They name the segment that the run was in last, and
mean whatever comes next, so a start or restart takes them along. The server does the same with those it still holds; one that it
has sent before it heard of the new segment is taken along here when it comes.

`now` is a monotonic clock: a command carries its limits as remaining seconds, so no two wall clocks are compared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Verdict
from trainer_agent.wire.vocabulary import CommandKind, CommandState

MOST_WAITING = 16
MOST_AT_ONCE = 2 * MOST_WAITING
"""Of one reply: the training may wait while they are taken. What is not reported as delivered comes with the next reply."""
MOST_REMEMBERED = 1024
MOST_VERDICTS = 1024


@dataclass(frozen=True, slots=True)
class Held:
    """A command that waits for the training, to be begun before `deadline`."""

    command: Command
    deadline: float


@dataclass(frozen=True, slots=True)
class InboxState:
    """What this process knows of its commands."""

    incarnation: str
    segment: int
    waiting: tuple[Held, ...] = ()
    known: tuple[str, ...] = ()
    """Ids of every command seen, oldest first."""
    before: int | None = None
    """A process that goes on with a run: commands for segments up to this one were made before its loop began."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Commands came with a reply."""

    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The run is in another segment now. `begins`: the loop of this process has only begun with it."""

    segment: int
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The training asks for the next command."""


Input = Arrived | Moved | Asked


@dataclass(frozen=True, slots=True)
class Receipt:
    """What is to be reported of a command."""

    command_id: str
    state: CommandState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The next state, what to report, and the command that is given out, if one is."""

    state: InboxState
    receipts: tuple[Receipt, ...] = ()
    given: Command | None = None


def step(state: InboxState, given: Input, now: float) -> Outcome:
    """What one input does."""
    if isinstance(given, Arrived):
        return _arrive(state, given.commands, now)
    if isinstance(given, Moved):
        return _move(state, given)
    sifted = _sift(state, lambda held: _late(held, now))
    if not sifted.state.waiting:
        return sifted
    first, *rest = sifted.state.waiting
    command = replace(first.command, execute_within_seconds=first.deadline - now)
    return Outcome(replace(sifted.state, waiting=tuple(rest)), sifted.receipts, command)


def _move(state: InboxState, moved: Moved) -> Outcome:
    before = state.segment if moved.begins and state.segment < moved.segment else None
    following = replace(state, segment=moved.segment, before=before)
    kept = tuple(Held(_addressed(following, held.command), held.deadline) for held in following.waiting)
    following = replace(following, waiting=kept)
    return _sift(following, lambda held: _misdirected(following, held.command))


def _addressed(state: InboxState, command: Command) -> Command:
    """The command for the segment of now, where it was made before the loop of this process began."""
    is_early = state.before is not None and command.segment <= state.before and command.segment < state.segment
    if not is_early or command.incarnation != state.incarnation:
        return command
    payload = command.rollback
    payload = payload if payload is None else replace(payload, new_segment=state.segment + 1)
    return replace(command, segment=state.segment, rollback=payload)


def _arrive(state: InboxState, commands: tuple[Command, ...], now: float) -> Outcome:
    receipts: list[Receipt] = []
    known = set(state.known)
    for command in [each for each in commands if each.command_id not in known][:MOST_AT_ONCE]:
        if command.command_id in state.known:
            continue
        outcome = _receive(state, command, now)
        state = outcome.state
        receipts += outcome.receipts
    return Outcome(state, tuple(receipts))


def _receive(state: InboxState, command: Command, now: float) -> Outcome:
    state = replace(state, known=(*state.known, command.command_id)[-MOST_REMEMBERED:])
    command = _addressed(state, command)
    problem = _misdirected(state, command) or _unusable(state, command)
    if problem:
        return Outcome(state, (Receipt(command.command_id, CommandState.REJECTED, problem),))
    held = Held(command, now + command.execute_within_seconds)
    delivered = Receipt(command.command_id, CommandState.DELIVERED)
    if command.kind is not CommandKind.STOP:
        return Outcome(replace(state, waiting=(*state.waiting, held)), (delivered,))
    sifted = _sift(state, _overtaken)
    return Outcome(replace(sifted.state, waiting=(*sifted.state.waiting, held)), (delivered, *sifted.receipts))


def _sift(state: InboxState, problem_of: Callable[[Held], str]) -> Outcome:
    """Refuses those waiting that have a problem now."""
    problems = [(held, problem_of(held)) for held in state.waiting]
    kept = tuple(held for held, problem in problems if not problem)
    refused = tuple(Receipt(held.command.command_id, CommandState.REJECTED, problem) for held, problem in problems if problem)
    return Outcome(replace(state, waiting=kept), refused)


def _misdirected(state: InboxState, command: Command) -> str:
    if command.incarnation != state.incarnation:
        return "made for another process of this run"
    if command.segment != state.segment:
        return f"made for segment {command.segment}; the run is in segment {state.segment}"
    return ""


def _unusable(state: InboxState, command: Command) -> str:
    if not command.deliver_within_seconds > 0 or not command.execute_within_seconds > 0:  # also what a NaN says
        return "came after its time"
    if (command.kind is CommandKind.ROLLBACK) != (command.rollback is not None):
        return "incomplete: a rollback must say where to, and nothing else may"
    if any(value is not None and not 0 < value < math.inf for value in _values(command)):  # a NaN is neither
        return "a factor or a norm must be a finite number above 0"
    if len(state.waiting) >= MOST_WAITING:
        return f"{MOST_WAITING} commands wait already"
    return ""


def _values(command: Command) -> tuple[float | None, ...]:
    payload = command.rollback
    return (command.value,) if payload is None else (command.value, payload.learning_rate_factor, payload.max_grad_norm)


def _late(held: Held, now: float) -> str:
    return "" if now < held.deadline else "its time ran out before a step boundary"


def _overtaken(held: Held) -> str:
    return "" if held.command.kind is CommandKind.STOP else "a stop overtook it"


def merge_verdicts(known: dict[str, Verdict], new: tuple[Verdict, ...]) -> dict[str, Verdict]:
    """The verdicts with the new ones in place of the old, the newest `MOST_VERDICTS` of them."""
    merged = {key: value for key, value in known.items() if all(key != verdict.checkpoint_id for verdict in new)}
    merged |= {verdict.checkpoint_id: verdict for verdict in new}
    return dict(list(merged.items())[-MOST_VERDICTS:])
