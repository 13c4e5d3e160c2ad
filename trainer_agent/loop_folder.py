"""The checkpoints of a hand-written loop in their folder: put there whole, found again after a crash, thinned out.

    .lossguard-writing-N  --renamed-->  checkpoint-N  --renamed-->  .lossguard-old-N  --removed-->

A checkpoint that is saved again after a rollback takes the place of the old one, which is set aside first and comes back if the
process dies in between. `.lossguard/resume.json` names the checkpoint to go on from: the last one saved, or the target of a
rollback, which is older than the highest step in the folder.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .checkpoints import draft_manifest, read_manifest
from .config import replace_file
from .inspection import MANIFEST, Save, inspect
from .rollback import unfit
from .wire.messages import CheckpointSaved

_NAME = re.compile(r"checkpoint-([0-9]{1,15})")
_WRITING, _OLD = ".lossguard-writing-", ".lossguard-old-"
_POINTER = "resume.json"


class NothingFit(ValueError):  # noqa: N818  reads as what it says
    """There are checkpoints, and none to go on from. The text says why of each."""


class Folder:
    """The output directory of one run. Not for several threads."""

    def __init__(self, output_dir: Path) -> None:
        self.path = output_dir
        self._pointer = output_dir / ".lossguard" / _POINTER

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, of whatever run, lowest first."""
        found = (_NAME.fullmatch(path.name) for path in self.path.glob("checkpoint-*") if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def tidy(self) -> None:
        """Takes up what a process left that died while it saved."""
        for old in self.path.glob(f"{_OLD}*"):
            home = self.path / f"checkpoint-{old.name.removeprefix(_OLD)}"
            with suppress(OSError):
                shutil.rmtree(old) if home.exists() else old.rename(home)
        for half in self.path.glob(f"{_WRITING}*"):
            shutil.rmtree(half, ignore_errors=True)

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """The checkpoint of `step`, whole or not at all; `fill` writes its files.

        Raises:
            OSError, RuntimeError
        """
        draft, home, old = (self.path / f"{prefix}{step}" for prefix in (_WRITING, "checkpoint-", _OLD))
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            fill(draft)
            _sync(draft)
            if home.exists():
                shutil.rmtree(old, ignore_errors=True)
                home.rename(old)
            draft.rename(home)
            _sync(self.path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        shutil.rmtree(old, ignore_errors=True)
        self.point_to(home)
        return home

    def point_to(self, directory: Path) -> None:
        """A restart goes on from this checkpoint.

        Raises:
            OSError
        """
        self._pointer.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._pointer, json.dumps({"checkpoint": directory.name}).encode())

    def to_go_on_from(self, run_id: str, *, needs_scaler: bool) -> Path | None:
        """The newest checkpoint fit to go on from, and not newer than where the run was; None when there is none at all.

        One whose process died before it was inspected is inspected now.

        Raises:
            NothingFit
        """
        steps = self.steps()
        last = self._pointed(default=max(steps, default=0))
        faults = []
        for step in sorted((step for step in steps if step <= last), reverse=True):
            directory = self.path / f"checkpoint-{step}"
            fault = unfit(_facts(directory, run_id, step), None, needs_scaler=needs_scaler)
            if not fault:
                return directory
            faults.append(f"{directory.name}: {fault}")
        if faults:
            raise NothingFit(f"no checkpoint in {self.path} is fit to go on from ({'; '.join(faults[:3])})")
        return None

    def _pointed(self, default: int) -> int:
        with suppress(OSError, ValueError, KeyError, TypeError):
            match = _NAME.fullmatch(json.loads(self._pointer.read_bytes())["checkpoint"])
            return int(match[1]) if match else default
        return default

    def thin_out(self, inspected: Sequence[tuple[CheckpointSaved, bool]], keep: int) -> None:
        """Removes the oldest of this run's inspected checkpoints down to `keep`, never the newest that is fit to go back to."""
        newest_fit = next((facts for facts, is_fit in reversed(inspected) if is_fit), None)
        if newest_fit is None:
            return
        for facts, _ in inspected[: max(0, len(inspected) - keep)]:
            if facts is not newest_fit:
                self._remove(facts.checkpoint_id)

    def _remove(self, name: str) -> None:
        grave = self.path / f"{_WRITING}{name}"  # half-removed, it is no checkpoint
        with suppress(OSError):
            (self.path / name).rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def _facts(directory: Path, run_id: str, step: int) -> CheckpointSaved:
    known = read_manifest(directory, run_id)
    if known is not None:
        return known
    save = Save(run_id, directory, 1, step, time.time())
    facts = inspect(save)
    draft = draft_manifest(save, facts)
    if draft is not None:
        with suppress(OSError):
            draft.replace(directory / MANIFEST)
    return facts


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
