"""What happens at a step boundary: a command, a dead run, a pause, or nothing. Pure.

    command    run       policy         outcome
    stop       alive     obeys          stop, with a checkpoint
    stop       dead      obeys          stop, without one: it would push a good one out of the rotation
    rollback   any       obeys          roll back, unless the target is refused
    save       alive     obeys          save here; a paused run is paused again afterwards
    save       dead      obeys          rejected
    pause      alive     obeys          wait here for a resume, a stop or a rollback, as long as it takes
    pause      dead      obeys          rejected
    resume     paused    obeys          go on
    resume     else      obeys          rejected
    set ...    any       obeys          the next update is made with it; then as without a command
    any        any       does not obey  rejected; then as without a command
    none       dead      stop           stop, without a checkpoint
    none       dead      hold           wait here for a command, then stop
    none       dead      continue       go on
    none       paused    any            wait here
    none       else      any            go on

Dead means that the policy acts on it: under `continue` no run is dead here.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trainer_agent.checkpoints.rollback import Target
from trainer_agent.measuring.guard import Death
from trainer_agent.policy import Policy
from trainer_agent.wire.commands import Command
from trainer_agent.wire.vocabulary import CommandKind

from .journal import NOTHING_OVERRIDDEN, Overrides


class Act(StrEnum):
    """What is done at a boundary."""

    GO_ON = "go_on"
    STOP = "stop"
    STOP_DEAD = "stop_dead"
    ROLL_BACK = "roll_back"
    SAVE = "save"
    SET = "set"
    PAUSE = "pause"
    HOLD = "hold"
    REJECT = "reject"


LEAVES = frozenset({Act.GO_ON, Act.STOP, Act.STOP_DEAD, Act.ROLL_BACK, Act.SAVE})
"""Acts that end a boundary: the training goes on from there, or its integration does what was decided."""
STOPS = frozenset({Act.STOP, Act.STOP_DEAD})


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands at a boundary."""

    death: Death | None = None
    is_paused: bool = False
    overrides: Overrides = NOTHING_OVERRIDDEN


@dataclass(frozen=True, slots=True)
class Decision:
    """An act with its reason. `target` is where a rollback goes; `overrides` are all that hold after a set."""

    act: Act = Act.GO_ON
    reason: str = ""
    saves: bool = False
    """Whether a checkpoint is saved now, before whatever else is done."""
    command: Command | None = None
    target: Target | None = None
    overrides: Overrides | None = None
    again: bool = False
    """Whether the integration asks again after the save: the run is paused."""
    has_waited: bool = False
    """Whether the training stood still at this boundary until it was decided."""

    @property
    def stops(self) -> bool:
        """Whether the training ends here."""
        return self.act in STOPS


def decide(command: Command | None, standing: Standing, policy: Policy, capabilities: tuple[CommandKind, ...]) -> Decision:
    """What the table above says. A rollback's target is still to be found."""
    if command is None:
        return _without(standing, policy)
    if command.kind not in capabilities:
        return Decision(Act.REJECT, f"this run does not obey {command.kind}", command=command)
    if command.kind in (CommandKind.SET_LEARNING_RATE_FACTOR, CommandKind.SET_MAX_GRAD_NORM):
        overrides = overridden(standing.overrides, command.kind, command.value)
        return Decision(Act.SET, set_to(command.kind, overrides), command=command, overrides=overrides)
    return replace(_told(command, standing), command=command)


def _without(standing: Standing, policy: Policy) -> Decision:
    death = standing.death
    if death is not None and policy.acts_on_dead:
        return Decision(Act.HOLD if policy.on_dead == "hold" else Act.STOP_DEAD, death.reason)
    return Decision(Act.PAUSE) if standing.is_paused else Decision()


def _told(command: Command, standing: Standing) -> Decision:
    death, is_paused = standing.death, standing.is_paused
    if command.kind is CommandKind.STOP:
        reason = f"nothing was saved: {death.reason}" if death else command.reason
        return Decision(Act.STOP, reason, saves=death is None)
    if command.kind is CommandKind.ROLLBACK:
        return Decision(Act.ROLL_BACK, command.reason)
    if command.kind is CommandKind.RESUME:
        return Decision() if is_paused else Decision(Act.REJECT, "the run is not paused")
    if death is not None:
        return Decision(Act.REJECT, f"the run is dead: {death.reason}")
    if command.kind is CommandKind.SAVE:
        return Decision(Act.SAVE, command.reason, saves=True, again=is_paused)
    return Decision(Act.REJECT, "the run is paused already") if is_paused else Decision(Act.PAUSE, command.reason)


def overridden(overrides: Overrides, kind: CommandKind, value: float | None) -> Overrides:
    """The overrides after a command has set one. No value, and a factor of 1, are the script's own again."""
    if kind is CommandKind.SET_LEARNING_RATE_FACTOR:
        return replace(overrides, learning_rate_factor=None if value == 1.0 else value)
    return replace(overrides, max_grad_norm=value)


def set_to(kind: CommandKind, overrides: Overrides) -> str:
    """What holds after a set, in a clause."""
    if kind is CommandKind.SET_LEARNING_RATE_FACTOR:
        factor = overrides.learning_rate_factor
        return (
            "the learning rate is the schedule's own"
            if factor is None
            else f"the learning rate is the schedule's times {factor:g}"
        )
    norm = overrides.max_grad_norm
    return "gradients are clipped as the script has it" if norm is None else f"gradients are clipped at a norm of {norm:g}"
