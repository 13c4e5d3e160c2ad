"""The files of a spool: reading, cutting, thinning and locking them. Layout: `spool`; frames: `entries`."""

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_agent.errors import NotASpool
from trainer_agent.guest.on_disk import replace_file
from trainer_agent.wire import codec, crash
from trainer_agent.wire.messages import Dropped, Numbered, RunStart, StepSamples

from .entries import MAGIC, Entry, Frame, Points, dropped, frame, last_seq, read, without_holes
from .salvage import Damage, damaged_end, scan

QUARANTINE = "quarantine.jsonl"
_PASSES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT})
"""Errors that say nothing of the file: the process has too many others open, the machine or its network is short of something."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One file of frames, `first` .. `last`."""

    path: Path
    first: int
    last: int
    size: int
    is_thinned: bool = False


def leftovers(root: Path) -> list[Path]:
    """The folders of spools under `root`, oldest first by when they were begun."""
    try:
        heads = list(root.glob("*/start.json"))
    except OSError:
        return []
    return [head.parent for head in sorted(heads, key=_created_at)]


def _created_at(head: Path) -> float:
    try:
        return float(json.loads(head.read_bytes())["created_at"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0.0


def read_start(directory: Path) -> RunStart:
    """The head of a spool.

    Raises:
        NotASpool
    """
    try:
        head = json.loads((directory / "start.json").read_bytes())
        return codec.from_json(RunStart, head["start"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotASpool(f"{directory} ({type(error).__name__}).") from None


OnDamage = Callable[[Damage, bytes], None]


def read_file(
    path: Path, first: int, last: int | None = None, size: int | None = None, on_damage: OnDamage | None = None
) -> Iterator[Entry]:
    """The sound entries of a file that reach `first` or beyond. What is damaged there goes to `on_damage`.

    Args:
        path: the file, named by its first number.
        first: the number from which on its entries are wanted.
        last: the number the file ends with, where that is known.
        size: of a file that may be written at this very moment: it is read so far and no further.
        on_damage: takes a damage and its bytes.

    Raises:
        OSError: this process cannot read it now, though it may be whole.
    """
    try:
        data = path.read_bytes()[:size]
    except OSError as error:
        if error.errno in _PASSES:
            raise
        return  # acknowledged and deleted meanwhile, or gone: the numbers are then filled
    for place in scan(data, int(path.stem), last):
        if place.last < first and place.first <= place.last:
            continue
        entry = read(data, place) if isinstance(place, Frame) else None  # None too for sound bytes of another version
        if entry is not None:
            yield entry
        elif on_damage is not None:
            on_damage(Damage(place.start, place.end, place.first, place.last), data[place.start : place.end])


def find_files(directory: Path) -> list[SegmentFile]:
    """The segment files a dead process left, oldest first; the torn end of the last is cut, and drafts are deleted.

    Raises:
        OSError, ValueError
    """
    for draft in directory.glob(".*.tmp"):
        draft.unlink(missing_ok=True)
    paths = sorted(path for path in directory.glob("*.seg") if path.stem.isdecimal())
    while paths and not (tail := cut_torn_tail(paths[-1])):
        paths.pop()
    if not paths:
        return []
    firsts = [int(path.stem) for path in paths]
    lasts = [first - 1 for first in firsts[1:]] + [tail]
    sizes = [path.stat().st_size for path in paths]
    return [SegmentFile(*parts) for parts in zip(paths, firsts, lasts, sizes, strict=True)]


def cut_torn_tail(path: Path) -> int:
    """Cuts what breaks off in the middle at the end of a file; the last number that is left, 0 for none (the file is deleted)."""
    data, first = path.read_bytes(), int(path.stem)
    end, last = 0, first - 1
    for place in scan(data, first):
        if isinstance(place, Frame):
            end, last = place.end, place.last
        elif place.end == len(data):
            end, last = damaged_end(data, place.start, last + 1)
    if last < first or end < len(data):
        crash.reach("tail.before_cut")
        path.unlink() if last < first else os.truncate(path, end)
        crash.reach("tail.cut")
    return last if last >= first else 0


def keep_aside(directory: Path, name: str, content: bytes) -> None:
    """Keeps damaged bytes in a file of their own, once."""
    crash.reach("damage.before_keep")
    with suppress(OSError), (directory / name).open("xb") as file:
        file.write(content)
    crash.reach("damage.kept")


def thin(file: SegmentFile, first: int, on_damage: OnDamage) -> tuple[int, int]:
    """Replaces a file by one that has no points, from number `first` on; its size, and how many points went.

    Raises:
        OSError
    """
    sound = read_file(file.path, first, file.last, on_damage=on_damage)
    kept, lost = _thinned(list(without_holes(sound, first, file.last, time.time())))
    data = MAGIC + b"".join(map(frame, kept))
    crash.reach("thin.before")
    replace_file(file.path, data)
    crash.reach("thin.done")
    return len(data), lost


def _thinned(entries: list[Entry]) -> tuple[list[Entry], int]:
    """The entries with every stretch of points and samples as one `Dropped`, and how many went. The ledger keeps the samples."""
    out: list[Entry] = []
    lost = 0
    for entry in entries:
        if isinstance(entry, Numbered) and not isinstance(entry.record, Dropped | StepSamples):
            out.append(entry)
            continue
        lost += isinstance(entry, Points) or isinstance(entry.record, StepSamples)
        first, last = entry.seq, last_seq(entry)
        if out and isinstance(out[-1], Numbered) and isinstance(out[-1].record, Dropped) and last_seq(out[-1]) == first - 1:
            first = out.pop().seq
        out.append(dropped(first, last, time.time(), "the spool was full"))
    return out, lost


def take_lock(directory: Path) -> int:
    """The handle of the lock of a spool, held until it is closed.

    Raises:
        BlockingIOError: another process holds it.
        OSError
    """
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock_file(handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def remove(directory: Path, files: list[SegmentFile]) -> None:
    """Deletes the files that are a spool's, and the folder. What was kept aside stays, beside the head under another name."""
    crash.reach("end.before_unlink")
    keeps = (directory / QUARANTINE).exists() or any(directory.glob("*.damaged"))
    with suppress(OSError):
        for file in files:
            file.path.unlink(missing_ok=True)
        crash.reach("end.segments_unlinked")
        if keeps:  # no spool any more, so that nobody takes it up again
            (directory / "start.json").replace(directory / "sent.json")
        else:
            (directory / "start.json").unlink(missing_ok=True)
        crash.reach("end.head_unlinked")
        (directory / "lock").unlink(missing_ok=True)
        crash.reach("end.lock_unlinked")
        if not keeps:
            directory.rmdir()
        crash.reach("end.folder_removed")


def _lock_file(handle: int) -> None:
    if sys.platform == "win32":  # pragma: no cover
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
