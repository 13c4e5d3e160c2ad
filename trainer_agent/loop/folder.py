"""The checkpoints of a hand-written loop in their folder: put there whole, and found again after a crash.

    .lossguard-writing-N  --renamed-->  checkpoint-N

A checkpoint that is saved again after a rollback takes the place of the old one, which is set aside first and comes back if the
process dies in between (see `trash`). Which one a restart goes on from is not known here (see `going_on`).
"""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer_agent.checkpoints.trash import OLD, burn, bury, in_trash, put_back, set_aside
from trainer_agent.guest.on_disk import sync
from trainer_agent.wire import crash

_NAME = re.compile(r"checkpoint-([0-9]{1,15})")
_WRITING = ".lossguard-writing-"


class Folder:
    """The output directory of one run. Not for several threads."""

    def __init__(self, output_dir: Path) -> None:
        self.path = output_dir

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
