"""Looks after the checkpoints that were told of: whether they are still there, and still what they were.

    (the process starts) -> tells again what it finds, and what it misses
    (another is saved)   -> stat of each: gone, or changed since     read again: the changed ones, and the one not read longest

A full look reads all files of a checkpoint, so it is made in between, and given up when there is something better to do. What is
found is told once, and noted where the next process finds it; a manifest is never rewritten.

Thread: the inspector's, all of it.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer_agent.scanning.one_pass import Cancelled
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from . import told
from .directories import read_all
from .inspection import MANIFEST, changed_file
from .told import Entry, condemned

GONE = "its directory is gone"
UNFINISHED = "it was being saved anew when the process ended"
FOREIGN = "its manifest cannot be read, or is no longer one of this run"


class Vigil:
    """`found` is told what is found; `is_busy` says whether a checkpoint is being saved or removed just now, so let be."""

    def __init__(
        self,
        output_dir: Path,
        run_id: str,
        found: Callable[[CheckpointSaved], None],
        is_busy: Callable[[str], bool],
    ) -> None:
        self._root, self._run_id, self._found, self._is_busy = output_dir, run_id, found, is_busy
        self._entries: dict[str, Entry] = {}
        self._gone: dict[str, Entry] = {}
        self._facts: dict[str, CheckpointSaved] = {}
        self._due: deque[str] = deque()
        self._owes_one = False

    @property
    def is_due(self) -> bool:
        """Whether there is a full look to be made."""
        return bool(self._due)

    def take_up(self) -> None:
        """Tells what became of the checkpoints of an earlier process, the missing ones too: its last words may be lost."""
        before = told.read(self._root, self._run_id)
        self._gone = told.read(self._root, self._run_id, "gone")
        for facts in read_all(self._root, self._run_id):
            if facts.checkpoint_id not in self._facts:
                self._keep(facts, before.pop(facts.checkpoint_id, None))
        self._owes_one = True
        for facts in self._facts.values():
            self._found(facts)
        for name, entry in before.items():
            if name not in self._facts and not self._is_busy(name):
                missing = self._missing(name, entry)
                self._found(missing)
                if missing.state is CheckpointState.DELETED:
                    self._gone[name] = replace(entry, problem=missing.problem)
        for name, entry in self._gone.items():
            if name not in before and not (self._root / name).exists():
                self._found(_deleted(name, entry))
        self._write()  # last, so that none is forgotten before it was told of

    def _keep(self, facts: CheckpointSaved, entry: Entry | None) -> None:
        if entry is None or not entry.is_of(facts):
            entry = Entry(facts.segment, facts.step, facts.time)
        self._gone.pop(facts.checkpoint_id, None)
        self._entries[facts.checkpoint_id] = entry
        self._facts[facts.checkpoint_id] = condemned(facts, entry)

    def _missing(self, name: str, entry: Entry) -> CheckpointSaved:
        directory = self._root / name
        is_there = directory.is_dir()
        problem = GONE if not is_there else FOREIGN if (directory / MANIFEST).exists() else UNFINISHED
        state = CheckpointState.CORRUPT if is_there else CheckpointState.DELETED
        return CheckpointSaved(name, entry.segment, entry.step, entry.time, state, problem=problem)

    def took(self, facts: CheckpointSaved) -> None:
        """A checkpoint was inspected just now, and is about to be told of."""
        name = facts.checkpoint_id
        self._gone.pop(name, None)
        self._facts[name] = facts
        self._entries[name] = Entry(facts.segment, facts.step, facts.time, time.time(), self._stats(facts))
        self._owes_one = True
        self._write()

    def forget(self, gone: CheckpointSaved) -> None:
        """Somebody else has removed it, and told of it."""
        known = self._facts.get(gone.checkpoint_id)
        if known is not None and (known.segment, known.step) == (gone.segment, gone.step):
            self._bury(gone)
            self._write()

    def _bury(self, gone: CheckpointSaved) -> None:
        del self._facts[gone.checkpoint_id]
        entry = self._entries.pop(gone.checkpoint_id)
        self._gone[gone.checkpoint_id] = replace(entry, stats={}, problem=gone.problem)

    def look(self) -> None:
        """Finds what is gone, and what has to be read again."""
        watched = [facts for name, facts in self._facts.items() if not self._is_busy(name)]
        gone = [facts for facts in watched if not (self._root / facts.checkpoint_id).is_dir()]
        for facts in gone:
            missed = replace(facts, state=CheckpointState.DELETED, time=time.time(), files=(), problem=GONE)
            self._found(missed)
            self._bury(missed)
        if gone:
            self._write()
        whole = [facts for facts in watched if facts not in gone and facts.state is CheckpointState.COMPLETE]
        self._due.extend(name for name in self._to_read(whole) if name not in self._due)

    def _to_read(self, whole: list[CheckpointSaved]) -> list[str]:
        names = [f.checkpoint_id for f in whole if self._stats(f) != self._entries[f.checkpoint_id].stats]
        if not names and whole and self._owes_one:
            names = [min(whole, key=lambda facts: self._entries[facts.checkpoint_id].verified_at).checkpoint_id]
        self._owes_one = False
        return names

    def read_next(self, give_up: Callable[[], bool]) -> None:
        """Makes the next full look; where it is given up it stays the next."""
        name = self._due[0]
        facts = self._facts.get(name)
        if facts is not None and not self._is_busy(name):
            stats = self._stats(facts)
            try:
                problem = changed_file(facts, self._root / name, give_up)
            except Cancelled:
                return
            if not self._is_busy(name) and (self._root / name).is_dir():  # else it says nothing of the checkpoint
                self._note(facts, problem, stats)
        self._due.popleft()

    def _note(self, facts: CheckpointSaved, problem: str, stats: dict[str, tuple[int, int]]) -> None:
        name = facts.checkpoint_id
        entry = replace(self._entries[name], verified_at=time.time(), stats=stats, problem=problem)
        self._entries[name], self._facts[name] = entry, condemned(facts, entry)
        self._write()
        if problem:
            self._found(self._facts[name])

    def _stats(self, facts: CheckpointSaved) -> dict[str, tuple[int, int]]:
        stats = {}
        for file in facts.files:
            with suppress(OSError):
                found = (self._root / facts.checkpoint_id / file.path).stat()
                stats[file.path] = (found.st_size, found.st_mtime_ns)
        return stats

    def _write(self) -> None:
        told.write(self._root, self._run_id, self._entries, self._gone)


def _deleted(name: str, entry: Entry) -> CheckpointSaved:
    """What an earlier process has told of it, or was about to."""
    return CheckpointSaved(name, entry.segment, entry.step, entry.time, CheckpointState.DELETED, problem=entry.problem)
