"""The verdict on a checkpoint, and which one to go back to.

    writing -> complete -> sound | unsound | corrupt -> deleted       sound -> unsound, when an earlier onset comes to light

The agent states facts and never changes them; the verdict is derived from the facts and from the earliest sign of trouble
known by now, so it can only get worse as more comes to light. Trouble that a rollback has left behind does not count against
checkpoints of the new segment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

MARGIN_STEPS = 0
"""Extra distance between the target and the first sign. The sign is the *onset* of the earliest alert, not its firing."""

NEEDED_FOR_ROLLBACK = ("model", "optimizer")


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with its reason, a clause with a number."""

    state: CheckpointState
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint as the choice of a target sees it: `step` on the present effective curve."""

    checkpoint_id: str
    step: int
    judged: Judged


@dataclass(frozen=True, slots=True)
class Choice:
    """The proposed target (None when there is none), and why each newer one was passed over."""

    target: Candidate | None
    passed_over: tuple[tuple[Candidate, str], ...]


def judge(facts: CheckpointSaved, first_sign_step: int | None, *, needs_scaler: bool) -> Judged:
    """The verdict on `facts`, given the step of the earliest sign in the checkpoint's own segment (None: no sign)."""
    if facts.state is not CheckpointState.COMPLETE:
        return Judged(facts.state, facts.problem or f"the agent says {facts.state}")
    fault = next(_faults(facts, first_sign_step, needs_scaler), None)
    if fault is not None:
        return Judged(CheckpointState.UNSOUND, fault)
    if facts.nonfinite_weights is None or facts.nonfinite_optimizer is None:
        return Judged(CheckpointState.COMPLETE, "weights or optimizer not checked")
    scaler = ", scaler present" if "scaler" in facts.parts else ""
    return Judged(CheckpointState.SOUND, f"weights and optimizer finite{scaler}")


def _faults(facts: CheckpointSaved, first_sign_step: int | None, needs_scaler: bool) -> Iterator[str]:  # noqa: FBT001
    """What makes a complete checkpoint unfit, the gravest first."""
    for count, what in ((facts.nonfinite_weights, "weights"), (facts.nonfinite_optimizer, "optimizer values")):
        if count:
            yield f"{count} {what} are not finite"
    needed = (*NEEDED_FOR_ROLLBACK, "scaler") if needs_scaler else NEEDED_FOR_ROLLBACK
    missing = [part for part in needed if part not in facts.parts]
    if missing:
        yield f"holds no {' and no '.join(missing)}, so a rollback would not be exact"
    if facts.sick_because:
        yield facts.sick_because
    if first_sign_step is not None and facts.step >= first_sign_step:
        yield f"saved {facts.step - first_sign_step} steps after the first sign ({first_sign_step})"


def choose_target(candidates: Iterable[Candidate], first_sign_step: int | None) -> Choice:
    """The newest sound checkpoint older than the first sign, less the margin."""
    passed: list[tuple[Candidate, str]] = []
    for candidate in sorted(candidates, key=lambda c: c.step, reverse=True):
        if candidate.judged.state is not CheckpointState.SOUND:
            passed.append((candidate, candidate.judged.reason))
        elif first_sign_step is not None and candidate.step >= first_sign_step - MARGIN_STEPS:
            passed.append((candidate, f"not older than the first sign ({first_sign_step})"))
        else:
            return Choice(candidate, tuple(passed))
    return Choice(None, tuple(passed))
