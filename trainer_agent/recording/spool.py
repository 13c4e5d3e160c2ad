"""Spool: the durable, bounded queue of one incarnation. Entries wait here until the server has them.

    <directory>/start.json                 the RunStart, so that a later process can send what is left
    <directory>/lock                       held by the one process that sends from here
    <directory>/<first seq>.seg            frames (see `entries`), appended to; a torn tail is cut at the next open
    <directory>/<first seq>-<at>.damaged   bytes of such a file that were no frame any more; what lies around them is sent
    <directory>/quarantine.jsonl           records the server would not take
    <directory>/sent.json                  what start.json is called once all is sent and one of the two above is left

The newest entries are also in memory (`hot`), so a disk that fails costs nothing while the server takes them. Past its bound the
oldest *points* on disk become one counted `Dropped`; other records stay. Numbers never get a hole.

What is written outlives the process at once, since the page cache does. A power cut costs at most the segment file that was open,
1 MiB of frames: a file that is full is synced, and so is its name, when the next one is begun (and the open one when the spool is
closed with something in it). `syncer` does that on a thread of its own, so until the disk has answered the file before is at risk
too. Without a sync the kernel writes within some 30 s anyway.

Thread: one writer calls `write` and `tend` and owns the files; the sender calls `entries`, `acknowledge` and `set_aside`.
The lock is held over memory only, so a disk that never answers holds up the writer alone.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainer_agent.errors import NotASpool, SpoolInUse
from trainer_agent.guest.on_disk import replace_file
from trainer_agent.wire import codec, crash
from trainer_agent.wire.messages import RunStart

from .entries import MAGIC, Entry, Points, clip, dropped, frame, last_seq, without_holes
from .salvage import Damage
from .segments import QUARANTINE, SegmentFile, find_files, keep_aside, read_file, read_start, remove, take_lock, thin
from .syncer import Syncer

MAX_BYTES = 1 << 30
SEGMENT_BYTES = 1 << 20
HOT_ENTRIES = 4096
RETRY_SECONDS = 1.0
SYNC_SECONDS = 0.2
"""How long the end of a process waits for the disk to have what the server has not."""


class Spool:
    """The entries of one incarnation that the server does not have yet."""

    def __init__(
        self,
        directory: Path,
        start: RunStart,
        max_bytes: int = MAX_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self.start = start
        self.last_seq = 0
        self.next_seq = 1
        """What the server expects next, as far as is known here."""
        self.dropped = 0
        """Records lost on this side: to the bound, to a disk that could not be written, or to damage."""
        self.damage: list[str] = []
        """Sentences about damage found, for whoever speaks to the user; they are taken out there."""
        self.trouble = ""
        """Why the disk is not written now; empty when it is."""
        self._max_bytes, self._segment_bytes, self._clock = max_bytes, segment_bytes, clock
        self._memory = threading.Lock()
        self._hot: list[Entry] = []
        self._files: list[SegmentFile] = []
        self._aside: dict[int, str] = {}
        self._damaged: set[str] = set()
        self._syncer = Syncer()
        self._written = 0
        self._retry_at = 0.0
        self._active: int | None = None
        self._lock: int | None = None

    @classmethod
    def create(cls, directory: Path, start: RunStart, max_bytes: int = MAX_BYTES) -> "Spool":
        """A new spool. A disk that refuses is tried again at the next writes; until then entries are in memory only."""
        spool = cls(directory, start, max_bytes)
        spool._prepare()
        return spool

    @classmethod
    def adopt(cls, directory: Path) -> "Spool":
        """The spool of a process that has gone, locked for this one. What was torn by its end is cut.

        Raises:
            SpoolInUse, NotASpool
        """
        spool = cls(directory, read_start(directory))
        try:
            spool._lock = take_lock(directory)
        except BlockingIOError:
            raise SpoolInUse(str(directory)) from None
        except OSError as error:
            raise NotASpool(f"{directory}: {error.strerror}.") from None
        try:
            spool._find_files()
        except (OSError, ValueError) as error:
            spool.abandon()
            raise NotASpool(f"{directory} ({error}).") from None
        return spool

    @property
    def waiting(self) -> int:
        """How many numbers the server does not have yet."""
        return max(0, self.last_seq + 1 - self.next_seq)

    def write(self, entries: list[Entry]) -> None:
        """Takes entries whose numbers follow on `last_seq`. Never raises for a disk. Thread: writer."""
        with self._memory:
            self._hot.extend(entries)
            if entries:
                self.last_seq = last_seq(entries[-1])
        self._write_down()
        self._cool()

    def tend(self) -> None:
        """Deletes what the server has, and keeps the bound. Thread: writer."""
        try:
            while self._files and self._files[0].last < self.next_seq and self._files[0] is not self._active_file():
                crash.reach("tend.before_unlink")
                self._files[0].path.unlink(missing_ok=True)
                crash.reach("tend.unlinked")
                with self._memory:
                    del self._files[0]
            while sum(file.size for file in self._files) > self._max_bytes and self._thin_oldest():
                pass
        except OSError as error:
            self._fail(error)

    def entries(self, first: int) -> Iterator[Entry]:
        """All entries from `first` on, without holes. Thread: sender."""
        with self._memory:
            hot = self._hot.copy()
            files = [file for file in self._files if file.last >= first]
            last = self.last_seq
        hot_first = hot[0].seq if hot else last + 1
        found = self._chained(files, hot, first, hot_first)
        return (self._or_aside(entry) for entry in without_holes(found, first, last, time.time()))

    def acknowledge(self, next_seq: int) -> None:
        """The server has everything below `next_seq`. Thread: sender."""
        crash.reach("ack.before")
        with self._memory:
            self.next_seq = next_seq
            keep = next((i for i, entry in enumerate(self._hot) if last_seq(entry) >= next_seq), len(self._hot))
            del self._hot[:keep]
        crash.reach("ack.done")

    def set_aside(self, entry: Entry, reason: str) -> None:
        """Keeps a record the server will not take in a file of its own; a `Dropped` goes in its place. Thread: sender."""
        with self._memory:
            self._aside[entry.seq] = reason
            self.dropped += 1
        crash.reach("refused.before_keep")
        with suppress(OSError, ValueError, TypeError):
            line = json.dumps({"reason": reason, "entry": codec.to_json(entry)}, allow_nan=False)
            with (self.directory / QUARANTINE).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        crash.reach("refused.kept")

    def close(self) -> None:
        """Lets go of the files; the folder goes too when the server has everything. Thread: the last to use it."""
        self._close_active()
        self._syncer.finish(SYNC_SECONDS if self.waiting else 0.0)
        if self._lock is not None and not self.waiting:
            remove(self.directory, self._files)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def abandon(self) -> None:
        """Lets go of the files without a change to them: what a forked child does."""
        for handle in (self._active, self._lock):
            if handle is not None:
                with suppress(OSError):
                    os.close(handle)
        self._active = self._lock = None

    def _chained(self, files: list[SegmentFile], hot: list[Entry], first: int, hot_first: int) -> Iterator[Entry]:
        if first < hot_first:
            for file in files:
                size = file.size if file is files[-1] else None
                for entry in read_file(file.path, first, file.last, size, partial(self._note_damage, file)):
                    if entry.seq >= hot_first:
                        break
                    yield clip(entry, first, hot_first - 1)
        yield from hot

    def _or_aside(self, entry: Entry) -> Entry:
        reason = self._aside.get(entry.seq)
        return entry if reason is None else dropped(entry.seq, last_seq(entry), time.time(), f"refused: {reason}"[:200])

    def _prepare(self) -> bool:
        """Makes the folder, its lock and its head, once."""
        if self._lock is not None:
            return True
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            crash.reach("spool.folder_made")
            self._lock = take_lock(self.directory)
            crash.reach("spool.locked")
            head = {"format": 1, "created_at": time.time(), "start": codec.to_json(self.start)}
            path = self.directory / "start.json"
            replace_file(path, json.dumps(head, allow_nan=False).encode(), is_synced=False)
            self._syncer.ask(path, folders=4)  # up to the output folder: they may all be new
            crash.reach("spool.head_written")
        except (OSError, ValueError, TypeError) as error:
            self._fail(error)
            return False
        return True

    def _write_down(self) -> None:
        """Brings onto the disk what is not there yet."""
        if self._clock() < self._retry_at or not self._prepare():
            return
        todo = self._unwritten()
        if not todo:
            return
        try:
            self._append(todo)
        except OSError as error:
            self._fail(error)
        else:
            self._written, self.trouble = last_seq(todo[-1]), ""

    def _unwritten(self) -> list[Entry]:
        with self._memory:
            index = len(self._hot)
            while index and self._hot[index - 1].seq > self._written:
                index -= 1
            return self._hot[index:]

    def _append(self, entries: list[Entry]) -> None:
        """One write for all; a part of it that failed is cut off again."""
        file = self._active_file()
        if file is None or file.size > self._segment_bytes:
            file = self._new_file(entries[0].seq)
        data = memoryview((b"" if file.size else MAGIC) + b"".join(map(frame, entries)))
        assert self._active is not None
        crash.reach("segment.before_write")
        try:
            done = 0
            while done < len(data):
                done += os.write(self._active, data[done:])
        except OSError:
            crash.reach("segment.before_cut_back")
            os.ftruncate(self._active, file.size)
            crash.reach("segment.cut_back")
            raise
        crash.reach("segment.written")
        grown = replace(file, last=last_seq(entries[-1]), size=file.size + len(data))
        with self._memory:
            self._files[-1] = grown

    def _active_file(self) -> SegmentFile | None:
        return self._files[-1] if self._active is not None and self._files else None

    def _new_file(self, first: int) -> SegmentFile:
        self._close_active()
        path = self.directory / f"{first:020d}.seg"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._active = os.open(path, flags, 0o644)
        crash.reach("segment.created")
        file = SegmentFile(path, first, first - 1, 0)
        with self._memory:
            self._files.append(file)
        return file

    def _close_active(self) -> None:
        if self._active is not None:
            with suppress(OSError):
                os.close(self._active)
            self._active = None
            crash.reach("segment.closed")
            if self._files and self._files[-1].last >= self.next_seq:
                self._syncer.ask(self._files[-1].path)

    def _cool(self) -> None:
        """Keeps the memory bounded: written entries leave first, then the oldest points that could not be written."""
        with self._memory:
            excess = len(self._hot) - HOT_ENTRIES
            if excess <= 0:
                return
            while excess and self._hot[0].seq <= self._written:
                del self._hot[: (cut := self._count_written(excess))]
                excess -= cut
            if excess:
                kept = [entry for entry in self._hot[: HOT_ENTRIES // 4 + excess] if not isinstance(entry, Points)]
                lost = HOT_ENTRIES // 4 + excess - len(kept)
                self._hot[: HOT_ENTRIES // 4 + excess] = kept
                self.dropped += lost

    def _count_written(self, most: int) -> int:
        count = 0
        while count < most and self._hot[count].seq <= self._written:
            count += 1
        return count

    def _thin_oldest(self) -> bool:
        """Turns the points of the oldest file into `Dropped`; whether there was one. What is in memory too is not lost yet."""
        with self._memory:
            in_memory = self._hot[0].seq if self._hot else self.last_seq + 1
        index = next((i for i, file in enumerate(self._files) if not file.is_thinned and file.last < in_memory), None)
        if index is None:
            return False
        if self._files[index] is self._active_file():
            self._close_active()
        file = self._files[index]
        size, lost = thin(file, max(file.first, self.next_seq), partial(self._note_damage, file))
        with self._memory:
            self._files[index] = replace(file, size=size, is_thinned=True)
            self.dropped += lost
        return True

    def _find_files(self) -> None:
        """Takes over the files that a dead process left."""
        self._files = find_files(self.directory)
        if self._files:
            self.last_seq = self._written = self._files[-1].last
            self.next_seq = self._files[0].first

    def _note_damage(self, file: SegmentFile, damage: Damage, content: bytes) -> None:
        """Counts it once, keeps its bytes, and has it told. Thread: whichever came across it."""
        name = f"{file.path.stem}-{damage.start}.damaged"
        with self._memory:
            is_current = any(known.path == file.path and known.is_thinned == file.is_thinned for known in self._files)
            if name in self._damaged or not is_current:
                return
            self._damaged.add(name)
            count = damage.last - damage.first + 1
            self.dropped += count
            self.damage.append(f"{count} records in {file.path} are damaged and count as lost; their bytes are kept in {name}")
        keep_aside(self.directory, name, content)

    def _fail(self, error: Exception) -> None:
        self.trouble = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self._retry_at = self._clock() + RETRY_SECONDS
