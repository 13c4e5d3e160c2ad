"""The ledger's files: `.lossguard/ledger/<run>/rank-<R>/<segment>-<part>.ledger`, written by one process, read by any.

    file     MAGIC | frame ...          the first frame is the segment's head, in JSON; every other one holds a block
    frame    length u32 | crc32 u32 | payload
    block    first step u64 | last step u64 | `wire.samples`          so that a search unpacks only what it wants

A process that dies leaves a torn frame at most, at the end of its last file: nobody reads it, and the next process begins a file
of its own. The files of one rank take up `MOST_BYTES` together, whatever runs they are of; the oldest go first. Nothing is forced
onto the disk: what a power cut takes is the end of the list.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_agent.wire import codec
from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.samples import NoBlock, StepRow, decode, joined

FOLDER = "ledger"
MOST_BYTES = 256 << 20
FILE_BYTES = 4 << 20
MAGIC = b"LGLEDGR1"
_FRAME, _SPAN = struct.Struct("<II"), struct.Struct("<QQ")
_LONGEST_FRAME = 8 << 20


def folder_of(directory: Path, run_id: str, rank: int) -> Path:
    """The files of one rank of a run in this `.lossguard` folder."""
    return directory / FOLDER / run_id / f"rank-{rank}"


class LedgerWriter:
    """Appends to the files of one rank. Thread: the ledger's."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, file_bytes: int = FILE_BYTES) -> None:
        self._folder, self._most_bytes, self._file_bytes = folder, most_bytes, file_bytes
        self._head: SegmentStarted | None = None
        self._path: Path | None = None
        self._size = 0

    def begin(self, head: SegmentStarted) -> None:
        """What is appended from now on is of this segment.

        Raises:
            OSError
        """
        self._head, self._path = head, None

    def append(self, block: bytes, first_step: int, last_step: int) -> None:
        """Adds a block of these steps.

        Raises:
            OSError: it is not kept; the next one is tried in a new file.
        """
        try:
            if self._path is None or self._size + len(block) > self._file_bytes:
                self._next_file()
            self._write(_SPAN.pack(first_step, last_step) + block)
        except OSError:
            self._path = None
            raise

    def _next_file(self) -> None:
        assert self._head is not None
        _make_room(self._folder.parents[1], self._folder.name, self._most_bytes - self._file_bytes)
        self._folder.mkdir(parents=True, exist_ok=True)
        segment = self._head.segment
        taken = [int(path.stem.split("-")[1]) for path in self._folder.glob(f"{segment:06}-*.ledger")]
        self._path, self._size = self._folder / f"{segment:06}-{max(taken, default=0) + 1:06}.ledger", len(MAGIC)
        self._path.write_bytes(MAGIC)
        self._write(json.dumps(codec.to_json(self._head)).encode())

    def _write(self, payload: bytes) -> None:
        assert self._path is not None
        frame = _FRAME.pack(len(payload), zlib.crc32(payload)) + payload
        with self._path.open("r+b") as file:
            file.seek(self._size)
            file.write(frame)
        self._size += len(frame)


def _make_room(root: Path, rank: str, most_bytes: int) -> None:
    """Deletes the oldest files of a rank, of all runs, until the others are small enough."""
    files = []
    for path in root.glob(f"*/{rank}/*.ledger"):
        with suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime_ns, path.name, path, stat.st_size))
    total = sum(size for *_, size in files)
    for _, _, path, size in sorted(files):
        if total <= most_bytes:
            return
        with suppress(OSError):
            path.unlink()
            total -= size
    for path in root.glob(f"*/{rank}"):
        with suppress(OSError):
            path.rmdir()
            path.parent.rmdir()


@dataclass(frozen=True, slots=True)
class Found:
    """A step as it lies in the ledger."""

    segment: int
    rank: int
    row: StepRow


class LedgerReader:
    """What is known of one rank of a run. A file that cannot be read, or a block that is damaged, is passed over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rank = int(folder.name.split("-")[1])
        self.heads = self._read_heads()

    def _read_heads(self) -> dict[int, SegmentStarted]:
        heads: dict[int, SegmentStarted] = {}
        for path in sorted(self._folder.glob("*.ledger")):
            if (head := _head(path)) is not None:
                heads[head.segment] = head
        return heads

    def rows(self, segment: int, first: int = 0, last: int | None = None) -> Iterator[StepRow]:
        """The rows of one segment, in the order of steps as written."""
        paths = sorted(self._folder.glob(f"{segment:06}-*.ledger"))
        read = (row for path in paths for block in _blocks(path, first, last) for row in block)
        yield from joined(row for row in read if row.step >= first and (last is None or row.step <= last))

    def span(self, segment: int) -> tuple[int, int] | None:
        """The first and the last step that is known of a segment."""
        paths = self._folder.glob(f"{segment:06}-*.ledger")
        spans = [_SPAN.unpack_from(payload) for path in paths for payload in _payloads(path)]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def effective(self, first: int = 0, last: int | None = None, newest: int | None = None) -> Iterator[Found]:
        """The steps that count in the end, in order: each of the newest segment it is in on the way that leads to `newest`."""
        for segment, start, end in reversed(stretches(self.heads, newest)):
            high = end if last is None else last if end is None else min(end, last)
            if high is None or high >= first:
                yield from (Found(segment, self.rank, row) for row in self.rows(segment, max(first, start + 1), high))


def stretches(heads: dict[int, SegmentStarted], newest: int | None = None) -> list[tuple[int, int, int | None]]:
    """Segment, the step it goes on from, and the last of its steps that count (None: all), newest first."""
    out: list[tuple[int, int, int | None]] = []
    segment, last = newest if newest is not None else max(heads, default=None), None
    while segment is not None and segment in heads and segment not in {each[0] for each in out}:
        head = heads[segment]
        if last is None or last > head.from_step:
            out.append((segment, head.from_step, last))
            last = head.from_step
        segment = head.parent
    return out


def readers(directory: Path, run_id: str | None = None) -> list[LedgerReader]:
    """All ranks of a run in a `.lossguard` folder, or of the run that wrote there last."""
    root = directory / FOLDER
    if run_id is None:
        newest = max(root.glob("*/rank-*/*.ledger"), key=_written, default=None)
        run_id = newest.parents[1].name if newest is not None else ""
    ranks = [path for path in (root / run_id).glob("rank-*") if path.name[5:].isdecimal()] if run_id else []
    return [LedgerReader(path) for path in sorted(ranks, key=lambda path: int(path.name[5:]))]


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _head(path: Path) -> SegmentStarted | None:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError, struct.error), path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
        length, checksum = _FRAME.unpack(file.read(_FRAME.size))
        payload = file.read(min(length, _LONGEST_FRAME))
        if zlib.crc32(payload) == checksum:
            return codec.from_json(SegmentStarted, json.loads(payload))
    return None


def _blocks(path: Path, first: int, last: int | None) -> Iterator[list[StepRow]]:
    for payload in _payloads(path):
        begins, ends = _SPAN.unpack_from(payload)
        if ends >= first and (last is None or begins <= last):
            with suppress(NoBlock):
                yield decode(payload[_SPAN.size :])


def _payloads(path: Path) -> Iterator[bytes]:
    """The sound frames after the head; nothing after the first one that is torn."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    at, number = len(MAGIC), 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        start, at = at + _FRAME.size, at + _FRAME.size + length
        payload = data[start:at]
        if len(payload) != length or zlib.crc32(payload) != checksum:
            return
        if number and length >= _SPAN.size:
            yield payload
        number += 1
