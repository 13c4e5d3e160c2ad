"""The checkpoints of a hand-written loop in their folder: put there whole, and found again after a crash.

    .lossguard-writing-N  --renamed-->  checkpoint-N

A checkpoint that is saved again after a rollback takes the place of the old one, which is set aside first and comes back if the
process dies in between (see `trash`). `.lossguard/resume.json` names the checkpoint to go on from: the last one saved, or the
target of a rollback, which is older than the highest step in the folder.
"""

import json
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .checkpoints import draft_manifest, read_manifest
from .config import replace_file
from .inspection import MANIFEST, Save, inspect
from .rollback import unfit
from .trash import OLD, burn, bury, in_trash, put_back, set_aside, sync
from .wire import crash
from .wire.messages import CheckpointSaved

_NAME = re.compile(r"checkpoint-([0-9]{1,15})")
_WRITING = ".lossguard-writing-"
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
        for old in self.path.glob(f"{OLD}checkpoint-*"):
            if _NAME.fullmatch(old.name.removeprefix(OLD)):
                with suppress(OSError):
                    bury(old) if old.with_name(old.name.removeprefix(OLD)).exists() else put_back(old)
        for half in (*self.path.glob(f"{_WRITING}*"), *in_trash(self.path)):
            shutil.rmtree(half, ignore_errors=True)

    def write(self, step: int, fill: Callable[[Path], None]) -> Path:
        """The checkpoint of `step`, whole or not at all; `fill` writes its files.

        Raises:
            OSError, RuntimeError
        """
        draft, home = self.path / f"{_WRITING}{step}", self.path / f"checkpoint-{step}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        crash.reach("save.draft_made")
        try:
            fill(draft)
            sync(draft)
            crash.reach("save.draft_synced")
            old = self._put_in(draft, home)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        self.point_to(home)
        crash.reach("save.pointed")
        if old is not None:
            burn(bury(old) or old)
        return home

    def _put_in(self, draft: Path, home: Path) -> Path | None:
        """Gives a finished draft its name; where the older one of this name lies now, if there was one."""
        old = set_aside(home, is_own=True)
        try:
            draft.rename(home)
        except BaseException:
            if old is not None:
                put_back(old)
            raise
        crash.reach("save.renamed")
        sync(self.path)
        crash.reach("save.folder_synced")
        return old

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
