"""One training under watch, from its start to its last word, whatever framework runs the loop.

    begin -> segment_begins -> (step_ended | save_coming | saved | evaluated)* -> end
                 ^                                                       |
                 +------------------ a rollback or restart -------------+

It puts the parts together: probes give numbers, the guard judges them, the monitor takes them, control decides, the catalogue
knows the checkpoints. It touches no trainer: what it decides is a value, and the integration acts on it.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .data_plan import DataPlan
from .decisions import Act, Decision
from .ends import LEFT
from .going_on import GoOn
from .health import Health
from .identity import Identity
from .in_force import InForce, SetNorm
from .interrupts import suppress_ours
from .journal import Journal, JournalState, Judged, Opened, Point
from .leaving_out import Source
from .ledger import Ledger
from .monitor import Monitor
from .orders import INSPECT_SECONDS, Orders
from .policy import Policy
from .probes import Probes, Reading
from .ranks import Ranks, named
from .retention import Turn
from .rollback import Target
from .rotation import Outlook, Rotation
from .saves import Saves
from .saving import Saving
from .system import SystemSampler
from .vocabulary import describe
from .voice import Voice
from .way_back import WayBack, lead_of, with_payload
from .wire import crash
from .wire.messages import SegmentStarted, Verdict
from .wire.vocabulary import CommandKind, DataMode, EndReason, Phase, SegmentCause

INSPECT_SECONDS_AFTER_FAILURE = 5.0
"""How long the end of a training that failed waits for its last checkpoint to be inspected."""

Attributes = dict[str, str | int | float | bool | None]


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
        self.plan = plan
        self.probes = probes
        self.decision = Decision()
        self.data_modes: tuple[tuple[DataMode, ...], str] | None = None
        """What a rollback can do with the data of the loop under way, and why no more; None: what the run start said."""
        self._journal = journal or Journal(None, JournalState(identity.run_id))
        self._in_force, self._health = InForce(self._journal, set_max_grad_norm), Health(policy.skipped_steps)
        probes.rate_of = self._in_force.rate.effective
        self._stop_at_once: Decision | None = None
        self._saved_here: str | None = None
        self._unsaved = ""
        self._ranks = ranks or Ranks()
        self._monitor, self._identity, self._policy = monitor, identity, policy
        self._saves = Saves(
            output_dir,
            identity.run_id,
            monitor.record,
            leads=self._ranks.leads,
            world_size=self._ranks.world_size,
            outlook=self._outlook,
        )
        self._sampler = SystemSampler(gpu=lambda: probes.gpu)
        self.ledger = Ledger(output_dir / ".lossguard", identity.run_id, self._ranks.rank, monitor.record)
        way = WayBack(
            saves=self._saves,
            identity=identity,
            plan=plan,
            source=source,
            probes=probes,
            verdicts=self._verdicts,
            rank=self._ranks.rank,
        )
        self._orders = Orders(
            monitor,
            policy,
            capabilities,
            ranks=self._ranks,
            agree_every=agree_every,
            saves=self._saves,
            way=way,
            apply=self._in_force.apply,
            journal=self._journal,
        )
        self._agreement = self._orders.agreement
        self.saving = Saving(self._ranks, self._saves, monitor.record, answer=self.save_failed, apart=self._agreement.part)
        self._segment = 0
        self._step: int | None = None
        self._due: SegmentStarted | None = None
        self._stop_saved: str | None = None

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
        self._stop_at_once = self._orders.take_up(goes_on)
        if self._stop_at_once is not None and goes_on is not None and goes_on.facts is not None:
            self._stop_saved = goes_on.facts.checkpoint_id
        self._monitor.set_phase(Phase.STARTING)
        self._sampler.start()

    def expect_end(self) -> None:
        """The loop always comes to `end` when it is through: one that does not was left."""
        self._monitor.at_left = lambda: self.end(EndReason.FAILED, LEFT)

    @property
    def stops_at_once(self) -> bool:
        """Whether the loop is to end before its first step: an earlier process was stopping when it died."""
        return self._stop_at_once is not None

    @property
    def is_on_its_way_back(self) -> bool:
        """Whether the loop that begins now goes on from the target of a rollback."""
        return self._orders.is_leaving

    def attach(self, model: torch.nn.Module, optimizer: Any, *, scaler_of: Any = None, look_inside: bool = True) -> None:
        """Sets the hooks on what is trained from here on. `scaler_of`: has the scaler, where the optimizer does not.

        `look_inside`: see `Probes.attach`.
        """
        self.probes.attach(model, optimizer if scaler_of is None else scaler_of, look_inside=look_inside)
        self._in_force.rate.attach(optimizer)

    def know_tokenizer(self, tokenizer: object) -> None:
        """Its checkpoints tell what the token ids mean; looked at once."""
        self._saves.vocabulary = self._saves.vocabulary or describe(tokenizer)

    @property
    def vocabulary(self) -> str:
        """What the token ids mean; empty where that is not known. See `vocabulary`."""
        return self._saves.vocabulary

    def _verdicts(self) -> Mapping[str, Verdict]:
        """The last ones known, also those that an earlier process heard."""
        return {**self._journal.verdicts(), **self._monitor.verdicts()}

    # --- segments

    def segment_begins(self, step: int, model: torch.nn.Module, attributes: Attributes) -> None:
        """The loop is about to run from `step`: for the first time, again after a restart, or after a rollback."""
        target = self._orders.take_leaving()
        self.decision = self._stop_at_once or Decision()
        self._health.begin()
        self.forward_seen()
        self._step = step
        if target is not None:
            self._arrive(target, step, model, attributes)
        elif self._segment == 0 and not self._identity.is_restart:
            # told once the first forward pass has shown what it computes in; until then segment 1 is understood
            self._due = self._next_segment(step, SegmentCause.START, attributes)
        else:
            self.rotation.parent = self._saves.catalogue.path_of_step(step).name
            self._tell_segment(self._next_segment(step, SegmentCause.RESTART, attributes), self.rotation.parent)
        self._monitor.set_phase(Phase.TRAINING)

    def forward_seen(self) -> None:
        """A forward pass is done, so the precision is known."""
        if self._due is not None:
            due, self._due = self._due, None
            if self.probes.precision is not None:
                due.attributes.update(self.probes.precision.attributes())
            self._tell_segment(due)

    def _tell_segment(self, started: SegmentStarted, checkpoint: str | None = None) -> None:
        """To the server and the ledger. `checkpoint`: what it goes on from."""
        if self.data_modes is not None:
            modes, because = self.data_modes
            started = replace(started, data_modes=modes, data_modes_because=because)
        self._monitor.record(started)
        facts = self._saves.catalogue.facts(checkpoint) if checkpoint is not None else None
        then = "" if facts is None else facts.vocabulary
        self.ledger.segment_begins(started, (then, self.vocabulary), is_checked=self._ranks.leads)

    def _next_segment(self, step: int, cause: SegmentCause, attributes: Attributes) -> SegmentStarted:
        parent = self._identity.last_segment or None
        self._segment = self._agreement.next_segment(self._identity, self._step or 0)
        self._in_force.open(Opened(Point(self._segment, step)))
        return SegmentStarted(
            self._segment, step, cause, time.time(), parent, attributes=attributes | self._in_force.attributes()
        )

    def _arrive(self, target: Target, step: int, model: torch.nn.Module, attributes: Attributes) -> None:
        payload = target.payload
        crash.reach("rollback.loaded")
        parent = self._segment or self._in_force.parent_of(payload.new_segment)
        self._segment = self._identity.reserve_segment(payload.new_segment)
        self.rotation.parent = payload.checkpoint_id
        changed = self._orders.arrive(target, model)
        point = Point(self._segment, step, payload.checkpoint_id)
        self._in_force.open(
            Opened(point, with_payload(self._journal.state.overrides, payload), lead_of(payload, target.left_step))
        )
        crash.reach("rollback.opened")
        self._tell_segment(
            SegmentStarted(
                self._segment,
                step,
                SegmentCause.ROLLBACK,
                time.time(),
                parent,
                target.command_id,
                payload.checkpoint_id,
                attributes | self._in_force.attributes() | changed,
            ),
            payload.checkpoint_id,
        )
        if self._ranks.leads:
            Voice().once("rolled back", f"rolled back by command from step {target.left_step} to {step}; data: {payload.data}")

    # --- steps

    def step_ended(self, step: int, model: torch.nn.Module, *, saving: bool) -> Decision:
        """Takes the numbers of the step and says what to do now. `saving`: the trainer is about to save."""
        try:
            return self._step_ended(step, model, saving=saving)
        except BaseException:
            self._ranks.leave("a rank did not come through the end of its step")  # or the others would wait for it
            raise

    def _step_ended(self, step: int, model: torch.nn.Module, *, saving: bool) -> Decision:
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
        if saving and self._acts_on_dead:
            self._health.look_at_weights(step, model)
        if self._stop_at_once is None and not self._is_owed_a_save:
            self.decision = self._at_boundary(step)
        if self.decision.act is not Act.GO_ON:  # what a GPU still has of these steps belongs to this segment
            self._take(self.probes.drain())
        self._saves.all_have_saved()
        return self.decision

    @property
    def _is_owed_a_save(self) -> bool:
        """A save was ordered at the last boundary, and the trainer decided otherwise: it is done at this one."""
        return self.decision.act is Act.SAVE

    def _at_boundary(self, step: int) -> Decision:
        death = self._health.death if self._acts_on_dead else None
        decision = self._agreement.at_boundary(step, death, sick=bool(self._health.sick_because))
        if decision.has_waited:
            self._monitor.set_phase(Phase.TRAINING)
            self.probes.restart_clock()
        return decision

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Takes numbers that did not come from the probes; nothing, when there are none."""
        if values:
            self._monitor.log(values, step)

    def set_phase(self, phase: Phase) -> None:
        """Says what the training does now."""
        self._monitor.set_phase(phase)

    @property
    def _acts_on_dead(self) -> bool:
        """Not where the ranks are apart: one that stops alone leaves the others waiting for it."""
        return self._policy.acts_on_dead and not self._ranks.problem

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
        if (on_all_ranks or self._ranks.is_alone) and self._acts_on_dead:
            if saving:
                self._health.look_at_weights(step, model)
            if self._agreement.anyone(step, wants=saving and self._health.death is not None):
                return False
        return saving

    def saved(self, step: int) -> None:
        """The trainer has written the checkpoint of `step`."""
        self.saving.came_through()
        together = not self._ranks.is_alone and not self._ranks.problem
        checkpoint = self._saves.saved(step, self._segment, self._sick_because(), wait=together, signals=self._health.signals)
        if self.decision.act is Act.STOP:
            self._stop_saved = checkpoint
            crash.reach("stop.saved")
        self._saved_here = checkpoint
        self._orders.saved(self.decision, checkpoint, step)
        self._saves.settle()
        self.probes.restart_clock()

    def save_failed(self, step: int, reason: str) -> None:
        """A checkpoint that was due could not be saved; the training goes on, or stops as it was told."""
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
        decision = self._at_boundary(step)
        if not decision.saves:
            return decision
        if decision.act is Act.STOP:
            self._stop_saved = self._saved_here
        elif self._saved_here is not None:
            self._orders.saved(decision, self._saved_here, step)
        else:
            self._orders.not_saved(decision, step, self._unsaved)
        return replace(decision, saves=False)

    def _sick_because(self) -> str:
        other = self._agreement.sick_rank
        return self._health.sick_because or (
            f"the numbers of rank {other} were not good at the save" if other is not None else ""
        )

    def given(self, directory: Path, step: int) -> None:
        """The script has written a checkpoint to a folder of its own."""
        self._saves.given(directory, step, self._segment, self._sick_because(), self._health.signals)

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
        target = self._orders.leave_for(self.decision)
        if target is not None:
            self.decision = Decision()
        return target

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
            unsaved = "" if self._stop_saved else self._unsaved
            self._orders.answer_last(self.decision, self._stop_saved, self._step, reason, detail, not_saved=unsaved)
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
