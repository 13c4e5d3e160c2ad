"""One training under watch, from its start to its last word, whatever framework runs the loop.

    begin -> segment_begins -> (step_ended | save_coming | saved | evaluated)* -> end
                 ^                                                       |
                 +------------------ a rollback or restart -------------+

It puts the parts together, and each event of a training goes to those it concerns:

    probes give the numbers    health judges them     monitor and ledger take them    boundary has what is decided
    segments are opened        saves are looked after, and looked into                orders are taken and answered

It touches no trainer: what is decided is a value, and the integration acts on it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainer_agent.checkpoints.retention import Turn
from trainer_agent.checkpoints.rollback import Target
from trainer_agent.checkpoints.rotation import Outlook, Rotation
from trainer_agent.checkpoints.saves import Saves
from trainer_agent.commands.decisions import Act, Decision
from trainer_agent.commands.going_on import GoOn
from trainer_agent.commands.in_force import InForce, SetNorm
from trainer_agent.commands.journal import Journal, JournalState, Judged
from trainer_agent.commands.orders import INSPECT_SECONDS, Orders
from trainer_agent.commands.way_back import WayBack
from trainer_agent.data.leaving_out import Source
from trainer_agent.data.plan import DataPlan
from trainer_agent.data.vocabulary import describe
from trainer_agent.guest.ends import LEFT
from trainer_agent.guest.interrupts import suppress_ours
from trainer_agent.guest.voice import Voice
from trainer_agent.identity import Identity
from trainer_agent.ledger.ledger import Ledger
from trainer_agent.measuring.health import Health
from trainer_agent.measuring.probes import Probes, Reading
from trainer_agent.measuring.system import SystemSampler
from trainer_agent.monitor import Monitor
from trainer_agent.policy import Policy
from trainer_agent.ranks import Ranks, named
from trainer_agent.wire import crash
from trainer_agent.wire.messages import Verdict
from trainer_agent.wire.vocabulary import CommandKind, EndReason, Phase

from .boundary import Boundary
from .run_segments import Attributes, RunSegments
from .saving import Saving

INSPECT_SECONDS_AFTER_FAILURE = 5.0
"""How long the end of a training that failed waits for its last checkpoint to be inspected."""


class Session:
    """Thread: training, all of it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        identity: Identity,
        policy: Policy,
        capabilities: tuple[CommandKind, ...],
        output_dir: Path,
        probes: Probes,
        plan: DataPlan,
        source: Source,
        ranks: Ranks | None = None,
        agree_every: int = 1,
        journal: Journal | None = None,
        set_max_grad_norm: SetNorm = lambda _: None,
    ) -> None:
        """`set_max_grad_norm` makes the integration clip at a norm from its next update on; None: as the script has it."""
        self.plan, self.probes = plan, probes
        self._ranks = ranks = ranks or Ranks()
        self._monitor, self._identity = monitor, identity
        self._journal = journal = journal or Journal(None, JournalState(identity.run_id))
        self._in_force, self._health = InForce(journal, set_max_grad_norm), Health(policy.skipped_steps)
        probes.rate_of = self._in_force.rate.effective
        self._sampler = SystemSampler(gpu=lambda: probes.gpu)
        self._saves = Saves(
            output_dir, identity.run_id, monitor.record, leads=ranks.leads, world_size=ranks.world_size, outlook=self._outlook
        )
        self.ledger = Ledger(output_dir / ".lossguard", identity.run_id, ranks.rank, monitor.record, lambda: plan.excluded)
        self._orders = self._made_orders(policy, capabilities, agree_every, source)
        self._agreement = self._orders.agreement
        self.saving = Saving(ranks, self._saves, monitor.record, answer=self.save_failed, apart=self._agreement.part)
        self._boundary = Boundary(self._orders, self._health, policy, ranks, at_waited=self._has_waited)
        self.segments = RunSegments(
            identity, self._agreement, self._in_force, self._saves, self.ledger, leads=ranks.leads, tell=monitor.record
        )
        self._step: int | None = None

    def _made_orders(self, policy: Policy, capabilities: tuple[CommandKind, ...], agree_every: int, source: Source) -> Orders:
        saves, ranks, identity, probes = self._saves, self._ranks, self._identity, self.probes
        way = WayBack(
            saves=saves, identity=identity, plan=self.plan, source=source, probes=probes, verdicts=self._verdicts, rank=ranks.rank
        )
        return Orders(
            self._monitor,
            policy,
            capabilities,
            ranks=ranks,
            agree_every=agree_every,
            saves=saves,
            way=way,
            apply=self._in_force.apply,
            journal=self._journal,
        )

    def begin(self, goes_on: GoOn | None = None) -> None:
        """Starts the threads, and takes up what an earlier life of the run left.

        Args:
            goes_on: where it goes on, as `going_on` chose it; None where the script has said it, or begins anew.
        """
        self._saves.clean()
        if self._identity.is_restart:
            self._saves.load()
            self._monitor.goes_on_with(self._identity.last_segment)
        if self._ranks.leads:
            self._monitor.at_verdicts = lambda known: self._journal.note_anyway(Judged(tuple(known.values())))
        self._monitor.begin()
        self.ledger.start()
        self._boundary.take_up(goes_on)
        self._monitor.set_phase(Phase.STARTING)
        self._sampler.start()

    def expect_end(self) -> None:
        """The loop always comes to `end` when it is through: one that does not was left."""
        self._monitor.at_left = lambda: self.end(EndReason.FAILED, LEFT)

    @property
    def stops_at_once(self) -> bool:
        """Whether the loop is to end before its first step: an earlier process was stopping when it died."""
        return self._boundary.stops_at_once

    @property
    def decision(self) -> Decision:
        """What was decided last, and is to be done until it is done."""
        return self._boundary.decision

    @property
    def is_on_its_way_back(self) -> bool:
        """Whether the loop that begins now goes on from the target of a rollback."""
        return self._orders.is_leaving

    def attach(self, model: torch.nn.Module, optimizer: Any, *, scaler_of: Any = None, look_inside: bool = True) -> None:
        """Sets the hooks on what is trained from here on. `scaler_of`: has the scaler, where the optimizer does not.

        `look_inside`: see `Probes.attach`.
        """
        scaler_of, several = optimizer if scaler_of is None else scaler_of, not self._ranks.is_alone
        self.probes.attach(model, scaler_of, look_inside=look_inside, is_one_of_several=several)
        self._in_force.rate.attach(optimizer)

    def know_tokenizer(self, tokenizer: object) -> None:
        """Its checkpoints tell what the token ids mean; looked at once."""
        self._saves.vocabulary = self._saves.vocabulary or describe(tokenizer)

    def _verdicts(self) -> Mapping[str, Verdict]:
        """The last ones known, also those that an earlier process heard."""
        return {**self._journal.verdicts(), **self._monitor.verdicts()}

    # --- segments

    def segment_begins(self, step: int, model: torch.nn.Module, attributes: Attributes) -> None:
        """The loop is about to run from `step`: for the first time, again after a restart, or after a rollback."""
        target = self._orders.take_leaving()
        self._boundary.segment_begins()
        self._health.begin()
        self.forward_seen()
        self._step = step
        if target is not None:
            crash.reach("rollback.loaded")
            self.segments.arrives(target, step, attributes | self._orders.arrive(target, model))
        else:
            self.segments.begins(step, attributes)
            self._boundary.segment_began(step)
        self._monitor.set_phase(Phase.TRAINING)

    def forward_seen(self) -> None:
        """A forward pass is done, so the precision is known."""
        self.segments.forward_seen(self.probes.precision)

    # --- steps

    def step_ended(self, step: int, model: torch.nn.Module, *, saving: bool, leaving: bool = False) -> Decision:
        """Takes the numbers of the step and says what to do now.

        Args:
            saving: the trainer is about to save.
            leaving: the loop was left in this step, so nothing is decided and no command waited for.
        """
        try:
            return self._step_ended(step, model, saving=saving, leaving=leaving)
        except BaseException:
            self._ranks.leave("a rank did not come through the end of its step")  # or the others would wait for it
            raise

    def _step_ended(self, step: int, model: torch.nn.Module, *, saving: bool, leaving: bool) -> Decision:
        self._step = step
        self.forward_seen()
        self._take(self.probes.end_step(step))
        self.ledger.step_ended(step, self._in_force.rate.factor)
        if saving:
            self._take(self.probes.drain())
        system = self._sampler.take()
        if system:
            self._monitor.log(system, step)
        self._orders.confirm_rollback(step)
        self._saves.take_inspected()
        if saving and self._boundary.acts_on_dead:
            self._health.look_at_weights(step, model)
        decision = Decision() if leaving else self._boundary.step_ended(step)
        if decision.act is not Act.GO_ON:  # what a GPU still has of these steps belongs to this segment
            self._take(self.probes.drain())
        self._saves.all_have_saved()
        self.probes.free()
        return decision

    def _has_waited(self) -> None:
        self._monitor.set_phase(Phase.TRAINING)
        self.probes.restart_clock()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Takes numbers that did not come from the probes; nothing, when there are none."""
        if values:
            self._monitor.log(values, step)

    def set_phase(self, phase: Phase) -> None:
        """Says what the training does now."""
        self._monitor.set_phase(phase)

    def _take(self, readings: list[Reading]) -> None:
        for reading in readings:
            self._monitor.log(reading.values, reading.step)
            self.ledger.numbers(reading.step, reading.values)
            self._health.take(reading)

    # --- checkpoints

    def epoch_ended(self, step: int, model: torch.nn.Module, *, saving: bool, on_all_ranks: bool) -> bool:
        """Whether the trainer saves at the end of an epoch, as it is about to: a dead run would push a good checkpoint out.

        `on_all_ranks`: every rank saves here, and asks. What only some save is let be, or they would wait for each other.
        """
        return self._boundary.lets_save(step, model, saving=saving, on_all_ranks=on_all_ranks)

    def saved(self, step: int) -> None:
        """The trainer has written the checkpoint of `step`."""
        self.saving.came_through()
        together = not self._ranks.is_alone and not self._ranks.problem
        sick = self._boundary.sick_because
        checkpoint_id = self._saves.saved(step, self.segments.number, sick, wait=together, signals=self._health.signals)
        self._boundary.saved(checkpoint_id, step)
        self._saves.settle()
        self.probes.restart_clock()

    def save_failed(self, step: int, reason: str) -> None:
        """A checkpoint that was due could not be saved; the training goes on, or stops as it was told."""
        self._boundary.not_saved(step, reason)

    def save_over(self, step: int) -> Decision:
        """What follows a save, saved or not: where one was ordered in a pause, the pause goes on. All ranks ask."""
        return self._boundary.save_over(step)

    def given(self, directory: Path, step: int) -> None:
        """The script has written a checkpoint to a folder of its own."""
        self._saves.given(directory, step, self.segments.number, self._boundary.sick_because, self._health.signals)

    def evaluated(self, values: Mapping[str, float], step: int) -> None:
        """The trainer has evaluated; `values` by series name."""
        self._monitor.log(values, step)
        self.probes.restart_clock()
        self._saves.restart_clock()

    @property
    def rotation(self) -> Rotation:
        """What removes the checkpoints that are needed no longer."""
        return self._saves.rotation

    def _outlook(self) -> Outlook:
        journal = self._journal.state
        turns = tuple(Turn(point.segment, point.from_step) for point in journal.points)
        return Outlook(self._verdicts(), self.probes.has_scaler, turns, journal.longest_lead or None, self._orders.targets())

    # --- rollback

    def take_target(self) -> Target | None:
        """Where the training goes back to now that it has stopped; once, so that no fault can make it go back for ever."""
        return self._boundary.take_target()

    def rollback_failed(self, reason: str) -> None:
        """The target that was taken cannot be loaded; nothing was touched, and the training goes on as it was."""
        self._orders.failed_to_load(self._step, reason)
        self._monitor.set_phase(Phase.TRAINING)

    # --- the end

    def end(self, reason: EndReason, detail: str = "") -> None:
        """The last word. Waits within limits for the last checkpoint and for what is still to be sent."""
        self._monitor.set_phase(Phase.ENDING)
        self._sampler.stop()
        if reason is EndReason.FAILED and (lost := self._ranks.gone()):
            detail = f"{detail}; {named(lost)}"
        try:
            with suppress_ours():  # after an error on the GPU nothing can be read from it any more
                self._take(self.probes.drain())
                self.probes.detach()
                self._in_force.end()
            self.forward_seen()
            self._saves.settle_all(INSPECT_SECONDS_AFTER_FAILURE if reason is EndReason.FAILED else INSPECT_SECONDS)
            self._boundary.answer_last(self._step, reason, detail)
        finally:  # a run whose end is not told would be called lost
            self._saves.close()
            self.ledger.close()
            self._ranks.leave("the training has ended")
            self._monitor.end(reason, self._step, detail)

    def finished(self) -> None:
        """The loop has come back by itself, or as it was told."""
        if self._saves.is_due:
            self._agreement.come_together(self._step or 0)
        act = self.decision.act
        if act is Act.STOP:
            self._tell_stop("stopped by command")
            self.end(EndReason.STOPPED_BY_COMMAND, self.decision.reason)
        elif act is Act.STOP_DEAD:
            self._tell_stop("the run is dead, and was stopped")
            self.end(EndReason.STOPPED_BY_GUARD, self.decision.reason)
        else:
            self.end(EndReason.FINISHED)

    def _tell_stop(self, how: str) -> None:
        """On the terminal too: without a server nothing else says why the loop came back early."""
        if not self._ranks.leads:
            return
        reason = f": {self.decision.reason}" if self.decision.reason else ""
        Voice().once("stopped", f"{how} at step {self._step}{reason}")
