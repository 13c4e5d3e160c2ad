"""The step boundaries of one training: what is decided at each, and what a save that belongs to it leads to.

    step_ended --> go on | stop | roll back          the integration does it
        |
       save --> saved | not_saved --> save_over --> decided again, where the run is paused; else go on

Whether the run is dead is `health`'s to know, and what becomes of a command `orders`'s. Here lies what was decided last, until it
is done.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from trainer_agent.checkpoints.rollback import Target
from trainer_agent.commands.decisions import Act, Decision
from trainer_agent.commands.going_on import GoOn
from trainer_agent.commands.orders import Orders
from trainer_agent.measuring.guard import Death
from trainer_agent.measuring.health import Health
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks
from trainer_agent.wire import crash
from trainer_agent.wire.vocabulary import EndReason


class Boundary:
    """Thread: training."""

    def __init__(
        self, orders: Orders, health: Health, policy: Policy, ranks: Ranks, *, at_waited: Callable[[], None] = lambda: None
    ) -> None:
        """`at_waited` is called where the training has stood still until something was decided."""
        self.decision = Decision()
        """The last one; until it is done, what is to be done."""
        self._orders, self._agreement, self._health, self._at_waited = orders, orders.agreement, health, at_waited
        self._policy, self._ranks = policy, ranks
        self._stop_at_once: Decision | None = None
        self._stop_saved: str | None = None
        self._saved_here: str | None = None
        self._unsaved = ""

    def take_up(self, goes_on: GoOn | None) -> None:
        """Takes up what an earlier process of the run had begun. `goes_on`: see `Session.begin`."""
        self._stop_at_once = self._orders.take_up(goes_on)
        if self._stop_at_once is not None and goes_on is not None and goes_on.facts is not None:
            self._stop_saved = goes_on.facts.checkpoint_id

    @property
    def stops_at_once(self) -> bool:
        """Whether the loop is to end before its first step."""
        return self._stop_at_once is not None

    def segment_begins(self) -> None:
        """Nothing is decided, but to stop at once."""
        self.decision = self._stop_at_once or Decision()

    def segment_began(self, step: int) -> None:
        """It was told. A stop that is done here takes as long as the script's own end does: the server is to wait for it."""
        if self._stop_at_once is not None:
            self._orders.goes_on_with(self._stop_at_once, step)

    # --- the end of a step

    def step_ended(self, step: int) -> Decision:
        """What is done now. A save ordered at the last boundary, where the trainer decided otherwise, is done at this one."""
        if self._stop_at_once is None and self.decision.act is not Act.SAVE:
            self.decision = self._decided(step)
        return self.decision

    def _decided(self, step: int) -> Decision:
        decision = self._agreement.at_boundary(step, self.death, sick=bool(self._health.sick_because))
        if decision.has_waited:
            self._at_waited()
        return decision

    @property
    def acts_on_dead(self) -> bool:
        """Not where the ranks are apart: one that stops alone leaves the others waiting for it."""
        return self._policy.acts_on_dead and not self._ranks.problem

    @property
    def death(self) -> Death | None:
        """One that is acted on."""
        return self._health.death if self.acts_on_dead else None

    # --- its save

    def lets_save(self, step: int, model: torch.nn.Module, *, saving: bool, on_all_ranks: bool) -> bool:
        """Whether the trainer saves at the end of an epoch. See `Session.epoch_ended`."""
        if (on_all_ranks or self._ranks.is_alone) and self.acts_on_dead:
            if saving:
                self._health.look_at_weights(step, model)
            if self._agreement.anyone(step, wants=saving and self._health.death is not None):
                return False
        return saving

    @property
    def sick_because(self) -> str:
        """Why a checkpoint saved now is no place to go back to, by the numbers of any rank; empty when there is no sign."""
        other = self._agreement.sick_rank
        return self._health.sick_because or (
            f"the numbers of rank {other} were not good at the save" if other is not None else ""
        )

    def saved(self, checkpoint_id: str, step: int) -> None:
        """The checkpoint that was due is there."""
        if self.decision.act is Act.STOP:
            self._stop_saved = checkpoint_id
            crash.reach("stop.saved")
        self._saved_here = checkpoint_id
        self._orders.saved(self.decision, checkpoint_id, step)

    def not_saved(self, step: int, reason: str) -> None:
        """It could not be saved."""
        self._unsaved, self._saved_here = reason, None
        self._orders.not_saved(self.decision, step, reason)

    def save_over(self, step: int) -> Decision:
        """What follows a save, saved or not: where one was ordered in a pause, the pause goes on. All ranks ask."""
        decision = self.decision
        while decision.act is Act.SAVE:
            decision = self._decided_again(step) if decision.again else Decision()
        self.decision = decision
        return decision

    def _decided_again(self, step: int) -> Decision:
        """The next decision at a boundary whose checkpoint was written, or could not be: it is not tried twice."""
        decision = self._decided(step)
        if not decision.saves:
            return decision
        if decision.act is Act.STOP:
            self._stop_saved = self._saved_here
        elif self._saved_here is not None:
            self._orders.saved(decision, self._saved_here, step)
        else:
            self._orders.not_saved(decision, step, self._unsaved)
        return replace(decision, saves=False)

    # --- what ends the loop

    def take_target(self) -> Target | None:
        """Where the training goes back to, if it does; once."""
        target = self._orders.leave_for(self.decision)
        if target is not None:
            self.decision = Decision()
        return target

    def answer_last(self, step: int | None, reason: EndReason, detail: str) -> None:
        """The training ends: answers what was waiting or running."""
        unsaved = "" if self._stop_saved else self._unsaved
        self._orders.answer_last(self.decision, self._stop_saved, step, reason, detail, not_saved=unsaved)
