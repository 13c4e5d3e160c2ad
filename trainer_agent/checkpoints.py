"""Checkpoints as directories: which of them are this run's, and which directory an id stands for.

    saved by the trainer -> inspected -> manifest written -> recorded        gone from the disk -> recorded as deleted

The manifest `lossguard.json` is written last, by temp and rename, and is the commit mark: a directory without it, or with one of
another run, is no checkpoint of this run. It states facts (see `inspection`); the verdict is the server's. An id is the name of
the directory and is looked up in the catalogue, so no path ever comes from outside.
"""

import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from .config import write_draft
from .inspection import MANIFEST, Save, inspect
from .wire import codec
from .wire.messages import CheckpointSaved
from .wire.vocabulary import CheckpointState

_ID = re.compile(r"checkpoint-[0-9]{1,15}")


def is_id(text: str) -> bool:
    """Whether `text` may be the id of a checkpoint at all."""
    return _ID.fullmatch(text) is not None


def draft_manifest(save: Save, facts: CheckpointSaved) -> Path | None:
    """The commit mark, written and only to be renamed; None where it cannot be. Without it no restart takes the checkpoint."""
    content = {"run_id": save.run_id, "checkpoint": codec.to_json(facts)}
    with suppress(OSError):
        return write_draft(save.directory / MANIFEST, json.dumps(content, allow_nan=False, indent=1).encode())
    return None


def read_manifest(directory: Path, run_id: str, name: str | None = None) -> CheckpointSaved | None:
    """The facts in the manifest; None when there is none of this run that can be read. `name`: its own, where it was moved."""
    try:
        content = json.loads((directory / MANIFEST).read_bytes())
        facts = codec.from_json(CheckpointSaved, content["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return facts if content.get("run_id") == run_id and facts.checkpoint_id == (name or directory.name) else None


class Catalogue:
    """The checkpoints of one run under its output directory, by id. Not for several threads."""

    def __init__(self, output_dir: Path, run_id: str) -> None:
        self._root = output_dir
        self._run_id = run_id
        self._known: dict[str, CheckpointSaved] = {}

    def load(self) -> None:
        """Takes up the checkpoints that an earlier life of the run left."""
        for directory in sorted(self._root.glob("checkpoint-*")):
            facts = read_manifest(directory, self._run_id) if is_id(directory.name) else None
            if facts is not None:
                self._known[facts.checkpoint_id] = facts

    def add(self, facts: CheckpointSaved) -> None:
        """Takes a checkpoint in, in place of an older one of the same id."""
        self._known[facts.checkpoint_id] = facts

    def forget(self, checkpoint_id: str) -> CheckpointSaved | None:
        """Takes one out, and gives what was known of it."""
        return self._known.pop(checkpoint_id, None)

    def known(self) -> list[CheckpointSaved]:
        """All of them, oldest first: by segment, then by step."""
        return sorted(self._known.values(), key=lambda facts: (facts.segment, facts.step))

    def facts(self, checkpoint_id: str) -> CheckpointSaved | None:
        """What is true of it; None when this run has no such checkpoint."""
        return self._known.get(checkpoint_id)

    def directory(self, checkpoint_id: str) -> Path | None:
        """Where it lies, with links resolved; None unless it is this run's, there, and inside the output directory."""
        if not is_id(checkpoint_id) or checkpoint_id not in self._known:
            return None
        with suppress(OSError):
            directory = (self._root / checkpoint_id).resolve(strict=True)
            if directory.is_dir() and directory.is_relative_to(self._root.resolve()):
                return directory
        return None

    def path_of_step(self, step: int) -> Path:
        """Where the trainer puts the checkpoint of a step."""
        return self._root / f"checkpoint-{step}"

    def take_vanished(self, now: float) -> list[CheckpointSaved]:
        """Those whose directory is gone, as deleted; each is told once."""
        gone = [facts for name, facts in self._known.items() if not (self._root / name).is_dir()]
        for facts in gone:
            del self._known[facts.checkpoint_id]
        return [replace(f, state=CheckpointState.DELETED, time=now, files=(), problem="its directory is gone") for f in gone]


class Inspector:
    """Inspects checkpoints in a thread of its own, at low priority, writes their manifests and tells of them there.

    `tell` is called in that thread.

    Thread: `submit`, `withdraw`, `take_done` and `wait` are for the training thread; only `wait` blocks.
    """

    def __init__(self, tell: Callable[[CheckpointSaved], None]) -> None:
        self._tell = tell
        self._jobs: SimpleQueue[tuple[int, Save] | None] = SimpleQueue()
        self._done: SimpleQueue[CheckpointSaved] = SimpleQueue()
        self._lock = threading.Lock()
        self._wanted: dict[Path, int] = {}
        self._number = 0
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def submit(self, save: Save) -> None:
        """Queues a checkpoint that the trainer has just written."""
        with self._lock:
            self._number += 1
            self._wanted[save.directory] = self._number
            self._jobs.put((self._number, save))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lossguard-checkpoints", daemon=True)
            self._thread.start()

    def drop(self, directory: Path) -> bool:
        """Stops looking at a directory that is about to be moved; whether it was waiting to be inspected."""
        with self._changed:
            was_wanted = self._wanted.pop(directory, None) is not None
            self._changed.notify_all()
            return was_wanted

    def withdraw(self, directory: Path) -> None:
        """Forgets what is known of a directory that is about to be written anew, its manifest first of all."""
        with self._lock:
            self._wanted.pop(directory, None)
            with suppress(OSError):
                (directory / MANIFEST).unlink(missing_ok=True)
            self._changed.notify_all()

    def take_done(self) -> list[CheckpointSaved]:
        """Those inspected since the last call, oldest first."""
        done = []
        with suppress(Empty):
            while True:
                done.append(self._done.get_nowait())
        return done

    def wait(self, timeout_seconds: float) -> bool:
        """Whether nothing is left to inspect within the limit."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._wanted, timeout_seconds)

    def close(self) -> None:
        """Lets the thread end after what is queued."""
        self._jobs.put(None)
        self._thread = None

    def _run(self) -> None:
        with suppress(OSError, AttributeError):  # on Linux this lowers the thread alone
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while (job := self._jobs.get()) is not None:
            self._inspect(*job)

    def _inspect(self, number: int, save: Save) -> None:
        if self._wanted.get(save.directory) != number:
            return
        try:
            facts = inspect(save)
        except Exception as error:
            facts = CheckpointSaved(
                save.directory.name,
                save.segment,
                save.step,
                save.time,
                CheckpointState.CORRUPT,
                problem=f"cannot be read: {error}",
            )
        draft = draft_manifest(save, facts)  # not under the lock, for which a training that saves again would wait
        with self._changed:
            is_wanted = self._wanted.get(save.directory) == number
            if draft is not None:
                with suppress(OSError):
                    draft.replace(save.directory / MANIFEST) if is_wanted else draft.unlink()
            if is_wanted:
                self._done.put(facts)
                self._tell(facts)  # at once: the training may stand still for long
                del self._wanted[save.directory]
                self._changed.notify_all()
