"""What of a file of frames is sound, wherever in it the damage lies. Pure.

A damaged frame costs itself and nothing else: after it the next place is looked for, byte by byte, at which a frame begins whose
checksum is right and whose numbers go on from the last sound one. What lies between is one `Damage`.

At the end of a file nothing follows that could tell. What has the shape of whole frames there is damage, and counted; what breaks
off in the middle is the torn end of a process that died while it wrote, and is cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .entries import MAGIC, Frame, frame_at, holds_points, is_sound

_MOST_SKIPPED = 1 << 40
"""A frame whose numbers jump further than this is no frame."""
_MOST_DROPPED = 1 << 20
_SHORTEST = 25


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `start` .. `end` of a file that hold no sound frame. Numbers `first` .. `last` are lost; none when last < first.

    No bytes at all where the file is shorter than it should be.
    """

    start: int
    end: int
    first: int
    last: int


def scan(data: bytes, first: int, last: int | None = None) -> Iterator[Frame | Damage]:
    """The sound frames of a file and the damage between them, in their order.

    Args:
        data: the whole file.
        first: the number the file begins with, as its name has it.
        last: the number it ends with; None when that is not known.
    """
    position, expected = len(MAGIC) if data.startswith(MAGIC) else 0, first
    while position < len(data):
        place = _sound_at(data, position, expected) or _next_sound(data, position + 1, expected)
        if place is None:
            yield Damage(position, len(data), expected, expected - 1 if last is None else last)
            return
        if place.start > position:
            yield Damage(position, place.start, expected, place.first - 1)
        yield place
        position, expected = place.end, place.last + 1
    if last is not None and expected <= last:
        yield Damage(position, position, expected, last)


def damaged_end(data: bytes, start: int, first: int) -> tuple[int, int]:
    """Up to where the bytes from `start` on have the shape of whole frames, and the last number of those; `first` - 1 for none.

    Numbers are not believed, since they may be what is damaged: only a record that is no point may take more than one.
    """
    last = first - 1
    while (place := frame_at(data, start)) is not None:
        fits = place.first == last + 1 <= place.last <= last + _MOST_DROPPED and not holds_points(data, place)
        start, last = place.end, place.last if fits else last + 1
    return start, last


def _sound_at(data: bytes, position: int, expected: int) -> Frame | None:
    place = frame_at(data, position)
    if place is None or not expected <= place.first <= place.last or place.first > expected + _MOST_SKIPPED:
        return None
    return place if is_sound(data, place) else None


def _next_sound(data: bytes, position: int, expected: int) -> Frame | None:
    """Looks at every byte: a length that is itself damaged says nothing about where the next frame is."""
    for start in range(position, len(data) - _SHORTEST + 1):
        if data[start + 3] < 2 and (place := _sound_at(data, start, expected)) is not None:  # no frame is 32 MiB long
            return place
    return None
