"""The files of a spool: reading, cutting, thinning and locking them. Layout: `spool`; frames: `entries`."""

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .entries import Entry, Points, dropped, frames, last_seq, read
from .errors import NotASpool
from .wire import codec
from .wire.messages import Dropped, Numbered, RunStart


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


def read_file(path: Path, first: int) -> Iterator[Entry]:
    """The sound entries of a file that reach `first` or beyond. What follows a damaged frame is not trusted."""
    try:
        data = path.read_bytes()
    except OSError:  # acknowledged and deleted meanwhile, or gone: the numbers are then filled
        return
    for place in frames(data):
        if place.last >= first:
            entry = read(data, place)
            if entry is None:
                return
            yield entry


def cut_torn_tail(path: Path) -> int:
    """Cuts a file after its last whole, sound frame; the number of that one, 0 when there is none (the file is deleted)."""
    data = path.read_bytes()
    end, last = 0, 0
    for place in frames(data):
        if read(data, place) is None:
            break
        end, last = place.end, place.last
    if not end:
        path.unlink()
    elif end < len(data):
        os.truncate(path, end)
    return last


def thinned(entries: list[Entry]) -> tuple[list[Entry], int]:
    """The entries with every stretch of points as one `Dropped`, and how many points went."""
    out: list[Entry] = []
    lost = 0
    for entry in entries:
        if isinstance(entry, Numbered) and not isinstance(entry.record, Dropped):
            out.append(entry)
            continue
        lost += isinstance(entry, Points)
        first, last = entry.seq, last_seq(entry)
        if out and isinstance(out[-1], Numbered) and isinstance(out[-1].record, Dropped) and last_seq(out[-1]) == first - 1:
            first = out.pop().seq
        out.append(dropped(first, last, time.time(), "the spool was full"))
    return out, lost


def lock_file(handle: int) -> None:
    """Locks an open file for this process until the handle is closed.

    Raises:
        BlockingIOError: another holds it.
        OSError
    """
    if sys.platform == "win32":  # pragma: no cover
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(str(error)) from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
