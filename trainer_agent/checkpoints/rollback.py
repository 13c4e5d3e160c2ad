"""Which checkpoint a rollback may take, and whether it really came back.

    command -> choose -> check_files -> (the trainer stops and resumes) -> restored
                 |            |                                               |
              Refused      Refused                                     Restored.problem

Everything that can be refused is refused before the training is touched, so that a refused rollback leaves it as it was. The
stricter of two words holds: the facts in the agent's own manifest, and the last verdict known of the server.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer_agent.data.plan import Changes, from_json, to_json, to_text
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.wire import codec
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, Verdict
from trainer_agent.wire.vocabulary import CheckpointState

from .directories import Catalogue, read_manifest
from .inspection import changed_file, stored_weights, weights_digest

NEEDED = ("model", "optimizer", "scheduler", "rng", "position")
UNFIT = (CheckpointState.UNSOUND, CheckpointState.CORRUPT, CheckpointState.DELETED)


class Refused(Exception):  # noqa: N818  reads as what it says
    """The rollback is not done, and training goes on as it was. The text is the reason, for the page."""


@dataclass(frozen=True, slots=True)
class Target:
    """A rollback that may be done: from `left_step` back to the checkpoint in `directory`, with `changes` of the data."""

    command_id: str
    payload: RollbackPayload
    facts: CheckpointSaved
    directory: Path
    left_step: int
    changes: Changes = ()
    changes_before: int = 0
    """How many changes the plan of the data had when these were made."""

    @property
    def changes_text(self) -> str:
        """What it adds to the plan, for the journal."""
        return to_text(self.changes)


@dataclass(frozen=True, slots=True)
class Offer:
    """A target as rank 0 tells the other ranks of it: each of them has to find the same checkpoint by itself."""

    command_id: str
    payload: RollbackPayload
    left_step: int
    changes: Changes
    digest: str
    """Of the facts in the manifest."""

    @classmethod
    def of(cls, target: Target) -> "Offer":
        """What to tell of a target."""
        return cls(target.command_id, target.payload, target.left_step, target.changes, _digest(target.facts))

    def to_json(self) -> dict[str, Any]:
        """As `json` takes it."""
        changes = [to_json(change) for change in self.changes]
        told = {"command_id": self.command_id, "left_step": self.left_step, "changes": changes, "digest": self.digest}
        return told | {"payload": codec.to_json(self.payload)}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Offer":
        """What rank 0 told."""
        changes, payload = tuple(map(from_json, told["changes"])), codec.from_json(RollbackPayload, told["payload"])
        return cls(told["command_id"], payload, told["left_step"], changes, told["digest"])

    def seen(self, directory: Path, run_id: str, rank: int) -> Target:
        """The target as it lies before this rank.

        Raises:
            Refused: the checkpoint is not there, is another one, or lacks what this rank needs.
        """
        facts = read_manifest(directory, run_id)
        if facts is None or _digest(facts) != self.digest:
            raise Refused(f"{directory} does not show the checkpoint that rank 0 sees; all ranks must share the output directory")
        names = {file.path: file.size_bytes for file in facts.files}
        if f"rng_state_{rank}.pth" not in names:
            raise Refused(f"{self.payload.checkpoint_id} holds no state of this rank's random numbers")
        for name, size in names.items():
            if not (directory / name).is_file() or (directory / name).stat().st_size != size:
                raise Refused(f"{name} of {self.payload.checkpoint_id} is not as rank 0 sees it")
        return Target(self.command_id, self.payload, facts, directory, self.left_step, self.changes)


@dataclass(frozen=True, slots=True)
class Restored:
    """The digest of the weights in the model after the load, and what is wrong with it; empty when nothing is.

    `remark` says why they could not be compared, as where a checkpoint names its tensors otherwise (adapters do).
    """

    weights_sha256: str | None
    problem: str = ""
    remark: str = ""


def _digest(facts: CheckpointSaved) -> str:
    return hashlib.sha256(codec.encode(facts)).hexdigest()


def choose(
    command: Command, catalogue: Catalogue, verdicts: Mapping[str, Verdict], *, needs_scaler: bool, left_step: int
) -> Target:
    """The target a command names, if it is fit to continue from.

    Raises:
        Refused
    """
    payload = command.rollback
    if payload is None:
        raise Refused("the command does not say where to go back to")
    facts = catalogue.facts(payload.checkpoint_id)
    if facts is None:
        raise Refused(f"{payload.checkpoint_id[:80]} is no checkpoint of this run that has been verified")
    directory = catalogue.directory(payload.checkpoint_id)
    if directory is None:
        raise Refused(f"{payload.checkpoint_id} is gone from the disk")
    if facts.step != payload.target_step or facts.step > left_step:
        raise Refused(f"{payload.checkpoint_id} is of step {facts.step}, the rollback wants step {payload.target_step}")
    fault = unfit(facts, verdicts.get(payload.checkpoint_id), needs_scaler=needs_scaler)
    if fault:
        raise Refused(f"{payload.checkpoint_id} is not sound: {fault}")
    return Target(command.command_id, payload, facts, directory, left_step)


def unfit(facts: CheckpointSaved, verdict: Verdict | None, *, needs_scaler: bool) -> str:
    """Why a checkpoint is not fit to continue from, in a clause; empty when it is."""
    if verdict is not None and verdict.state in UNFIT:
        return verdict.reason or f"the server says {verdict.state}"
    if facts.state is not CheckpointState.COMPLETE:
        return facts.problem or f"it is {facts.state}"
    missing = [part for part in (*NEEDED, "scaler") if part not in facts.parts and (part != "scaler" or needs_scaler)]
    if missing:
        return f"it holds no {' and no '.join(missing)}, so it would not bring everything back"
    for count, what in ((facts.nonfinite_weights, "weights"), (facts.nonfinite_optimizer, "optimizer values")):
        if count is None:
            return f"its {what} could not be checked"
        if count:
            return f"{count} of its {what} are not finite"
    return facts.sick_because


def check_files(target: Target) -> None:
    """That the files are still those that were inspected. Reads all of them.

    Raises:
        Refused
    """
    changed = changed_file(target.facts, target.directory)
    if changed:
        raise Refused(f"{target.payload.checkpoint_id}: {changed}")


def restored(model: torch.nn.Module, target: Target) -> Restored:
    """Compares the weights in the model with those in the checkpoint's files, bit by bit."""
    present = dict(model.state_dict())
    try:
        stored = weights_digest(stored_weights(target.directory))
        names = [name for name, _ in stored_weights(target.directory)]
        loaded = weights_digest((name, present[name]) for name in names)
    except KeyError as error:
        return Restored(None, remark=f"loaded; the weights could not be compared: the model has no {error}")
    except Exception as error:  # the load itself raised nothing, so only the proof is missing
        let_pass(error)
        return Restored(None, remark=f"loaded; the weights could not be compared: {error}")
    return Restored(loaded, "" if loaded == stored else "the weights in the model are not those of the checkpoint")
