"""How directories of checkpoints leave their place: into a name of ours first, then off the disk.

    checkpoint-N  -->  .lossguard-trash-checkpoint-N-XXXXXXXX  -->  unlinked, its manifest first        removed
    checkpoint-N  -->  .lossguard-old-checkpoint-N  -->  checkpoint-N, or into the trash                a save of the same step
    checkpoint-N  -->  another-run-checkpoint-N                                                         and there for good

Each arrow but the unlinking is one rename, so that whatever a crash leaves is whole under one of these names. Only names with our
mark are ever cleaned up. A link is neither followed nor moved.
"""

import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from trainer_agent.guest.on_disk import sync
from trainer_agent.guest.voice import Voice
from trainer_agent.wire import crash
from trainer_agent.wire.messages import CheckpointSaved

from .directories import is_id, read_manifest
from .inspection import MANIFEST

TRASH, OLD, ANOTHER = ".lossguard-trash-", ".lossguard-old-", "another-run-"
_IN_TRASH = re.compile(re.escape(TRASH) + r"checkpoint-[0-9]{1,15}-[0-9a-f]{8}")


def is_there(directory: Path) -> bool:
    """Whether it is a directory itself, and no link to one."""
    return directory.is_dir() and not directory.is_symlink()


def bury(directory: Path) -> Path | None:
    """Moves a directory into the trash beside it; where it lies now, None when there is none.

    Raises:
        OSError
    """
    if not is_there(directory):
        return None
    name = directory.name.removeprefix(OLD)
    grave = directory.with_name(f"{TRASH}{name}-{secrets.token_hex(4)}")
    directory.rename(grave)
    crash.reach("rotate.renamed")
    sync(grave.parent)  # else a power cut could leave half a checkpoint under its old name
    crash.reach("rotate.folder_synced")
    return grave


def burn(grave: Path) -> None:
    """Takes what lies in the trash off the disk, as far as that can be done."""
    with suppress(OSError):
        (grave / MANIFEST).unlink(missing_ok=True)
        crash.reach("rotate.manifest_unlinked")
    shutil.rmtree(grave, ignore_errors=True)
    crash.reach("rotate.unlinked")


def set_aside(directory: Path, *, is_own: bool) -> Path | None:
    """Makes room for a save under this name; where it lies now what was there. None when nothing was, or a link.

    Raises:
        OSError
    """
    if not is_there(directory):
        return None
    aside = directory.with_name(f"{OLD}{directory.name}") if is_own else _free_name(directory)
    directory.rename(aside)
    crash.reach("save.old_set_aside")
    sync(aside.parent)
    return aside


def put_back(aside: Path) -> Path | None:
    """Gives what was set aside its name again; what a save has left there goes into the trash, where it lies now.

    Raises:
        OSError
    """
    home = aside.with_name(aside.name.removeprefix(OLD))
    grave = bury(home)
    aside.rename(home)
    crash.reach("save.old_put_back")
    return grave


def tidy(root: Path, run_id: str) -> list[Path]:
    """Takes up what a process left that died while it saved or removed: what lies in the trash, to be burnt.

    Of a step that was being saved again the new checkpoint counts once it has its manifest, and the old one until then. One that
    is written to its end and was not inspected stays beside the old one.
    """
    for aside in sorted(root.glob(f"{OLD}checkpoint-*")):
        home = aside.with_name(aside.name.removeprefix(OLD))
        if is_id(home.name) and is_there(aside) and read_manifest(aside, run_id, home.name) is not None:
            with suppress(OSError):
                if read_manifest(home, run_id) is not None:
                    bury(aside)
                elif not _is_written(home):
                    put_back(aside)
    return in_trash(root)


def in_trash(root: Path) -> list[Path]:
    """What lies in the trash of a folder."""
    return [path for path in sorted(root.glob(f"{TRASH}*")) if _IN_TRASH.fullmatch(path.name) and is_there(path)]


def _is_written(directory: Path) -> bool:
    """Whether the last file that a trainer writes is there: its own state, at this step."""
    try:
        return f"checkpoint-{json.loads((directory / 'trainer_state.json').read_bytes())['global_step']}" == directory.name
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _free_name(directory: Path) -> Path:
    names = (f"{ANOTHER}{directory.name}{f'-{number}' if number else ''}" for number in range(1000))
    return next(path for path in map(directory.with_name, names) if not os.path.lexists(path))


class Trash:
    """Removes checkpoints of one run in a thread of its own. `tell` is called there, with each that is gone from its place.

    Thread: the methods are for the training thread; `spare` waits for a rename under way, and only `wait` for more.
    """

    def __init__(self, root: Path, run_id: str, tell: Callable[[CheckpointSaved], None]) -> None:
        self._root, self._run_id, self._tell = root, run_id, tell
        self._jobs: SimpleQueue[CheckpointSaved | Path | None] = SimpleQueue()
        self._due: set[str] = set()
        self._left = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def remove(self, facts: CheckpointSaved) -> None:
        """Queues a checkpoint of which these are the facts."""
        with self._changed:
            self._due.add(facts.checkpoint_id)
        self._queue(facts)

    def burn(self, grave: Path | None) -> None:
        """Queues what lies in the trash already; nothing for None."""
        if grave is not None:
            self._queue(grave)

    def spare(self, checkpoint_id: str) -> None:
        """What was queued under this name is not removed after all, if it is still there."""
        with self._changed:
            self._due.discard(checkpoint_id)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether nothing is left to remove within the limit."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._left, timeout_seconds)

    @property
    def is_busy(self) -> bool:
        """Whether something is left to remove."""
        return self._left > 0

    def close(self) -> None:
        """Lets the thread end after what is queued."""
        self._jobs.put(None)
        self._thread = None

    def _queue(self, job: CheckpointSaved | Path) -> None:
        with self._changed:
            self._left += 1
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lossguard-trash", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                burn(job) if isinstance(job, Path) else self._remove(job)
            except Exception as error:
                Voice().once("trash", f"{job} cannot be removed: {error}")
            with self._changed:
                self._left -= 1
                self._changed.notify_all()

    def _remove(self, facts: CheckpointSaved) -> None:
        """Nothing, unless what lies there is still what was queued: a directory of this run, with these facts."""
        with self._changed:
            if facts.checkpoint_id not in self._due:
                return
            self._due.discard(facts.checkpoint_id)
            directory = self._root / facts.checkpoint_id
            found = read_manifest(directory, self._run_id)
            if found is None or (found.segment, found.step) != (facts.segment, facts.step):
                return
            crash.reach("rotate.before_rename")
            grave = bury(directory)
        if grave is not None:
            self._tell(facts)
            burn(grave)
