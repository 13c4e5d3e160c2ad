"""What lies in the spool: numbered entries, and the frames that carry them. Pure.

An entry takes one number, a `Dropped` as many as it counts. A frame is

    length u32 | crc32 u32 | first seq u64 | last seq u64 | payload        little-endian, crc over all after itself

and a payload is either points in binary, so that every bit of a float64 stays, or a record in the JSON of the wire.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from trainer_agent.wire import codec
from trainer_agent.wire.messages import Dropped, Numbered

MAGIC = b"LGSPOOL1"
_HEAD = struct.Struct("<II")
_SPAN = struct.Struct("<QQ")
_POINTS = struct.Struct("<BdQQHI")
_IS_POINTS, _IS_RECORD = 0, 1
_MAX_PAYLOAD = 16 << 20


@dataclass(frozen=True, slots=True)
class Points:
    """One `log()` call: the values of N series at one step. names and values have shape (N,)."""

    seq: int
    time: float
    segment: int
    step: int
    names: tuple[str, ...]
    values: tuple[float, ...]


Entry = Points | Numbered


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a whole frame lies in its file: bytes `start` .. `end`, numbers `first` .. `last`."""

    first: int
    last: int
    start: int
    end: int


def last_seq(entry: Entry) -> int:
    """The highest number the entry takes."""
    if isinstance(entry, Numbered) and isinstance(entry.record, Dropped):
        return entry.seq + entry.record.count - 1
    return entry.seq


def dropped(first: int, last: int, time: float, reason: str) -> Numbered:
    """An entry that stands in the place of `first` .. `last`."""
    return Numbered(first, Dropped(last - first + 1, time, reason))


def clip(entry: Entry, first: int, last: int) -> Entry:
    """The part of an entry inside `first` .. `last`; only a `Dropped` can be cut."""
    if isinstance(entry, Numbered) and isinstance(entry.record, Dropped):
        begin, end = max(entry.seq, first), min(last_seq(entry), last)
        return Numbered(begin, replace(entry.record, count=end - begin + 1))
    return entry


def without_holes(entries: Iterable[Entry], first: int, last: int, time: float) -> Iterator[Entry]:
    """The entries `first` .. `last`, with a `Dropped` wherever a number is missing."""
    reason = "lost before they were written, or the file is damaged"
    expected = first
    for entry in entries:
        end = last_seq(entry)
        if end < expected:
            continue
        if entry.seq > expected:
            yield dropped(expected, entry.seq - 1, time, reason)
        yield clip(entry, expected, end)
        expected = end + 1
    if expected <= last:
        yield dropped(expected, last, time, reason)


def frame(entry: Entry) -> bytes:
    """An entry as it lies in the file.

    Raises:
        TypeError, ValueError: a record that JSON cannot carry.
    """
    body = _SPAN.pack(entry.seq, last_seq(entry)) + _pack(entry)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def frame_at(data: bytes, position: int) -> Frame | None:
    """The frame that `position` says it begins, if it fits into the data; checksums are left to `is_sound`."""
    if position + _HEAD.size + _SPAN.size > len(data):
        return None
    length, _ = _HEAD.unpack_from(data, position)
    end = position + _HEAD.size + length
    if not _SPAN.size < length <= _MAX_PAYLOAD or end > len(data):
        return None
    first, last = _SPAN.unpack_from(data, position + _HEAD.size)
    return Frame(first, last, position, end)


def is_sound(data: bytes, place: Frame) -> bool:
    """Whether the checksum of a frame is right."""
    checksum: int = _HEAD.unpack_from(data, place.start)[1]
    return zlib.crc32(memoryview(data)[place.start + _HEAD.size : place.end]) == checksum


def holds_points(data: bytes, place: Frame) -> bool:
    """Whether a frame says that it holds points, which take one number each."""
    return data[place.start + _HEAD.size + _SPAN.size] == _IS_POINTS


def read(data: bytes, place: Frame) -> Entry | None:
    """The entry of a sound frame; None when it is none that this version knows."""
    try:
        return _unpack(place, data[place.start + _HEAD.size + _SPAN.size : place.end])
    except (ValueError, struct.error, IndexError, TypeError):  # sound bytes of another version
        return None


def _pack(entry: Entry) -> bytes:
    if isinstance(entry, Numbered):
        return bytes([_IS_RECORD]) + codec.encode(entry)
    names = _joined(entry.names)
    head = _POINTS.pack(_IS_POINTS, entry.time, entry.segment, entry.step, len(entry.values), len(names))
    return head + names + struct.pack(f"<{len(entry.values)}d", *entry.values)


def _unpack(place: Frame, payload: bytes) -> Entry:
    if payload[0] == _IS_RECORD:
        return codec.decode(Numbered, payload[1:])
    _, time, segment, step, count, names_length = _POINTS.unpack_from(payload)
    names_end = _POINTS.size + names_length
    values = struct.unpack(f"<{count}d", payload[names_end:])
    return Points(place.first, time, segment, step, _split(payload[_POINTS.size : names_end]), values)


@lru_cache(maxsize=256)
def _joined(names: tuple[str, ...]) -> bytes:
    return "\n".join(names).encode()


@lru_cache(maxsize=256)
def _split(names: bytes) -> tuple[str, ...]:
    return tuple(names.decode().split("\n"))
