"""One rollback as the session lives through it: the target found, the loop left, the weights compared, the answer given.

 find -> check -> leave -> arrive -> take_outcome
   |       |                            |
Refused  Refused                 what became of it
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from trainer_agent.checkpoints.rollback import Offer, Refused, Restored, Target, check_files, choose, restored
from trainer_agent.checkpoints.saves import Saves
from trainer_agent.data.leaving_out import Source, changes_for, excluded_by, window_of
from trainer_agent.data.plan import CannotSkip, DataPlan, from_text
from trainer_agent.identity import Identity
from trainer_agent.measuring.probes import Probes
from trainer_agent.wire import crash
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Scalar, Verdict
from trainer_agent.wire.vocabulary import CommandKind, DataMode

from .decisions import overridden
from .going_on import GoOn
from .journal import Intent, Overrides

MOST_AHEAD = 10_000
"""Segments that a server may know of and this folder not; more would use up the numbers there are."""


class WayBack:
    """Thread: training; `find` and `check` also run in a thread for which the training waits."""

    def __init__(
        self,
        *,
        saves: Saves,
        identity: Identity,
        plan: DataPlan,
        source: Source,
        probes: Probes,
        verdicts: Callable[[], Mapping[str, Verdict]],
        rank: int,
    ) -> None:
        self._saves, self._identity, self._plan, self._source, self._probes = saves, identity, plan, source, probes
        self._verdicts, self._rank = verdicts, rank
        self._leaving: Target | None = None
        self._arriving: tuple[Target, Restored] | None = None

    @property
    def unfinished(self) -> Target | None:
        """Of a rollback that has begun and is not confirmed."""
        return self._arriving[0] if self._arriving is not None else self._leaving

    def find(self, command: Command, step: int, inspect_seconds: float) -> Target:
        """The target of a command, with the changes of the data that it wants.

        Raises:
            Refused
        """
        self._saves.settle_all(inspect_seconds)
        target = choose(command, self._saves.catalogue, self._verdicts(), needs_scaler=self._probes.has_scaler, left_step=step)
        segment = target.payload.new_segment
        last = self._identity.last_segment
        if segment <= last:
            raise Refused(f"it wants to open segment {segment}, and segment {last} was opened already")
        if segment > last + MOST_AHEAD:
            raise Refused(f"it wants to open segment {segment}, and the last one was {last}")
        try:
            changes = changes_for(target.payload, step, target.directory, self._plan, self._source)
        except CannotSkip as reason:
            what = "samples cannot be left out" if target.payload.data is DataMode.EXCLUDE else "batches cannot be skipped"
            raise Refused(f"the {what}: {reason}") from None
        return replace(target, changes=changes, changes_before=len(self._plan.changes))

    def check(self, target: Target) -> None:
        """Reads the files of a target, and notes its changes of the data down.

        Raises:
            Refused
        """
        check_files(target)
        try:
            if target.changes:
                self._plan.add(*target.changes)
        except OSError as error:
            raise Refused(f"the change of the data cannot be noted down: {error.strerror or error}") from None
        crash.reach("rollback.planned")

    def undo(self, target: Target) -> None:
        """Another rank cannot go back to what was checked here."""
        (self._plan.forget if self._rank else self._plan.take_back)(*target.changes)

    def see(self, offer: Offer) -> Target:
        """What rank 0 goes back to, as this rank sees it.

        Raises:
            Refused
        """
        directory: Path = self._saves.catalogue.path_of_step(offer.payload.target_step)
        return offer.seen(directory.resolve(), self._identity.run_id, self._rank)

    def take_up(self, goes_on: GoOn, intent: Intent) -> None:
        """A rollback that an earlier process has begun comes to its end in this one: the loop begins at its target."""
        payload = intent.command.rollback
        assert payload is not None, "a rollback without a payload is not begun"
        assert goes_on.facts is not None, "it ends at a checkpoint"
        assert goes_on.directory is not None, "it ends at a checkpoint"
        target = Target(intent.command.command_id, payload, goes_on.facts, goes_on.directory, intent.step)
        if intent.changes:
            target = replace(target, changes=from_text(intent.changes), changes_before=intent.changes_before)
            self._note_again(target)
        self._leaving = target

    def _note_again(self, target: Target) -> None:
        """Only where that process did not come to it: a cut made twice would take other batches too."""
        before = target.changes_before
        if self._plan.changes[before : before + len(target.changes)] != target.changes:
            (self._plan.follow if self._rank else self._plan.add)(*target.changes)

    def abandon(self, intent: Intent) -> None:
        """A rollback that an earlier process has begun comes to nothing: the data go on as they were.

        Raises:
            OSError
        """
        changes = from_text(intent.changes)
        if changes and self._plan.changes[intent.changes_before :] == changes:
            (self._plan.forget if self._rank else self._plan.take_back)(*changes)

    def leave(self, target: Target) -> None:
        """The loop was left for it."""
        self._leaving = target
        if self._rank:
            self._plan.follow(*target.changes)

    def give_up(self) -> Target | None:
        """The target that the loop was left for cannot be loaded, and the data go on as they were; None when there is none."""
        target = self.take_leaving()
        if target is not None:
            self.undo(target)
        return target

    @property
    def is_leaving(self) -> bool:
        """Whether a target waits for the loop to begin at it."""
        return self._leaving is not None

    def take_leaving(self) -> Target | None:
        """Where the loop that begins now comes from; None when it was no rollback."""
        target, self._leaving = self._leaving, None
        return target

    def arrive(self, target: Target, model: torch.nn.Module) -> dict[str, Scalar]:
        """Compares what was loaded; what is different from now on."""
        found, lacking = restored(model, target), self._source.lacks(target.changes)
        self._arriving = (target, replace(found, problem=found.problem or lacking))
        changed: dict[str, Scalar] = {"data": target.payload.data, "left_step": target.left_step}
        if target.payload.data is DataMode.SKIP and target.changes:
            changed |= dict(zip(("skip_from_step", "skip_to_step"), window_of(target.payload, target.left_step), strict=True))
        if target.payload.data is DataMode.EXCLUDE:
            changed |= excluded_by(target.changes)
        return changed

    def take_outcome(self) -> tuple[Target, Restored] | None:
        """What became of a rollback whose first step is done; once."""
        outcome, self._arriving = self._arriving, None
        return outcome


def with_payload(overrides: Overrides, payload: RollbackPayload) -> Overrides:
    """The overrides after a rollback: those it names in place of earlier ones. A factor of 1 is the schedule's own rate."""
    factor, norm = payload.learning_rate_factor, payload.max_grad_norm
    if factor is not None:
        overrides = overridden(overrides, CommandKind.SET_LEARNING_RATE_FACTOR, factor)
    return overrides if norm is None else overridden(overrides, CommandKind.SET_MAX_GRAD_NORM, norm)


def lead_of(payload: RollbackPayload, left_step: int) -> int:
    """Steps from the first sign of trouble to the step that was left; 0 where there was none."""
    return 0 if payload.first_sign_step is None else max(0, left_step - payload.first_sign_step)
