"""What happens at a step boundary: a command, a dead run, or nothing.

    command   dead run        policy          outcome
    stop      no              obeys           stop, with a checkpoint
    stop      yes             obeys           stop, without one: it would push a good one out of the rotation
    rollback  any             obeys           roll back, unless the target is refused
    any       any             does not obey   rejected, go on
    none      yes             stop            stop, without a checkpoint
    none      yes             hold            wait here for a command, then stop
    none      yes             continue        go on
    none      no              any             go on

`decide` is pure. `Control` gets the commands, says on the wire what becomes of them, and waits where a run is held.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .guard import Death
from .interrupts import let_pass
from .policy import Policy
from .ranks import Apart
from .rollback import Refused, Target
from .voice import Voice
from .wire.commands import Command
from .wire.messages import Record, Report
from .wire.vocabulary import CommandKind, CommandState, Phase

HOLD_SLICE_SECONDS = 1.0
_IN_VAIN = frozenset({CommandState.REJECTED, CommandState.FAILED})


class Act(StrEnum):
    """What is done at a boundary."""

    GO_ON = "go_on"
    STOP = "stop"
    STOP_DEAD = "stop_dead"
    ROLL_BACK = "roll_back"
    HOLD = "hold"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Decision:
    """An act with its reason. `saves` says whether a stop saves first; `target` is where a rollback goes."""

    act: Act = Act.GO_ON
    reason: str = ""
    saves: bool = False
    command: Command | None = None
    target: Target | None = None


def decide(command: Command | None, death: Death | None, policy: Policy, capabilities: tuple[CommandKind, ...]) -> Decision:
    """What the table above says. A rollback's target is still to be found."""
    if command is not None:
        if command.kind not in capabilities:
            return Decision(Act.REJECT, f"this run does not obey {command.kind}", command=command)
        if command.kind is CommandKind.ROLLBACK:
            return Decision(Act.ROLL_BACK, command.reason, command=command)
        reason = f"nothing was saved: {death.reason}" if death else command.reason
        return Decision(Act.STOP, reason, saves=death is None, command=command)
    if death is None or not policy.acts_on_dead:
        return Decision()
    return Decision(Act.HOLD if policy.on_dead == "hold" else Act.STOP_DEAD, death.reason)


class Speaker(Protocol):
    """What of the monitor is needed here."""

    def record(self, record: Record) -> None:
        """Takes a record."""

    def set_phase(self, phase: Phase) -> None:
        """Says what the process does."""

    def take_command(self) -> Command | None:
        """The next command, without waiting."""

    def wait_for_command(self, timeout_seconds: float) -> Command | None:
        """The next command, waited for."""


class Control:
    """Decides at each boundary. `find` gives the target of a rollback or raises `Refused`; `check` reads its files."""

    def __init__(
        self,
        monitor: Speaker,
        policy: Policy,
        capabilities: tuple[CommandKind, ...],
        *,
        find: Callable[[Command, int], Target],
        check: Callable[[Target], None],
        idle: Callable[[], None],
    ) -> None:
        self._monitor = monitor
        self._policy = policy
        self._capabilities = capabilities
        self._find = find
        self._check = check
        self._idle = idle
        self.in_hand: Command | None = None
        """Taken and not yet answered, at the boundary under way."""
        self._has_begun = False

    def at_boundary(self, step: int, death: Death | None) -> Decision:
        """What to do after `step`. Waits only where the policy holds a dead run. Thread: training."""
        return self.decide_now(self.take(), death, step)

    def take(self) -> Command | None:
        """The next command, for `decide_now`."""
        return self._hand(self._monitor.take_command())

    def decide_now(self, command: Command | None, death: Death | None, step: int) -> Decision:
        """What to do after `step` about a command that was taken."""
        decision = self._settle(command, death, step)
        return self._hold(step, death) if decision.act is Act.HOLD else decision

    def give_up(self, step: int, reason: str) -> None:
        """The command in hand cannot be done after all, and has changed nothing."""
        command, self.in_hand = self.in_hand, None
        if command is not None:
            self.report(command, CommandState.FAILED if self._has_begun else CommandState.REJECTED, step, reason)
            self._monitor.set_phase(Phase.TRAINING)

    def _hand(self, command: Command | None) -> Command | None:
        self.in_hand, self._has_begun = command, False
        return command

    def _hold(self, step: int, death: Death | None) -> Decision:
        reason = death.reason if death else ""
        seconds = f"{self._policy.hold_seconds:g} s"
        Voice().once("held", f"the run is dead at step {step}, and waits up to {seconds} for a command: {reason}")
        until = time.monotonic() + self._policy.hold_seconds
        while (left := until - time.monotonic()) > 0:
            self._monitor.set_phase(Phase.HOLDING)
            command = self._hand(self._monitor.wait_for_command(min(left, HOLD_SLICE_SECONDS)))
            self._idle()
            decision = self._settle(command, death, step)
            if decision.act is not Act.HOLD:
                return decision
        return Decision(Act.STOP_DEAD, f"{reason}; held for {seconds} and told nothing")

    def _settle(self, command: Command | None, death: Death | None, step: int) -> Decision:
        """The decision, its command answered. A refused command leaves what would have been without it."""
        decision = decide(command, death, self._policy, self._capabilities)
        if command is None:
            return decision
        if decision.act is Act.ROLL_BACK:
            return self._try_rollback(decision, command, step) or decide(None, death, self._policy, self._capabilities)
        if decision.act is Act.REJECT:
            self.in_hand = None
            self.report(command, CommandState.REJECTED, step, decision.reason)
            return decide(None, death, self._policy, self._capabilities)
        self._begin(command, step)
        return decision

    def _begin(self, command: Command, step: int) -> None:
        self._has_begun = True
        self.report(command, CommandState.RUNNING, step)

    def _try_rollback(self, decision: Decision, command: Command, step: int) -> Decision | None:
        """None when it was refused, which has been said then."""
        refused_as = CommandState.REJECTED
        try:
            target = self._find(command, step)
            self._monitor.set_phase(Phase.ROLLING_BACK)
            self._begin(command, step)
            refused_as = CommandState.FAILED
            self._check(target)
        except Apart:
            raise
        except Exception as problem:  # whatever it is, the command is answered and the training goes on
            self.in_hand = None
            ours = "" if isinstance(problem, Refused) else f"an error of LossGuard, {type(problem).__name__}: "
            self.report(command, refused_as, step, f"{ours}{problem}")
            self._monitor.set_phase(Phase.TRAINING)
            let_pass(problem)
            return None
        return Decision(Act.ROLL_BACK, decision.reason, command=command, target=target)

    def report(self, command: Command, state: CommandState, step: int | None, reason: str = "") -> None:
        """Says how far a command is; that it comes to nothing, on the terminal too."""
        if state in _IN_VAIN:
            Voice().once("in vain", f"{command.kind} {state} at step {step}: {reason}")
        self.answer(command.command_id, state, step, reason)

    def answer(
        self,
        command_id: str,
        state: CommandState,
        step: int | None,
        reason: str = "",
        *,
        checkpoint_id: str | None = None,
        weights_sha256: str | None = None,
    ) -> None:
        """Says what became of a command."""
        self._monitor.record(Report(command_id, state, time.time(), step, reason, checkpoint_id, weights_sha256))
