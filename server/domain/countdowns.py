"""The time between a rule's decision and its command, in which a person can say no.

    counting -> due | cancelled | withdrawn | overtaken

due         the time was up, or a person said *now*: the command was issued, or refused and the outcome says why
cancelled   a person said no
withdrawn   there is nothing left to do it for: the alert is over, the run has moved on or ended
overtaken   a person gave a command of their own

And the guard rails of what a rule may do by itself. When one of them gives way, the breaker opens: nothing is done, and people
are called.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainer_agent.wire.vocabulary import CommandKind

from .rules import Action, ActionKind

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
class PastRollback:
    """A rollback that a rule has made: which rule, and the step it went back to."""

    rule_id: str
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
    """What a firing rule will do: `kind` None is nothing. `because` says so when that is less than the rule asked for.

    `breaker` is set when a guard rail gave way and people must be called.
    """

    kind: CommandKind | None
    because: str = ""
    breaker: bool = False


def decide(action: Action, rule_id: str, step_now: int, rails: Rails) -> Decision:
    """What follows from a rule that fires at `step_now`."""
    if action.kind is ActionKind.NOTIFY:
        return Decision(None)
    if action.kind is ActionKind.STOP:
        return _stop(rails, "")
    if stuck := _broken(rails.past, rule_id, step_now):
        return Decision(None, stuck, breaker=True)
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
    return Decision(None, f"nothing can be done from here: {reason}", breaker=True)


def _broken(past: Iterable[PastRollback], rule_id: str, step_now: int) -> str:
    """Which guard rail an automatic rollback would break, in words; empty when none."""
    made = tuple(past)
    if len(made) >= MOST_ROLLBACKS:
        return f"{len(made)} automatic rollbacks have not cured this run, and no more than {MOST_ROLLBACKS} are made"
    trained = [step_now - each.target_step for each in made if each.rule_id == rule_id]
    if trained and min(trained) < STEPS_BETWEEN:
        ago = max(0, min(trained))
        return f"the same rule had the run rolled back {ago} steps ago, and it is done once in {STEPS_BETWEEN} steps"
    return ""
