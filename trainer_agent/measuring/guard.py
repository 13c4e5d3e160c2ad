"""When a run is dead. Pure; asked once for each step, with the raw numbers of that step.

    alive -> dead     at once        the raw loss is not finite and no loss scaler protects the weights
    alive -> dead     k in a row     steps with a non-finite loss or skipped by the scaler, where one does
    alive -> dead     before a save  weights are not finite (`weights_not_finite`)

One skipped step is how a loss scaler works, and at the start it looks for its scale by skipping: a streak of skipped steps
with a finite loss that began in the first `SEARCH_STEPS` steps may be `SEARCH_STREAK` long. A dead run stays dead until a
rollback makes a fresh state. A NaN is only ever asked about with `isfinite`.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

SEARCH_STEPS = 100
SEARCH_STREAK = 16
"""From 65,536 down to 1 in halvings."""


class DeathCause(StrEnum):
    """Why a run is dead."""

    LOSS = "loss_not_finite"
    STREAK = "steps_in_a_row"
    WEIGHTS = "weights_not_finite"


@dataclass(frozen=True, slots=True)
class Death:
    """A run is dead: since which step, and why, in a clause with numbers."""

    step: int
    cause: DeathCause
    reason: str


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The numbers of one step that decide. `loss` is the raw one, None when nothing told it; `skipped` by the scale's fall."""

    step: int
    loss: float | None
    skipped: bool = False
    has_scaler: bool = False


@dataclass(frozen=True, slots=True)
class GuardState:
    """The streak that ends at the last step: how long, since when, and how much of its end had a non-finite loss."""

    streak: int = 0
    since: int = 0
    nonfinite_streak: int = 0
    death: Death | None = None


def step(state: GuardState, facts: StepFacts, skipped_steps: int) -> GuardState:
    """The state after `facts`; its `death` is set from the step on at which the run counts as dead."""
    nonfinite = facts.loss is not None and not math.isfinite(facts.loss)
    if state.death is not None:
        return state
    if not (nonfinite or facts.skipped):
        return GuardState()
    grown = GuardState(
        streak=state.streak + 1,
        since=state.since if state.streak else facts.step,
        nonfinite_streak=state.nonfinite_streak + 1 if nonfinite else 0,
    )
    return replace(grown, death=_death(grown, facts, skipped_steps))


def _death(state: GuardState, facts: StepFacts, skipped_steps: int) -> Death | None:
    if state.nonfinite_streak and not facts.has_scaler:
        return Death(facts.step, DeathCause.LOSS, f"the loss is not finite at step {facts.step}, and no loss scaler protects")
    if state.nonfinite_streak < skipped_steps and state.streak < _limit(state, skipped_steps):
        return None
    return Death(facts.step, DeathCause.STREAK, f"{state.streak} steps in a row without an update, since step {state.since}")


def _limit(state: GuardState, skipped_steps: int) -> int:
    return max(skipped_steps, SEARCH_STREAK + 1) if state.since <= SEARCH_STEPS else skipped_steps


def weights_not_finite(state: GuardState, step: int, tensor: str) -> GuardState:
    """The state after a look at the weights before a save found a tensor with non-finite values."""
    death = Death(step, DeathCause.WEIGHTS, f"the weights are not finite before the save at step {step} ({tensor})")
    return state if state.death is not None else replace(state, death=death)


def sick_because(state: GuardState) -> str:
    """Why a checkpoint saved now is no place to go back to; empty when there is no sign. One skipped step is none."""
    if state.death is not None:
        return f"saved while the run was dead: {state.death.reason}"
    if state.nonfinite_streak:
        return f"the loss was not finite for {state.nonfinite_streak} steps up to the save"
    if state.streak > 1 and state.since > SEARCH_STEPS:
        return f"the last {state.streak} steps before the save were skipped"
    return ""
