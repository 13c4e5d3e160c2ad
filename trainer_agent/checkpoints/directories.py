"""Checkpoints as directories: which of them are this run's, and which directory an id stands for.

    saved by the trainer -> inspected -> manifest written -> recorded        gone from the disk -> recorded as deleted

The manifest `lossguard.json` is written last, by temp and rename, and is the commit mark: a directory without it, or with one of
another run, is no checkpoint of this run. It states facts (see `inspection`); the verdict is the server's. An id is the name of
the directory and is looked up in the catalogue, so no path ever comes from outside.
"""

import errno
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer_agent.guest.on_disk import sync, write_draft
from trainer_agent.wire import codec
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from . import told
from .inspection import MANIFEST, Save

_BROKEN = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
"""What a disk says that did not take what was written; anything else only says that it cannot be asked."""
_ID = re.compile(r"checkpoint-[0-9]{1,15}")
_GIVEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_id(text: str) -> bool:
    """Whether `text` may be the id of a checkpoint that is saved, and may be removed, under LossGuard's eyes."""
    return _ID.fullmatch(text) is not None


def is_given_id(text: str) -> bool:
    """Whether `text` may be the id of a checkpoint that the script wrote to a folder of its own, and that is never removed."""
    return _GIVEN.fullmatch(text) is not None and not is_id(text)


def draft_manifest(save: Save, facts: CheckpointSaved) -> Path | None:
    """The commit mark, written and only to be renamed; None where it cannot be. Without it no restart takes the checkpoint."""
    content = {"run_id": save.run_id, "checkpoint": codec.to_json(facts)}
    with suppress(OSError):
        return write_draft(save.directory / MANIFEST, json.dumps(content, allow_nan=False, indent=1).encode())
    return None


def commit(save: Save, facts: CheckpointSaved) -> CheckpointSaved:
    """Writes the commit mark of an inspected checkpoint, after all that it speaks of; the facts it holds."""
    facts = put_on_disk(facts, save.directory)
    draft = draft_manifest(save, facts)
    if draft is not None:
        with suppress(OSError):
            draft.replace(save.directory / MANIFEST)
            sync_folders(save.directory)
    return facts


def read_manifest(directory: Path, run_id: str, name: str | None = None) -> CheckpointSaved | None:
    """The facts in the manifest, with what was found of its files since; None when there is none of this run that can be read.

    `name`: its own, where it was moved.
    """
    try:
        content = json.loads((directory / MANIFEST).read_bytes())
        facts = codec.from_json(CheckpointSaved, content["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if content.get("run_id") != run_id or facts.checkpoint_id != (name or directory.name):
        return None
    return told.condemned(facts, told.read(directory.parent, run_id).get(facts.checkpoint_id))


def read_all(output_dir: Path, run_id: str) -> list[CheckpointSaved]:
    """The facts of all checkpoints of a run that lie under its output directory."""
    folders = (manifest.parent for manifest in sorted(output_dir.glob(f"*/{MANIFEST}")))
    found = (read_manifest(folder, run_id) for folder in folders if is_id(folder.name) or is_given_id(folder.name))
    return [facts for facts in found if facts is not None]


def put_on_disk(facts: CheckpointSaved, directory: Path) -> CheckpointSaved:
    """Has all files of a checkpoint on the disk before a manifest speaks of them; corrupt where the disk fails to take one."""
    for file in facts.files:
        try:
            sync(directory / file.path)
        except OSError as error:
            if error.errno in _BROKEN:
                return replace(facts, state=CheckpointState.CORRUPT, problem=f"{file.path} does not get to the disk ({error})")
    for folder in {(directory / file.path).parent for file in facts.files}:
        with suppress(OSError):
            sync(folder)
    return facts


def sync_folders(directory: Path) -> None:
    """Has the names in a checkpoint on the disk, and its own."""
    for folder in (directory, directory.parent):
        with suppress(OSError):
            sync(folder)


class Catalogue:
    """The checkpoints of one run under its output directory, by id. Not for several threads."""

    def __init__(self, output_dir: Path, run_id: str) -> None:
        self._root = output_dir
        self._run_id = run_id
        self._known: dict[str, CheckpointSaved] = {}
        self._given: dict[str, CheckpointSaved] = {}
        self.at_forget: Callable[[str], object] = lambda _: None
        """Called with the id of each that is taken out."""

    def load(self) -> None:
        """Takes up the checkpoints that an earlier life of the run left."""
        for facts in read_all(self._root, self._run_id):
            (self._known if is_id(facts.checkpoint_id) else self._given)[facts.checkpoint_id] = facts

    def add(self, facts: CheckpointSaved) -> None:
        """Takes a checkpoint in, in place of an older one of the same id."""
        held = self._known if is_id(facts.checkpoint_id) else self._given
        held[facts.checkpoint_id] = facts

    def forget(self, checkpoint_id: str) -> CheckpointSaved | None:
        """Takes one out, and gives what was known of it."""
        self.at_forget(checkpoint_id)
        return self._known.pop(checkpoint_id, None) or self._given.pop(checkpoint_id, None)

    def known(self) -> list[CheckpointSaved]:
        """All that were saved under our eyes, oldest first: by segment, then by step. The script's own are not among them."""
        return sorted(self._known.values(), key=lambda facts: (facts.segment, facts.step))

    def facts(self, checkpoint_id: str) -> CheckpointSaved | None:
        """What is true of it; None when this run has no such checkpoint."""
        return self._known.get(checkpoint_id) or self._given.get(checkpoint_id)

    def directory(self, checkpoint_id: str) -> Path | None:
        """Where it lies, with links resolved; None unless it is this run's, there, and inside the output directory."""
        if self.facts(checkpoint_id) is None:
            return None
        with suppress(OSError):
            directory = (self._root / checkpoint_id).resolve(strict=True)
            if directory.is_dir() and directory.is_relative_to(self._root.resolve()):
                return directory
        return None

    def path_of_step(self, step: int) -> Path:
        """Where the trainer puts the checkpoint of a step."""
        return self._root / f"checkpoint-{step}"
