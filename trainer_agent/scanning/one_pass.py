"""One pass over a file: its digest, and how many of the numbers in it are not finite.

Each byte is read once. A piece is digested, and looked at while it still lies in the cache. The pieces are small, so this takes
no memory to speak of; digest and look both let go of the interpreter, so a training in the same process is not held up.

Knows bytes and no format: where the numbers lie is for `tensor_files` to say.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .float_bits import Floats, count

PIECE_BYTES = 1 << 20
"""Fits into the second level of a cache, and is long enough that few turns of the interpreter go into it."""


class Cancelled(Exception):  # noqa: N818  reads as what it says
    """There was something better to do."""


class CutShort(Exception):  # noqa: N818  reads as what it says
    """The file of this name ends inside what it is said to hold."""


@dataclass(frozen=True, slots=True)
class Region:
    """Numbers of one format in a file."""

    offset: int
    size: int
    floats: Floats


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a pass has found."""

    size_bytes: int
    sha256: str
    nonfinite: int


def scan(path: Path, regions: Iterable[Region] = (), give_up: Callable[[], bool] = lambda: False) -> Scanned:
    """Reads all of a file once.

    Args:
        regions: where its numbers are; no two share a byte.
        give_up: asked between pieces.

    Raises:
        CutShort, Cancelled, OSError
    """
    digest, found, size = hashlib.sha256(), 0, 0
    buffer = memoryview(bytearray(PIECE_BYTES))
    with path.open("rb", buffering=0) as file:
        for length, floats in stretches(regions):
            for piece in _pieces(file, buffer, length):
                digest.update(piece)
                found += count(piece, floats) if floats is not None else 0
                size += len(piece)
                if give_up():
                    raise Cancelled
    return Scanned(size, digest.hexdigest(), found)


def stretches(regions: Iterable[Region]) -> Iterator[tuple[int | None, Floats | None]]:
    """A file from its beginning to its end as (bytes, their format or None); the last one has no length and no format."""
    at, size, floats = 0, 0, None
    for region in sorted(regions, key=lambda region: region.offset):
        if region.offset == at + size and region.floats == floats:
            size += region.size
            continue
        at += size
        yield size, floats
        yield region.offset - at, None
        at, size, floats = region.offset, region.size, region.floats
    yield size, floats
    yield None, None


def _pieces(file: Any, buffer: memoryview, length: int | None) -> Iterator[memoryview]:
    """The next `length` bytes in pieces of whole elements; what is left of the file where it is None."""
    left = length
    while left is None or left:
        wanted = PIECE_BYTES if left is None else min(PIECE_BYTES, left)
        piece = buffer[: _fill(file, buffer[:wanted])]
        if left is not None and len(piece) < wanted:
            raise CutShort(Path(file.name).name)
        if not piece:
            return
        yield piece
        left = left if left is None else left - len(piece)


def _fill(file: Any, buffer: memoryview) -> int:
    """How many bytes there were to read."""
    done = 0
    while done < len(buffer) and (more := file.readinto(buffer[done:])):
        done += more
    return done
