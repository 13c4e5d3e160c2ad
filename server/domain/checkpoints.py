"""The verdict on a checkpoint, and which one to go back to.

    writing -> complete -> sound | unsound | corrupt -> deleted       sound -> unsound, when an earlier onset comes to light

The agent states facts and never changes them; the verdict is derived from the facts and from the signs of trouble known by
now, so it can only get worse as more comes to light. Trouble that a rollback has left behind does not count against
checkpoints of the new segment.

Effective curve: for each step, the newest segment that covers it. A segment reaches up to the lowest step from which a later
segment started.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState, Severity

from .alerts import FIRED, OPEN, Alert, CloseReason
from .detectors.base import OF_THE_MACHINE

MARGIN_STEPS = 10
"""How far before the first sign a target should lie; where nothing lies that far back, nearer has to do.

Bad data is trained on before it shows: the gradient norm stood out 3 to 8 steps after the first bad batch in the measured
divergences. The sign is the *onset* of the earliest alert, not its firing.
"""

NEEDED_FOR_ROLLBACK = ("model", "optimizer")

FIT = frozenset({CheckpointState.SOUND, CheckpointState.COMPLETE})
"""Verdicts that may still get worse by what the server learns."""

LOOK_BACK_STEPS = 25
"""The data that did it come before the sign: the blow-up follows 17 to 25 steps after the last bad batch (measured)."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with its reason, a clause with a number."""

    state: CheckpointState
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint as the choice of a target sees it."""

    checkpoint_id: str
    segment: int
    step: int
    judged: Judged


@dataclass(frozen=True, slots=True)
class Choice:
    """The proposed target (None when there is none), and why each newer one on the effective curve was passed over."""

    target: Candidate | None = None
    passed_over: tuple[tuple[Candidate, str], ...] = field(default=())


def judge(facts: CheckpointSaved, first_sign_step: int | None, *, needs_scaler: bool) -> Judged:
    """The verdict on `facts`, given the onset of the earliest trouble it was saved in (None: none known)."""
    if facts.state is not CheckpointState.COMPLETE:
        return Judged(facts.state, facts.problem or f"the agent says {facts.state}")
    fault = next(_faults(facts, first_sign_step, needs_scaler=needs_scaler), None)
    if fault is not None:
        return Judged(CheckpointState.UNSOUND, fault)
    if facts.nonfinite_weights is None or facts.nonfinite_optimizer is None:
        return Judged(CheckpointState.COMPLETE, "weights or optimizer not checked")
    scaler = ", scaler present" if "scaler" in facts.parts else ""
    return Judged(CheckpointState.SOUND, f"weights and optimizer finite{scaler}")


def _faults(facts: CheckpointSaved, first_sign_step: int | None, *, needs_scaler: bool) -> Iterator[str]:
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
    if first_sign_step is not None:
        yield f"saved {facts.step - first_sign_step} steps after the first sign ({first_sign_step})"


def worsened(before: Judged, facts: CheckpointSaved, first_sign_step: int | None, *, needs_scaler: bool) -> Judged:
    """`before`, or the verdict by what is known now where that is worse. Facts are never forgotten, signs may be."""
    now = judge(facts, first_sign_step, needs_scaler=needs_scaler)
    return now if before.state in FIT and now.state is CheckpointState.UNSOUND else before


def reaches(segment: int, from_steps: Mapping[int, int]) -> int | None:
    """The last step of `segment` on the effective curve; None when no later segment cut it. `from_steps` by segment."""
    return min((step for later, step in from_steps.items() if later > segment), default=None)


def is_superseded(segment: int, step: int, from_steps: Mapping[int, int]) -> bool:
    """Whether the step lies on a stretch that a later segment has replaced."""
    last = reaches(segment, from_steps)
    return last is not None and step > last


def sign_against(segment: int, step: int, alerts: Iterable[Alert], from_steps: Mapping[int, int]) -> int | None:
    """The onset of the earliest trouble during which a checkpoint of `segment` at `step` was saved; None when there was none.

    Counted are alerts that fired with severity warning or above. Trouble that was over before the save does not count (the end
    of the run and a rewind are no end of the trouble), nor trouble of an earlier segment unless it lies on the stretch from which
    this one went on and was still open then.
    """
    onsets = [
        alert.onset_step
        for alert in alerts
        if _counts(alert)
        and alert.firing_step is not None
        and alert.onset_step <= step
        and (alert.segment == segment or _reached(alert, segment, from_steps))
        and not _over_by(alert, step)
    ]
    return min(onsets, default=None)


def _counts(alert: Alert) -> bool:
    return alert.severity is not Severity.INFO and not alert.trial and alert.detector not in OF_THE_MACHINE


def _over_by(alert: Alert, step: int) -> bool:
    closed = alert.closed_because in (CloseReason.RECOVERED, CloseReason.RULE_CHANGED)
    return closed and alert.resolved_step is not None and alert.resolved_step <= step


def _reached(alert: Alert, segment: int, from_steps: Mapping[int, int]) -> bool:
    """Whether an alert of an earlier segment went on into `segment`."""
    gone = alert.closed_because in (CloseReason.REWOUND, CloseReason.RUN_ENDED, CloseReason.RULE_CHANGED)
    between = {each: step for each, step in from_steps.items() if alert.segment < each <= segment}
    return alert.segment < segment and not gone and not is_superseded(alert.segment, alert.onset_step, between)


def first_sign(alerts: Iterable[Alert]) -> int | None:
    """The onset of the earliest trouble that is open now, pending included: a rollback goes behind it. None: no trouble."""
    return min((each.onset_step for each in alerts if _counts(each) and each.state in OPEN), default=None)


def is_sign(alert: Alert) -> bool:
    """Whether the alert speaks against checkpoints: it has fired, and is more than information."""
    return _counts(alert) and alert.state in FIRED


def choose_target(candidates: Iterable[Candidate], first_sign_step: int | None, from_steps: Mapping[int, int]) -> Choice:
    """The newest sound checkpoint of the effective curve that lies the margin before the first sign, or else before it."""
    present = [each for each in candidates if not is_superseded(each.segment, each.step, from_steps)]
    present.sort(key=lambda each: (each.step, each.segment), reverse=True)
    sound = [each for each in present if each.judged.state is CheckpointState.SOUND]
    sign = first_sign_step
    before = [each for each in sound if sign is None or each.step < sign]
    clear = [each for each in before if sign is None or each.step < sign - MARGIN_STEPS]
    target = next(iter(clear or before), None)
    newer = present if target is None else present[: present.index(target)]
    return Choice(target, tuple((each, _why_passed_over(each, sign)) for each in newer))


def _why_passed_over(candidate: Candidate, sign: int | None) -> str:
    if candidate.judged.state is not CheckpointState.SOUND or sign is None:
        return candidate.judged.reason
    if candidate.step >= sign:
        return f"not older than the first sign ({sign})"
    return f"{sign - candidate.step} steps before the first sign ({sign}): what made it may be in these weights already"


def why_not(candidate: Candidate, choice: Choice, from_steps: Mapping[int, int]) -> str:
    """Why a rollback would not go to this checkpoint now, as a clause; empty of the target."""
    target = choice.target
    if target is not None and candidate.checkpoint_id == target.checkpoint_id:
        return ""
    for each, why in choice.passed_over:
        if each.checkpoint_id == candidate.checkpoint_id:
            return why
    if candidate.judged.state is not CheckpointState.SOUND:
        return candidate.judged.reason
    if is_superseded(candidate.segment, candidate.step, from_steps):
        return "a rollback has left its stretch behind"
    return "" if target is None else f"older than the target (step {target.step})"


def skip_from(target_step: int, onset_step: int | None) -> int:
    """The first step whose batches a rollback with `data = skip` passes over; the last is the step at which the run is left.

    It lies a little before the onset, since the data that did it come before the sign; without a known onset, all that the
    rollback gives up is skipped. The end is left to the agent: it trains on until the command reaches it, and those batches
    belong to the window.
    """
    return target_step + 1 if onset_step is None else max(target_step + 1, onset_step - LOOK_BACK_STEPS)
