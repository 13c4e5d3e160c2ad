"""One training under watch, from its start to its last word, whatever framework runs the loop.

    begin -> segment_begins -> (step_ended | save_coming | saved | evaluated)* -> end
                 ^                                                       |
                 +------------------ a rollback or restart -------------+

It puts the parts together: probes give numbers, the guard judges them, the monitor takes them, control decides, the catalogue
knows the checkpoints. It touches no trainer: what it decides is a value, and the integration acts on it.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch

from . import guard
from .checkpoints import Catalogue, Inspector
from .control import Act, Control, Decision
from .data_plan import CannotSkip, Cut, DataPlan
from .identity import Identity
from .inspection import Save
from .monitor import Monitor
from .policy import Policy
from .probes import Probes, Reading, nonfinite_tensor
from .rollback import Refused, Restored, Target, check_files, choose, restored, unfit
from .system import SystemSampler
from .voice import Voice
from .wire.commands import Command, RollbackPayload
from .wire.messages import CheckpointSaved, SegmentStarted
from .wire.vocabulary import CommandKind, CommandState, DataMode, EndReason, Phase, SegmentCause

INSPECT_SECONDS = 30.0
"""How long the end of a training waits for its last checkpoint to be inspected."""
INSPECT_SECONDS_AFTER_FAILURE = 5.0

Attributes = dict[str, str | int | float | bool | None]
Cutter = Callable[[int, int], Cut]


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
        cutter: Cutter,
    ) -> None:
        self.plan = plan
        self.probes = probes
        self.decision = Decision()
        self._monitor, self._identity, self._policy = monitor, identity, policy
        self._catalogue = Catalogue(output_dir, identity.run_id)
        self._inspector, self._sampler = Inspector(monitor.record), SystemSampler()
        self._control = Control(monitor, policy, capabilities, find=self._find, check=self._check, idle=self._settle_checkpoints)
        self._cutter = cutter
        self._guard = guard.GuardState()
        self._segment = 0
        self._step: int | None = None
        self._due: SegmentStarted | None = None
        self._leaving: Target | None = None
        self._arriving: tuple[Target, Restored] | None = None
        self._stop_saved: str | None = None
        self._save_began = time.monotonic()

    def begin(self) -> None:
        """Starts the threads, and takes up what an earlier life of the run left."""
        if self._identity.is_restart:
            self._catalogue.load()
        self._monitor.begin()
        self._monitor.set_phase(Phase.STARTING)
        self._sampler.start()

    # --- segments

    def segment_begins(self, step: int, model: torch.nn.Module, attributes: Attributes) -> None:
        """The loop is about to run from `step`: for the first time, again after a restart, or after a rollback."""
        target, self._leaving = self._leaving, None
        self.decision = Decision()
        self._guard = guard.GuardState()
        self.forward_seen()
        self._step = step
        if target is not None:
            self._arrive(target, step, model, attributes)
        elif self._segment == 0 and not self._identity.is_restart:
            # told once the first forward pass has shown what it computes in; until then segment 1 is understood
            self._due = self._next_segment(step, SegmentCause.START, attributes)
        else:
            self._open(self._next_segment(step, SegmentCause.RESTART, attributes))
        self._monitor.set_phase(Phase.TRAINING)

    def forward_seen(self) -> None:
        """A forward pass is done, so the precision is known."""
        if self._due is not None:
            due, self._due = self._due, None
            if self.probes.precision is not None:
                due.attributes.update(self.probes.precision.attributes())
            self._open(due)

    def _next_segment(self, step: int, cause: SegmentCause, attributes: Attributes) -> SegmentStarted:
        parent = self._identity.last_segment or None
        self._segment = self._identity.next_segment()
        return SegmentStarted(self._segment, step, cause, time.time(), parent, attributes=dict(attributes))

    def _arrive(self, target: Target, step: int, model: torch.nn.Module, attributes: Attributes) -> None:
        payload = target.payload
        parent, self._segment = self._segment, self._identity.reserve_segment(payload.new_segment)
        changed: Attributes = {"data": payload.data, "left_step": target.left_step}
        if target.cut is not None:
            changed |= dict(zip(("skip_from_step", "skip_to_step"), window_of(payload, target.left_step), strict=True))
        self._open(
            SegmentStarted(
                self._segment,
                step,
                SegmentCause.ROLLBACK,
                time.time(),
                parent,
                target.command_id,
                payload.checkpoint_id,
                attributes | changed,
            )
        )
        self._arriving = (target, restored(model, target))

    def _open(self, segment: SegmentStarted) -> None:
        self._monitor.record(segment)

    # --- steps

    def step_ended(self, step: int, model: torch.nn.Module, *, saving: bool) -> Decision:
        """Takes the numbers of the step and says what to do now. `saving`: the trainer is about to save."""
        self._step = step
        self.forward_seen()
        self._take(self.probes.end_step(step))
        if saving:
            self._take(self.probes.drain())
        system = self._sampler.take()
        if system:
            self._monitor.log(system, step)
        self._confirm_rollback(step)
        self._take_inspected()
        if saving and self._policy.acts_on_dead:
            self._look_at_weights(step, model)
        self.decision = self._control.at_boundary(step, self._guard.death)
        if self.decision.act is Act.STOP and self._guard.death is None:
            saving = True
        if saving:
            self._save_comes(step)
        return self.decision

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
            self._guard = guard.step(self._guard, reading.facts, self._policy.skipped_steps)

    def _look_at_weights(self, step: int, model: torch.nn.Module) -> None:
        name = nonfinite_tensor(model)
        if name is not None:
            self._guard = guard.weights_not_finite(self._guard, step, name)

    # --- checkpoints

    def _save_comes(self, step: int) -> None:
        """A directory that is written anew is no checkpoint until it has been inspected again."""
        self._inspector.withdraw(self._catalogue.path_of_step(step))
        self._save_began = time.monotonic()

    def epoch_save_comes(self, step: int, model: torch.nn.Module) -> bool:
        """Whether the trainer may save at the end of an epoch: a dead run would push a good checkpoint out."""
        if self._policy.acts_on_dead:
            self._look_at_weights(step, model)
            if self._guard.death is not None:
                return False
        self._save_comes(step)
        return True

    def saved(self, step: int) -> None:
        """The trainer has written the checkpoint of `step`, and perhaps removed older ones."""
        directory = self._catalogue.path_of_step(step)
        took = time.monotonic() - self._save_began
        sick = guard.sick_because(self._guard)
        self._inspector.submit(Save(self._identity.run_id, directory, self._segment, step, time.time(), sick, took))
        if self.decision.act is Act.STOP:
            self._stop_saved = directory.name
        self._settle_checkpoints()
        self.probes.restart_clock()

    def evaluated(self, values: Mapping[str, float], step: int) -> None:
        """The trainer has evaluated; `values` by series name."""
        self._monitor.log(values, step)
        self.probes.restart_clock()
        self._save_began = time.monotonic()

    def inspected(self) -> list[tuple[CheckpointSaved, bool]]:
        """The checkpoints inspected so far, oldest first, each with whether it is fit to go back to."""
        self._take_inspected()
        verdicts, scaler = self._monitor.verdicts(), self.probes.has_scaler
        known = self._catalogue.known()
        return [(facts, not unfit(facts, verdicts.get(facts.checkpoint_id), needs_scaler=scaler)) for facts in known]

    def _take_inspected(self) -> None:
        for facts in self._inspector.take_done():
            self._catalogue.add(facts)

    def _settle_checkpoints(self) -> None:
        """Takes in the checkpoints inspected, and tells of those gone. Looks at the disk, so not for every step."""
        self._take_inspected()
        for facts in self._catalogue.take_vanished(time.time()):
            self._monitor.record(facts)

    # --- rollback

    def take_target(self) -> Target | None:
        """Where the training goes back to now that it has stopped; once, so that no fault can make it go back for ever."""
        target = self.decision.target
        if target is not None:
            self._leaving, self.decision = target, Decision()
        return target

    def rollback_failed(self, reason: str) -> None:
        """The target that was taken cannot be loaded; nothing was touched, and the training goes on as it was."""
        target, self._leaving = self._leaving, None
        if target is not None:
            self._control.answer(target.command_id, CommandState.FAILED, self._step, reason)
        self._monitor.set_phase(Phase.TRAINING)

    def _find(self, command: Command, step: int) -> Target:
        self._inspector.wait(INSPECT_SECONDS)
        self._settle_checkpoints()
        target = choose(command, self._catalogue, self._monitor.verdicts(), needs_scaler=self.probes.has_scaler, left_step=step)
        segment = target.payload.new_segment
        if segment <= self._identity.last_segment:
            raise Refused(f"it wants to open segment {segment}, and segment {self._identity.last_segment} was opened already")
        if target.payload.data is not DataMode.SKIP or target.facts.step == step:  # nothing was trained since the checkpoint
            return target
        first, last = window_of(target.payload, step)
        if first <= target.facts.step:
            raise Refused(f"the window to skip begins at step {first}, which is not after the checkpoint's {target.facts.step}")
        try:
            cut = self._cutter(first, last)
        except CannotSkip as reason:
            raise Refused(f"the batches cannot be skipped: {reason}") from None
        return Target(target.command_id, target.payload, target.facts, target.directory, step, cut)

    def _check(self, target: Target) -> None:
        check_files(target)
        try:
            if target.cut is not None:
                self.plan.add(target.cut)
        except OSError as error:
            raise Refused(f"the batches to skip cannot be noted down: {error.strerror or error}") from None

    def _confirm_rollback(self, step: int) -> None:
        """The first step of the new segment is done: the rollback is, too."""
        if self._arriving is None:
            return
        (target, result), self._arriving = self._arriving, None
        state = CommandState.FAILED if result.problem else CommandState.SUCCEEDED
        self._control.answer(
            target.command_id,
            state,
            step,
            result.problem or result.remark,
            checkpoint_id=target.payload.checkpoint_id,
            weights_sha256=result.weights_sha256,
        )

    # --- the end

    def end(self, reason: EndReason, detail: str = "") -> None:
        """The last word. Waits within limits for the last checkpoint and for what is still to be sent."""
        self._monitor.set_phase(Phase.ENDING)
        self._sampler.stop()
        try:
            with suppress(Exception):  # after an error on the GPU nothing can be read from it any more
                self._take(self.probes.drain())
                self.probes.detach()
            self.forward_seen()
            self._inspector.wait(INSPECT_SECONDS_AFTER_FAILURE if reason is EndReason.FAILED else INSPECT_SECONDS)
            self._settle_checkpoints()
            self._answer_last(reason, detail)
        finally:  # a run whose end is not told would be called lost
            self._inspector.close()
            self._monitor.end(reason, self._step, detail)

    def finished(self) -> None:
        """The loop has come back by itself, or as it was told."""
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
        reason = f": {self.decision.reason}" if self.decision.reason else ""
        Voice().once("stopped", f"{how} at step {self._step}{reason}")

    def _answer_last(self, reason: EndReason, detail: str) -> None:
        """The commands that were waiting or running when the training ended."""
        while (late := self._monitor.take_command()) is not None:
            self._control.report(late, CommandState.REJECTED, self._step, "the training ended before the next step boundary")
        target = self._arriving[0] if self._arriving is not None else self._leaving
        if target is not None:
            self._control.answer(target.command_id, CommandState.FAILED, self._step, f"the training ended: {detail}")
        command = self.decision.command
        if command is None:
            return
        if reason is EndReason.STOPPED_BY_COMMAND and (self._stop_saved or not self.decision.saves):
            text = "" if self._stop_saved else self.decision.reason
            self._control.answer(command.command_id, CommandState.SUCCEEDED, self._step, text, checkpoint_id=self._stop_saved)
        else:
            text = detail or "the training ended before it was done"
            self._control.answer(command.command_id, CommandState.FAILED, self._step, text)


def window_of(payload: RollbackPayload, left_step: int) -> tuple[int, int]:
    """First and last step whose batches are passed over; all that was rolled back where the command does not say."""
    first = payload.target_step + 1 if payload.skip_from_step is None else payload.skip_from_step
    return first, left_step if payload.skip_to_step is None else payload.skip_to_step
