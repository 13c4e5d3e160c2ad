"""The thread that inspects checkpoints: reads them, has them on the disk, writes their manifests, tells of them, watches them.

    submitted -> read -> files synced -> manifest drafted, synced -> renamed -> folder synced -> noted -> told
        |                                                              |
        +--- withdrawn, dropped: whatever was found is forgotten ------+

The manifest is the commit mark, so nothing that it speaks of may come to the disk after it. All of this is work that a training
need not wait for. The long part of it, the reading, is done by a process of low priority (see `scanning.far`); the thread itself
has the usual one, since it shares the interpreter with the training. What is to be read anew waits until nothing else does.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from trainer_agent.guest.harmless import quietly
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.wire import crash
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from .directories import draft_manifest, put_on_disk, sync_folders
from .inspection import MANIFEST, Save, Stat, inspect, stats_of
from .vigil import Vigil


class Inspector:
    """Inspects checkpoints in a thread of its own. `tell` is called in that thread.

    Where `output_dir` is given, the checkpoints of the run there are looked after too (see `vigil`).

    Thread: all methods are for the training thread; only `wait` blocks.
    """

    def __init__(self, tell: Callable[[CheckpointSaved], None], output_dir: Path | None = None, run_id: str = "") -> None:
        self._tell = tell
        self._born = time.time()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[CheckpointSaved] = SimpleQueue()
        self._lock = threading.Lock()
        self._wanted: dict[Path, int] = {}
        self._number = self._looks = 0
        self._before: dict[Path, dict[str, Stat]] = {}
        self._away: set[str] = set()
        """Checkpoints that are being written or removed by somebody else, by id."""
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._vigil = Vigil(output_dir, run_id, self._found, self._is_busy) if output_dir is not None else None

    def submit(self, save: Save) -> None:
        """Queues a checkpoint that the trainer has just written."""
        with self._lock:
            self._number += 1
            number = self._wanted[save.directory] = self._number
            self._away.discard(save.directory.name)
            save = replace(save, before=self._before.pop(save.directory, {}))
        self._do(lambda: self._inspect(number, save))

    def drop(self, directory: Path) -> bool:
        """Stops looking at a directory that is about to be moved; whether it was waiting to be inspected."""
        with self._changed:
            was_wanted = self._wanted.pop(directory, None) is not None
            self._away.add(directory.name)
            self._changed.notify_all()
        return was_wanted

    def let_go(self, checkpoint_id: str) -> None:
        """Somebody else removes a checkpoint and tells of it, or puts it back: it is not looked at until then."""
        with self._lock:
            self._away.add(checkpoint_id)

    def keep(self, checkpoint_id: str) -> None:
        """A checkpoint is in its place again, as it was."""
        with self._lock:
            self._away.discard(checkpoint_id)

    def back(self, facts: CheckpointSaved) -> None:
        """An older checkpoint is in the place of a newer one of its step again: has that told."""
        self.keep(facts.checkpoint_id)
        self._do(lambda: self._take_back(facts))

    def forget(self, facts: CheckpointSaved) -> None:
        """A checkpoint is gone, and that was told."""
        vigil = self._vigil
        if vigil is not None and self._thread is not None:
            self._do(lambda: vigil.forget(facts))

    def withdraw(self, directory: Path) -> None:
        """Forgets what is known of a directory that is about to be written anew, its manifest first of all."""
        before = stats_of(directory, self._born)
        with self._lock:
            self._wanted.pop(directory, None)
            self._before[directory] = before
            self._away.add(directory.name)
            with suppress(OSError):
                (directory / MANIFEST).unlink(missing_ok=True)
                crash.reach("manifest.withdrawn")
            self._changed.notify_all()

    def take_up(self) -> None:
        """Has the checkpoints of an earlier process told again, with what became of them."""
        if self._vigil is not None:
            self._look(self._vigil.take_up)
            self._look(self._vigil.look)

    def look(self) -> None:
        """Has the checkpoints looked at: what is gone, and what has changed."""
        if self._vigil is not None and self._thread is not None:
            self._look(self._vigil.look)

    def _look(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._looks += 1
        self._do(lambda: self._looked(job))

    def _do(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lossguard-checkpoints", daemon=True)
            self._thread.start()

    def take_done(self) -> list[CheckpointSaved]:
        """Those inspected since the last call, and those found gone or changed, oldest first."""
        done = []
        with suppress(Empty):
            while True:
                done.append(self._done.get_nowait())
        return done

    def wait(self, timeout_seconds: float) -> bool:
        """Whether nothing is left to inspect within the limit."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._wanted and not self._looks, timeout_seconds)

    def close(self) -> None:
        """Lets the thread end after what is queued."""
        self._jobs.put(None)
        self._thread = None

    def _is_busy(self, name: str) -> bool:
        with self._lock:
            return name in self._away or any(directory.name == name for directory in self._wanted)

    # --- in the thread

    def _run(self) -> None:
        while (job := self._next()) is not None:
            quietly(job)()

    def _next(self) -> Callable[[], None] | None:
        """The next job; while there is none, what is to be read again."""
        vigil = self._vigil
        while vigil is not None and vigil.is_due and self._jobs.empty():
            quietly(vigil.read_next)(lambda: not self._jobs.empty())
        return self._jobs.get()

    def _looked(self, job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            with self._changed:
                self._looks -= 1
                self._changed.notify_all()

    def _found(self, facts: CheckpointSaved) -> None:
        self._done.put(facts)
        self._tell(facts)

    def _take_back(self, facts: CheckpointSaved) -> None:
        if self._vigil is not None:
            self._vigil.took(facts)
        self._tell(facts)

    def _inspect(self, number: int, save: Save) -> None:
        if self._wanted.get(save.directory) != number:
            return
        facts = put_on_disk(_facts_of(save), save.directory)
        crash.reach("manifest.data_synced")
        draft = draft_manifest(save, facts)  # not under the lock, for which a training that saves again would wait
        crash.reach("manifest.drafted")
        if self._is_committed(number, save, draft):
            self._conclude(number, save, facts)

    def _is_committed(self, number: int, save: Save, draft: Path | None) -> bool:
        """Puts the manifest in place, where it is still wanted."""
        with self._changed:
            is_wanted = self._wanted.get(save.directory) == number
            if draft is not None:
                with suppress(OSError):
                    draft.replace(save.directory / MANIFEST) if is_wanted else draft.unlink()
                    crash.reach("manifest.renamed")
        return is_wanted

    def _conclude(self, number: int, save: Save, facts: CheckpointSaved) -> None:
        sync_folders(save.directory)
        crash.reach("manifest.folder_synced")
        if self._vigil is not None:
            self._vigil.took(facts)
        with self._changed:
            if self._wanted.get(save.directory) == number:
                self._found(facts)  # at once: the training may stand still for long
                del self._wanted[save.directory]
                self._changed.notify_all()


def _facts_of(save: Save) -> CheckpointSaved:
    try:
        return inspect(save)
    except Exception as error:
        let_pass(error)
        name, corrupt = save.directory.name, CheckpointState.CORRUPT
        return CheckpointSaved(name, save.segment, save.step, save.time, corrupt, problem=f"cannot be read: {error}")
