"""What a training is told and what becomes of it: commands taken, agreed on, done and answered, on all of its ranks."""

import time
from collections.abc import Mapping
from typing import Protocol

import torch

from .agreement import Agreement, Ways
from .control import Control, Decision, Speaker
from .policy import Policy
from .ranks import Ranks
from .rollback import Target
from .saves import Saves
from .voice import Voice
from .way_back import WayBack
from .wire.messages import Scalar, Unable, Verdict
from .wire.vocabulary import CommandKind, CommandState, EndReason

INSPECT_SECONDS = 30.0
"""How long a rollback or the end of a training waits for the last checkpoint to be inspected."""


class Listener(Speaker, Protocol):
    """What of the monitor is needed here."""

    def verdicts(self) -> Mapping[str, Verdict]:
        """The server's verdicts, by checkpoint id."""


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
    ) -> None:
        self._monitor, self._ranks, self._saves, self._way = monitor, ranks, saves, way
        self._control = Control(
            monitor,
            policy,
            capabilities,
            find=lambda command, step: ranks.while_they_wait(lambda: way.find(command, step, INSPECT_SECONDS)),
            check=lambda target: ranks.while_they_wait(lambda: way.check(target)),
            idle=self._idle,
        )
        self.agreement = Agreement(ranks, self._control, Ways(way.see, way.undo, self._part), agree_every)

    def leave_for(self, decision: Decision) -> Target | None:
        """Where the training goes back to, if it does."""
        if decision.target is not None:
            self._way.leave(decision.target)
        return decision.target

    def take_leaving(self) -> Target | None:
        """Where the loop that begins now was sent back to; None when it was no rollback."""
        return self._way.take_leaving()

    def arrive(self, target: Target, model: torch.nn.Module) -> dict[str, Scalar]:
        """Compares what was loaded; what is different from now on."""
        return self._way.arrive(target, model)

    def failed_to_load(self, step: int | None, reason: str) -> None:
        """The target cannot be loaded; nothing was touched."""
        target = self._way.take_leaving()
        if target is not None:
            self._control.answer(target.command_id, CommandState.FAILED, step, reason)

    def confirm_rollback(self, step: int) -> None:
        """The first step of the new segment is done: the rollback is, too."""
        outcome = self._way.take_outcome()
        if outcome is None:
            return
        target, result = outcome
        problem = self.agreement.everyones(result.problem)
        self._control.answer(
            target.command_id,
            CommandState.FAILED if problem else CommandState.SUCCEEDED,
            step,
            problem or result.remark,
            checkpoint_id=target.payload.checkpoint_id,
            weights_sha256=result.weights_sha256,
        )

    def answer_last(self, decision: Decision, saved: str | None, step: int | None, reason: EndReason, detail: str) -> None:
        """Answers what was waiting or running when the training ended. `saved`: the checkpoint that a stop has left."""
        while (late := self._monitor.take_command()) is not None:
            self._control.report(late, CommandState.REJECTED, step, "the training ended before the next step boundary")
        target = self._way.unfinished
        if target is not None:
            self._control.answer(target.command_id, CommandState.FAILED, step, f"the training ended: {detail}")
        command = decision.command
        if command is None:
            return
        if reason is EndReason.STOPPED_BY_COMMAND and (saved or not decision.saves):
            text = "" if saved else decision.reason
            self._control.answer(command.command_id, CommandState.SUCCEEDED, step, text, checkpoint_id=saved)
        else:
            text = detail or "the training ended before it was done"
            self._control.answer(command.command_id, CommandState.FAILED, step, text)

    def _idle(self) -> None:
        """While a dead run is held."""
        self._saves.settle()
        self._ranks.wait_on()

    def _part(self, step: int, problem: str) -> None:
        """The ranks can no longer agree."""
        if self._ranks.leads:
            Voice().once("apart", f"the ranks cannot agree any more ({problem}): the training is watched, and obeys no command")
            self._monitor.record(Unable(f"the ranks cannot agree any more: {problem}", time.time(), step))
