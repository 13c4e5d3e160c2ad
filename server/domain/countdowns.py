"""The time between a rule's decision and its command, in which a person can say no.

    counting -> due | cancelled | withdrawn | overtaken

due         the time was up, or a person said *now*: the command was issued, or refused and the outcome says why; of a dry run
            the outcome says what would have been done
cancelled   a person said no
withdrawn   there is nothing left to do it for: the alert is over, the run has moved on or ended, a person holds what is automatic
overtaken   a person gave a command of their own

A countdown whose time is up still waits as long as its condition does not hold at the newest step the run has made: while a
backlog is on its way (see `is_behind`), and while the alert is recovering. What is not true any more makes no command.

And the guard rails of what a rule may do by itself. When one of them gives way, the breaker opens: the run is stopped where it
obeys that, and people are called.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from trainer_agent.wire.vocabulary import CommandKind

from .rules import Action, ActionKind

LATE = timedelta(seconds=5)
"""What is that old when it is sent has waited: it is part of a backlog."""
UNKNOWN_SEQ = 2**62
"""Stands for the last record of a process that has a backlog of nobody knows what length, until its next heartbeat says so."""
BREAKER_RULE_ID = "automatic-actions"
"""Rule id of the alert that says that no more is done automatically. No such rule is in the table."""
MOST_ROLLBACKS = 3
"""Automatic rollbacks in the life of a run. What three did not cure, a fourth will not."""
AFTER_START = timedelta(seconds=15)
"""No countdown is due sooner after a start of the server: nobody could say no while it was away, and the run has moved on."""
STEPS_BETWEEN = 500
"""Steps trained after an automatic rollback before the same rule may ask for another."""


class CountdownState(StrEnum):
    """Where a countdown stands."""

    COUNTING = "counting"
    DUE = "due"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    OVERTAKEN = "overtaken"


class CountdownInput(StrEnum):
    """What can end a countdown."""

    TIME_UP = "time_up"
    CANCEL = "cancel"
    WITHDRAW = "withdraw"
    OVERTAKE = "overtake"


_C, _I = CountdownState, CountdownInput
TRANSITIONS: dict[tuple[CountdownState, CountdownInput], CountdownState] = {
    (_C.COUNTING, _I.TIME_UP): _C.DUE,
    (_C.COUNTING, _I.CANCEL): _C.CANCELLED,
    (_C.COUNTING, _I.WITHDRAW): _C.WITHDRAWN,
    (_C.COUNTING, _I.OVERTAKE): _C.OVERTAKEN,
}
"""Where a pair is missing, nothing changes: an end is final."""


def step(state: CountdownState, what: CountdownInput) -> CountdownState:
    """The countdown after `what`."""
    return TRANSITIONS.get((state, what), state)


@dataclass(frozen=True, slots=True)
class Countdown:
    """A countdown as it is stored and shown. `action.kind` is what will be done, which may be less than the rule asked for."""

    run_id: str
    countdown_id: str
    state: CountdownState
    rule_id: str
    rule_name: str
    alert_id: str
    segment: int
    action: Action
    checkpoint_id: str | None
    target_step: int | None
    started_at: datetime
    due_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """For what something is done: a rule on a series, whatever it is called.

    Another rule that judges the same series in the same way is the same cause, so that a copy of a rule has no budget of its own.
    """

    rule_id: str
    series: str = ""
    detector: str = ""

    def is_same(self, other: "Cause") -> bool:
        """Whether the two are one cause."""
        same_way = self.detector != "" and self.detector == other.detector
        return self.series == other.series and (same_way or self.rule_id == other.rule_id)


@dataclass(frozen=True, slots=True)
class PastRollback:
    """A rollback that a rule has made: for what, and the step it went back to."""

    cause: Cause
    target_step: int


@dataclass(frozen=True, slots=True)
class Rails:
    """What of a run limits what a rule may do to it."""

    capabilities: frozenset[CommandKind]
    incapable_because: str
    automatic_rollback: bool
    has_target: bool
    past: tuple[PastRollback, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a firing rule will do: `kind` None is nothing. `because` says so when that is not what the rule asked for.

    `breaker` is set when a guard rail gave way and people must be called.
    """

    kind: CommandKind | None
    because: str = ""
    breaker: bool = False


def decide(action: Action, cause: Cause, step_now: int, rails: Rails) -> Decision:
    """What follows from a rule that fires at `step_now`."""
    if action.kind is ActionKind.NOTIFY:
        return Decision(None)
    if action.kind is ActionKind.STOP:
        return _stop(rails, "")
    if stuck := _broken(rails.past, cause, step_now):
        return replace(_stop(rails, stuck), breaker=True)
    if obstacle := _obstacle(rails):
        return _stop(rails, f"{obstacle}, so it is stopped")
    return Decision(CommandKind.ROLLBACK)


def _obstacle(rails: Rails) -> str:
    """What stands in the way of a rollback of this run, in words; empty when nothing does."""
    if not rails.automatic_rollback:
        return "the run's policy does not allow automatic rollbacks"
    if CommandKind.ROLLBACK not in rails.capabilities:
        return f"the run cannot roll back ({rails.incapable_because or 'not supported'})"
    return "" if rails.has_target else "there is no sound checkpoint older than the first sign"


def _stop(rails: Rails, because: str) -> Decision:
    if CommandKind.STOP in rails.capabilities:
        return Decision(CommandKind.STOP, because)
    reason = rails.incapable_because or "this integration cannot be stopped"
    nothing = f"nothing can be done from here: {reason}"
    return Decision(None, f"{because}; {nothing}" if because else nothing, breaker=True)


def _broken(past: Iterable[PastRollback], cause: Cause, step_now: int) -> str:
    """Which guard rail an automatic rollback would break, in words; empty when none."""
    made = tuple(past)
    if len(made) >= MOST_ROLLBACKS:
        return f"{len(made)} automatic rollbacks have not cured this run, and no more than {MOST_ROLLBACKS} are made"
    trained = [step_now - each.target_step for each in made if each.cause.is_same(cause)]
    if trained and min(trained) < STEPS_BETWEEN:
        ago = max(0, min(trained))
        return f"the same rule had the run rolled back {ago} steps ago, and it is done once in {STEPS_BETWEEN} steps"
    return ""


def is_late(sent_at: float, newest_time: float | None) -> bool:
    """Whether a batch has waited before it was sent: both times are of the one clock of its process, which may be wrong.

    A clock that jumps may make it look so, or hide it for one heartbeat; nothing worse follows than that an action waits for
    that heartbeat.
    """
    return newest_time is not None and sent_at - newest_time > LATE.total_seconds()


def is_behind(next_seq: int, made_seq: int) -> bool:
    """Whether a process has made records that are not stored yet, as far as it has said: its newest step is not judged."""
    return made_seq >= next_seq
