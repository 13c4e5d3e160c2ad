"""What a training is told and what becomes of it: commands taken, agreed on, done and answered, on all of its ranks."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import torch

from trainer_agent.checkpoints.rollback import Target
from trainer_agent.checkpoints.saves import Saves
from trainer_agent.guest.voice import Voice
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks
from trainer_agent.wire import crash
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Report, Scalar, Unable, Verdict
from trainer_agent.wire.vocabulary import CommandKind, CommandState, EndReason, Phase

from .agreement import Agreement, Ways
from .control import Control, Speaker
from .decisions import Act, Decision
from .going_on import GoOn
from .journal import Intent, Journal, JournalState, Overrides, is_stop
from .way_back import WayBack

INSPECT_SECONDS = 30.0
"""How long a rollback or the end of a training waits for the last checkpoint to be inspected."""


class Listener(Speaker, Protocol):
    """What of the monitor is needed here."""

    def verdicts(self) -> Mapping[str, Verdict]:
        """The server's verdicts, by checkpoint id."""

    def waiting(self) -> tuple[Command, ...]:
        """The commands that have come and were not taken yet."""


class Orders:
    """Thread: training, all of it."""

    def __init__(
        self,
        monitor: Listener,
        policy: Policy,
        capabilities: tuple[CommandKind, ...],
        *,
        ranks: Ranks,
        agree_every: int,
        saves: Saves,
        way: WayBack,
        apply: Callable[[Overrides], None] = lambda _: None,
        journal: Journal | None = None,
    ) -> None:
        self._monitor, self._ranks, self._saves, self._way = monitor, ranks, saves, way
        self._apply, self._journal = apply, journal or Journal(None, JournalState())
        self._capabilities = capabilities
        self._control = Control(
            monitor,
            policy,
            capabilities,
            find=lambda command, step: ranks.while_they_wait(lambda: way.find(command, step, INSPECT_SECONDS)),
            check=lambda target: ranks.while_they_wait(lambda: way.check(target)),
            idle=self._idle,
            apply=apply,
            journal=self._journal,
        )
        self.agreement = Agreement(ranks, self._control, Ways(way.see, way.undo, self._part, self._follow), agree_every)

    def take_up(self, goes_on: GoOn | None) -> Decision | None:
        """Deals with what an earlier process of this run has begun; a stop that is to be done before the first step.

        Args:
            goes_on: where the training goes on, as `going_on` has chosen it; None where the script has said it itself.
        """
        told, intent = self._journal.state.result, self._journal.state.intent
        if told is not None and self._ranks.leads:
            self._monitor.record(
                Report(told.command_id, told.state, time.time(), told.step, told.reason, told.checkpoint_id, told.weights_sha256)
            )
        if intent is None:
            return None
        if goes_on is not None and goes_on.ends is not None:
            self._way.take_up(goes_on, intent)
            return None
        if goes_on is not None and goes_on.stops and intent.command.kind in self._capabilities:
            return Decision(
                Act.STOP, "stopped before its first step: the stop was begun by the process before", command=intent.command
            )
        with suppress(OSError):  # this process goes on without the change; only a later one would have it back
            self._way.abandon(intent)
        if self._ranks.leads:
            self._control.answer(intent.command.command_id, CommandState.FAILED, intent.step, why_not(intent, goes_on))
        return None

    def goes_on_with(self, decision: Decision, step: int) -> None:
        """Says that what an earlier process had begun is being done."""
        if decision.command is not None and self._ranks.leads:
            self._control.report(decision.command, CommandState.RUNNING, step)

    def leave_for(self, decision: Decision) -> Target | None:
        """Where the training goes back to, if it does."""
        if decision.target is not None:
            self._way.leave(decision.target)
        return decision.target

    def targets(self) -> frozenset[str]:
        """The checkpoints that a command goes back to which waits, is in hand or under way."""
        commands = (*self._monitor.waiting(), self._control.in_hand)
        named = {each.rollback.checkpoint_id for each in commands if each is not None and each.rollback is not None}
        leaving = self._way.unfinished
        return frozenset(named | ({leaving.payload.checkpoint_id} if leaving is not None else set()))

    @property
    def is_leaving(self) -> bool:
        """Whether a target waits for the loop to begin at it."""
        return self._way.is_leaving

    def take_leaving(self) -> Target | None:
        """Where the loop that begins now was sent back to; None when it was no rollback."""
        return self._way.take_leaving()

    def arrive(self, target: Target, model: torch.nn.Module) -> dict[str, Scalar]:
        """Compares what was loaded; what is different from now on."""
        return self._way.arrive(target, model)

    def saved(self, decision: Decision, checkpoint_id: str, step: int) -> None:
        """A checkpoint was saved, perhaps because a command wanted it."""
        if decision.act is Act.SAVE and decision.command is not None:
            self._control.answer(decision.command.command_id, CommandState.SUCCEEDED, step, checkpoint_id=checkpoint_id)

    def not_saved(self, decision: Decision, step: int, reason: str) -> None:
        """A checkpoint that was due could not be saved."""
        if decision.act is Act.SAVE and decision.command is not None:
            self._control.report(decision.command, CommandState.FAILED, step, reason)

    def failed_to_load(self, step: int | None, reason: str) -> None:
        """The target cannot be loaded; nothing was touched."""
        target = self._way.give_up()
        if target is not None:
            self._control.answer(target.command_id, CommandState.FAILED, step, reason)

    def confirm_rollback(self, step: int) -> None:
        """The first step of the new segment is done: the rollback is, too."""
        outcome = self._way.take_outcome()
        if outcome is None:
            return
        target, result = outcome
        crash.reach("rollback.first_step_done")
        problem = self.agreement.everyones(result.problem)
        self._control.answer(
            target.command_id,
            CommandState.FAILED if problem else CommandState.SUCCEEDED,
            step,
            problem or result.remark,
            checkpoint_id=target.payload.checkpoint_id,
            weights_sha256=result.weights_sha256,
        )

    def answer_last(
        self, decision: Decision, saved: str | None, step: int | None, reason: EndReason, detail: str, *, not_saved: str = ""
    ) -> None:
        """Answers what was waiting or running when the training ended.

        Args:
            saved: the checkpoint that a stop has left.
            not_saved: why it has left none, though it was to.
        """
        while (late := self._monitor.take_command()) is not None:
            self._control.report(late, CommandState.REJECTED, step, "the training ended before the next step boundary")
        target = self._way.unfinished
        if target is not None:
            with suppress(OSError):  # nothing was trained on the changed data, unless the segment has begun
                self._way.give_up()
            self._control.answer(target.command_id, CommandState.FAILED, step, f"the training ended: {detail}")
        command = decision.command
        if command is None:
            return
        if target is None and decision.target is not None:
            with suppress(OSError):  # the loop was never left for it, and the data go on as they were
                self._way.undo(decision.target)
        if reason is EndReason.STOPPED_BY_COMMAND and (saved or not_saved or not decision.saves):
            text = (
                f"stopped; nothing was saved: {not_saved}" if not_saved else "" if saved and decision.saves else decision.reason
            )
            self._control.answer(command.command_id, CommandState.SUCCEEDED, step, text, checkpoint_id=saved)
        else:
            text = detail or "the training ended before it was done"
            self._control.answer(command.command_id, CommandState.FAILED, step, text)

    def _idle(self) -> None:
        """While a dead run is held."""
        self._saves.settle()
        self._ranks.wait_on()

    def _follow(self, decision: Decision) -> None:
        """Does on another rank what rank 0 has settled."""
        if decision.overrides is not None:
            self._apply(decision.overrides)
        if decision.act is Act.PAUSE:
            self._monitor.set_phase(Phase.PAUSED)

    def _part(self, step: int, problem: str) -> None:
        """The ranks can no longer agree."""
        if self._ranks.leads:
            Voice().once("apart", f"the ranks cannot agree any more ({problem}): the training is watched, and obeys no command")
            self._monitor.record(Unable(f"the ranks cannot agree any more: {problem}", time.time(), step))


def why_not(intent: Intent, goes_on: GoOn | None) -> str:
    """Why a command that an earlier process had begun is not brought to its end."""
    if goes_on is None:
        return "the process that had begun it ended, and the script says itself where the training goes on"
    target = intent.command.rollback.checkpoint_id if intent.command.rollback is not None else ""
    fault = next((each for each in goes_on.passed_over if each.startswith(f"{target}: ")), "") if target else ""
    if fault:
        return f"the process that had begun it ended, and its target is not fit any more: {fault}"
    late = ", and its time is over" if is_stop(intent) else ""
    return f"the process that had begun it ended before it was done{late}"
