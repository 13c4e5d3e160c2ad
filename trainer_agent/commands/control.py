"""Gets the commands at a step boundary, has them decided on (`decisions`), and says on the wire what becomes of them.

    taken -> refused                          reported as rejected, or as failed once it had begun
    taken -> begun -> settled | left to the integration -> answered

What is begun is written into the journal before it is said; its end is said before it is written there, or after it (see
`answer`). Where a run is paused, or dead and held, this waits for the next command.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from trainer_agent.checkpoints.rollback import Refused, Target
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.guest.voice import Voice
from trainer_agent.measuring.guard import Death
from trainer_agent.policy import Policy
from trainer_agent.ranks import Apart
from trainer_agent.wire import crash
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Record, Report
from trainer_agent.wire.vocabulary import CommandKind, CommandState, Phase

from .decisions import LEAVES, Act, Decision, Standing, decide
from .journal import Begun, Ended, Intent, Journal, JournalState, Overrides, Result

WAIT_SLICE_SECONDS = 1.0
_IN_VAIN = frozenset({CommandState.REJECTED, CommandState.FAILED})
_ENDS = _IN_VAIN | {CommandState.SUCCEEDED}


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
    """Decides at each boundary. `find` gives the target of a rollback or raises `Refused`; `check` gets it ready."""

    def __init__(
        self,
        monitor: Speaker,
        policy: Policy,
        capabilities: tuple[CommandKind, ...],
        *,
        find: Callable[[Command, int], Target],
        check: Callable[[Target], None],
        idle: Callable[[], None],
        apply: Callable[[Overrides], None] = lambda _: None,
        journal: Journal | None = None,
    ) -> None:
        self._monitor = monitor
        self._policy = policy
        self._capabilities = capabilities
        self._find = find
        self._check = check
        self._idle = idle
        self._apply = apply
        self._journal = journal or Journal(None, JournalState())
        self.in_hand: Command | None = None
        """Taken and not yet answered, at the boundary under way."""
        self.is_paused = False
        self._has_begun = False

    # --- one boundary

    def at_boundary(self, step: int, death: Death | None) -> Decision:
        """What to do after `step`. Waits only where the run is paused, or dead and held. Thread: training."""
        decision = self.decide_now(self.take(), death, step)
        while decision.act not in LEAVES:
            self.settle(decision, step)
            decision = self.decide_now(None, death, step)
        self.settle(decision, step)
        return decision

    def take(self) -> Command | None:
        """The next command, for `decide_now`."""
        return self._hand(self._monitor.take_command())

    def decide_now(self, command: Command | None, death: Death | None, step: int) -> Decision:
        """What to do after `step` about a command that was taken, or about none. What it gives is to be settled."""
        decision = self._answered(command, death, step)
        return self._wait(decision, death, step) if decision.command is None and decision.act not in LEAVES else decision

    def settle(self, decision: Decision, step: int) -> None:
        """All ranks do what was decided. Sets, pauses and resumes are done by that, and are answered here."""
        command = decision.command
        if decision.act is not Act.SET:
            self.is_paused = decision.act is Act.PAUSE or decision.again
        if decision.overrides is not None:
            self._apply(decision.overrides)
        if command is None or decision.act not in (Act.SET, Act.PAUSE, Act.GO_ON):
            return
        self.in_hand = None
        self.answer(command.command_id, CommandState.SUCCEEDED, step, self._said(decision, step), overrides=decision.overrides)

    def _said(self, decision: Decision, step: int) -> str:
        how = {Act.PAUSE: "paused", Act.GO_ON: "goes on"}.get(decision.act)
        text = f"{how} at step {step}" if how else f"{decision.reason} from step {step + 1} on"
        Voice().once(f"told {decision.command and decision.command.command_id}", f"{text}, by command")
        return text

    def give_up(self, step: int, reason: str) -> None:
        """The command in hand cannot be done after all, and has changed nothing."""
        command, self.in_hand = self.in_hand, None
        if command is not None:
            self.report(command, CommandState.FAILED if self._has_begun else CommandState.REJECTED, step, reason)
            self._monitor.set_phase(Phase.TRAINING)

    def _hand(self, command: Command | None) -> Command | None:
        self.in_hand, self._has_begun = command, False
        return command

    # --- waiting

    def _wait(self, waiting: Decision, death: Death | None, step: int) -> Decision:
        """The next decision of a run that is paused, or dead and held; the end of it where nobody decides in time."""
        seconds = self._policy.hold_seconds if waiting.act is Act.HOLD else None
        self._say_waiting(waiting, step)
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            self._monitor.set_phase(Phase.HOLDING if waiting.act is Act.HOLD else Phase.PAUSED)
            left = WAIT_SLICE_SECONDS if until is None else max(0.0, min(until - time.monotonic(), WAIT_SLICE_SECONDS))
            command = self._hand(self._monitor.wait_for_command(left))
            self._idle()
            decision = self._answered(command, death, step)
            if decision.command is not None:
                return replace(decision, has_waited=True)
        return Decision(Act.STOP_DEAD, f"{waiting.reason}; held for {seconds:g} s and told nothing")

    def _say_waiting(self, waiting: Decision, step: int) -> None:
        if waiting.act is Act.HOLD:
            seconds = f"{self._policy.hold_seconds:g} s"
            Voice().once("held", f"the run is dead at step {step}, and waits up to {seconds} for a command: {waiting.reason}")

    # --- one command

    def _answered(self, command: Command | None, death: Death | None, step: int) -> Decision:
        """The decision, begun; of a refused command, what would have been without it."""
        standing = Standing(death, self.is_paused, self._journal.state.overrides)
        decision = decide(command, standing, self._policy, self._capabilities)
        if command is None:
            return decision
        if decision.act is Act.ROLL_BACK:
            ready = self._try_rollback(decision, command, step)
        elif decision.act is Act.REJECT:
            self.in_hand, ready = None, None
            self.report(command, CommandState.REJECTED, step, decision.reason)
        else:
            ready = decision
            self._begin(command, step)
        return ready or decide(None, standing, self._policy, self._capabilities)

    def _begin(self, command: Command, step: int, target: Target | None = None) -> None:
        """Notes the intent down, and then says that it is being done: the next process must know all that was said to be begun.

        Raises:
            Refused: a rollback whose intent cannot be written; a restart would not know of it.
        """
        intent = _intent(command, step, target)
        if command.kind is CommandKind.ROLLBACK:
            try:
                self._journal.note(Begun(intent))
            except OSError as error:
                raise Refused(f"it cannot be noted down before it is done: {error.strerror or error}") from None
            crash.reach("rollback.intended")
        else:
            self._journal.note_anyway(Begun(intent))
            if command.kind is CommandKind.STOP:
                crash.reach("stop.intended")
        self._has_begun = True
        self.report(command, CommandState.RUNNING, step)

    def _try_rollback(self, decision: Decision, command: Command, step: int) -> Decision | None:
        """None when it was refused, which has been said then."""
        try:
            target = self._find(command, step)
            self._monitor.set_phase(Phase.ROLLING_BACK)
            self._begin(command, step, target)
            self._check(target)
        except Apart:
            raise
        except Exception as problem:  # whatever it is, the command is answered and the training goes on
            self.in_hand = None
            ours = "" if isinstance(problem, Refused) else f"an error of LossGuard, {type(problem).__name__}: "
            refused_as = CommandState.FAILED if self._has_begun else CommandState.REJECTED
            self.report(command, refused_as, step, f"{ours}{problem}")
            self._monitor.set_phase(Phase.TRAINING)
            let_pass(problem)
            return None
        crash.reach("rollback.ready")
        return Decision(Act.ROLL_BACK, decision.reason, command=command, target=target)

    # --- answers

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
        overrides: Overrides | None = None,
    ) -> None:
        """Says what became of a command, and writes it down where it was begun.

        Said first, so that a process that dies in between does it again. Two ends are written down first, and the next process
        tells them again: what stays in force, because it must train with what the server was told of; and a failure, because
        what the server calls failed must not be done after all.
        """
        said = Report(command_id, state, time.time(), step, reason, checkpoint_id, weights_sha256)
        is_written_first = overrides is not None or state in _IN_VAIN
        if is_written_first:
            self._end(said, overrides)
        self._monitor.record(said)
        if not is_written_first:
            self._end(said)

    def _end(self, said: Report, overrides: Overrides | None = None) -> None:
        begun = self._journal.state.intent
        if said.state in _ENDS and begun is not None and begun.command.command_id == said.command_id:
            _reached(begun.command.kind)
            result = Result(said.command_id, said.state, said.step, said.reason, said.checkpoint_id, said.weights_sha256)
            self._journal.note_anyway(Ended(result, overrides))


def _intent(command: Command, step: int, target: Target | None) -> Intent:
    now = time.time()
    intent = Intent(command, step, now, now + command.execute_within_seconds)
    return intent if target is None else replace(intent, changes=target.changes_text, changes_before=target.changes_before)


def _reached(kind: CommandKind) -> None:
    if kind is CommandKind.ROLLBACK:
        crash.reach("rollback.answered")
    elif kind is CommandKind.STOP:
        crash.reach("stop.answered")
