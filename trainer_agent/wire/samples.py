"""Which samples went into which steps, as it lies on disk and travels: one block for a stretch of steps of one rank and segment.

    block    zlib of:  length u32 | header (JSON: version, rows, part, documents) | columns
    column   N whole numbers of 64 bits, lowest bytes of all first, then the next lowest, ...: what they have in common packs away
    columns  step (differences) | count of samples | flags | samples (differences, sign in the lowest bit) | documents | numbers

`documents` are places in the header's table, plus one; 0 is none. `numbers` are float64 with every bit kept. Differences run on
over the rows of a block. A row with more samples than a block may hold goes on in the next block, whose `part` says so.
`StepSamples.body` is a block in base64.

Limits: `MOST_SAMPLES` samples, `MOST_ROWS` rows and about `MOST_TEXT` bytes of document ids a block; so an encoded block stays
under 0.7 MiB whatever is in it, and fits into a batch (1 MiB). Measured: 3 bytes a sample drawn at random out of 10^6.
"""

import base64
import binascii
import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

MOST_SAMPLES = 16_384
MOST_ROWS = 1_024
MOST_TEXT = 192 * 1024
MOST_RAW = 4 << 20
"""No sound block unpacks to more."""
HIGHEST_SAMPLE = (1 << 53) - 1

_VERSION = 1
T = TypeVar("T")
_LENGTH = struct.Struct("<I")
_NUMBERS = ("loss", "learning_rate", "loss_scale", "learning_rate_factor")
_KNOWS_SAMPLES = 1 << len(_NUMBERS)
_KNOWS_DOCUMENTS = _KNOWS_SAMPLES << 1
_OVERFLOWED = _KNOWS_SAMPLES << 2


class NoBlock(ValueError):  # noqa: N818  reads as what it says
    """The bytes are no block of samples."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One optimizer step of one rank. `samples` and `documents` have shape (N,); None where they are not known.

    The numbers are those of the step as it was made: the learning rate with the factor in it, the loss scale before the update.
    `part` counts from 0 where the samples of one step are spread over several blocks.
    """

    step: int
    samples: tuple[int, ...] | None = None
    documents: tuple[str, ...] | None = None
    loss: float | None = None
    learning_rate: float | None = None
    loss_scale: float | None = None
    learning_rate_factor: float | None = None
    overflowed: bool = False
    part: int = 0

    @property
    def text(self) -> int:
        """How much the ids of its documents may weigh, in bytes."""
        return sum(4 + 4 * len(each) for each in set(self.documents)) if self.documents else 0


def blocks(rows: Iterable[StepRow]) -> Iterator[list[StepRow]]:
    """The rows in stretches that fit into a block each; rows that do not are cut."""
    stretch: list[StepRow] = []
    samples = text = 0
    for row in rows:
        for piece in _pieces(row):
            weight = len(piece.samples or piece.documents or ()), piece.text
            full = samples + weight[0] > MOST_SAMPLES or text + weight[1] > MOST_TEXT or len(stretch) == MOST_ROWS
            if stretch and (full or piece.part):
                yield stretch
                stretch, samples, text = [], 0, 0
            stretch.append(piece)
            samples, text = samples + weight[0], text + weight[1]
    if stretch:
        yield stretch


def _pieces(row: StepRow) -> Iterator[StepRow]:
    size = len(row.samples or row.documents or ())
    if size <= MOST_SAMPLES and row.text <= MOST_TEXT:
        yield row
        return
    room = MOST_SAMPLES if row.text <= MOST_TEXT else 200  # ids of 200 characters at most
    for part, start in enumerate(range(0, size, room)):
        yield replace(
            row,
            samples=row.samples and row.samples[start : start + room],
            documents=row.documents and row.documents[start : start + room],
            part=row.part + part,
        )


def joined(rows: Iterable[StepRow]) -> Iterator[StepRow]:
    """The rows, with those that were cut put together again. They come in the order of step and part."""
    held: StepRow | None = None
    for row in rows:
        if held is not None and row.part and row.step == held.step:
            held = replace(held, samples=_both(held.samples, row.samples), documents=_both(held.documents, row.documents))
            continue
        if held is not None:
            yield held
        held = row
    if held is not None:
        yield held


def _both(first: tuple[T, ...] | None, second: tuple[T, ...] | None) -> tuple[T, ...] | None:
    return None if first is None or second is None else first + second


def encode(rows: Sequence[StepRow]) -> bytes:
    """One block. Expects rows as `blocks` gives them."""
    table = {name: place for place, name in enumerate(dict.fromkeys(name for row in rows for name in row.documents or ()), 1)}
    header = json.dumps({"v": _VERSION, "rows": len(rows), "part": rows[0].part, "documents": list(table)}).encode()
    numbers = [value for row in rows for name in _NUMBERS if (value := getattr(row, name)) is not None]
    columns = (
        _differences(row.step for row in rows),
        [len(row.samples or row.documents or ()) for row in rows],
        [_flags(row) for row in rows],
        _differences(sample for row in rows for sample in row.samples or ()),
        [table[name] for row in rows for name in row.documents or ()],
        [_bits(value) for value in numbers],
    )
    body = b"".join(_column(column) for column in columns)
    return zlib.compress(_LENGTH.pack(len(header)) + header + body, 6)


def decode(block: bytes) -> list[StepRow]:
    """The rows of a block.

    Raises:
        NoBlock
    """
    try:
        return _rows(*_unpacked(block))
    except (struct.error, StopIteration, RuntimeError, OverflowError) as error:
        raise NoBlock(f"{type(error).__name__}: {error}") from None


def documents_in(block: bytes) -> frozenset[str]:
    """The ids of documents in a block, without looking at its rows.

    Raises:
        NoBlock
    """
    return frozenset(_outline(_unpacked(block)[0])[1])


def sample_planes(block: bytes) -> bytes:
    """The column of samples as it is packed, for whoever reads it with more than Python; a check of the block's outline, too.

    Raises:
        NoBlock
    """
    header, data = _unpacked(block)
    count, _, _ = _outline(header)
    reader = _Reader(data)
    reader.take(count)
    counts, flags = reader.take(count), reader.take(count)
    return reader.planes(_known(counts, flags, _KNOWS_SAMPLES))


def part_of(block: bytes) -> int:
    """Which part of its first row's step a block begins with.

    Raises:
        NoBlock
    """
    return _outline(_unpacked(block)[0])[2]


def _unpacked(block: bytes) -> tuple[dict[str, object], memoryview]:
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(block, MOST_RAW)
        if not unpacker.eof:
            raise NoBlock("it is too large, or breaks off")
        (length,) = _LENGTH.unpack_from(raw)
        header = json.loads(raw[4 : 4 + length])
        if header["v"] != _VERSION:
            raise NoBlock(f"it has version {header['v']}")
        return header, memoryview(raw)[4 + length :]
    except (zlib.error, struct.error, KeyError, TypeError, IndexError, RecursionError, OverflowError, UnicodeError) as error:
        raise NoBlock(f"{type(error).__name__}: {error}") from None
    except ValueError as error:
        raise NoBlock(str(error)) from None


def to_text(block: bytes) -> str:
    """A block as `StepSamples.body`."""
    return base64.b64encode(block).decode()


def from_text(body: str) -> bytes:
    """The block of a body.

    Raises:
        NoBlock
    """
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NoBlock(str(error)) from None


def _rows(header: dict[str, object], data: memoryview) -> list[StepRow]:
    count, names, part = _outline(header)
    reader = _Reader(data)
    steps, counts, flags = _summed(reader.take(count)), reader.take(count), reader.take(count)
    if sum(counts) > MOST_SAMPLES or not all(0 <= step <= HIGHEST_SAMPLE for step in steps):
        raise NoBlock("it holds more than a block may")
    samples = iter(_summed(reader.take(_known(counts, flags, _KNOWS_SAMPLES))))
    documents = iter(reader.take(_known(counts, flags, _KNOWS_DOCUMENTS)))
    numbers = iter(reader.take(sum((flag & (_KNOWS_SAMPLES - 1)).bit_count() for flag in flags)))
    return [
        StepRow(
            step,
            tuple(_sample(next(samples)) for _ in range(size)) if flag & _KNOWS_SAMPLES else None,
            tuple(_name(names, next(documents)) for _ in range(size)) if flag & _KNOWS_DOCUMENTS else None,
            **{name: _float(next(numbers)) for place, name in enumerate(_NUMBERS) if flag & (1 << place)},
            overflowed=bool(flag & _OVERFLOWED),
            part=part if not place_of_row else 0,
        )
        for place_of_row, (step, size, flag) in enumerate(zip(steps, counts, flags, strict=True))
    ]


def _outline(header: dict[str, object]) -> tuple[int, list[str], int]:
    count, names, part = header.get("rows"), header.get("documents"), header.get("part")
    if not (isinstance(count, int) and 0 < count <= MOST_ROWS and isinstance(part, int) and 0 <= part <= MOST_RAW):
        raise NoBlock("its header makes no sense")
    if not isinstance(names, list) or not all(map(_is_text, names)):
        raise NoBlock("its header makes no sense")
    return count, names, part


def _is_text(name: object) -> bool:
    """Whether it is a text that can be sent on: half of a surrogate pair cannot."""
    return isinstance(name, str) and (name.isascii() or not any("\ud800" <= each <= "\udfff" for each in name))


def _known(counts: Sequence[int], flags: Sequence[int], what: int) -> int:
    return sum(size for size, flag in zip(counts, flags, strict=True) if flag & what)


def _flags(row: StepRow) -> int:
    known = sum(1 << place for place, name in enumerate(_NUMBERS) if getattr(row, name) is not None)
    known |= _KNOWS_SAMPLES if row.samples is not None else 0
    known |= _KNOWS_DOCUMENTS if row.documents is not None else 0
    return known | (_OVERFLOWED if row.overflowed else 0)


def _sample(number: int) -> int:
    if not 0 <= number <= HIGHEST_SAMPLE:
        raise NoBlock(f"{number} is no number of a sample")
    return number


def _name(names: list[str], place: int) -> str:
    if not 1 <= place <= len(names):
        raise NoBlock("a document is not in its table")
    return names[place - 1]


def _differences(numbers: Iterable[int]) -> list[int]:
    out, last = [], 0
    for number in numbers:
        out.append((number - last) << 1 if number >= last else ((last - number) << 1) - 1)
        last = number
    return out


def _summed(differences: Iterable[int]) -> list[int]:
    out, last = [], 0
    for each in differences:
        last += each >> 1 if not each & 1 else -((each + 1) >> 1)
        out.append(last)
    return out


def _column(numbers: Sequence[int]) -> bytes:
    data = _little(array("Q", numbers)).tobytes()
    return b"".join(data[place::8] for place in range(8))


class _Reader:
    """Columns, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def planes(self, count: int) -> bytes:
        end = self._at + 8 * count
        planes = bytes(self._data[self._at : end])
        if len(planes) != 8 * count:
            raise NoBlock("it breaks off")
        self._at = end
        return planes

    def take(self, count: int) -> list[int]:
        planes = self.planes(count)
        mixed = bytearray(8 * count)
        for place in range(8):
            mixed[place::8] = planes[place * count : (place + 1) * count]
        return _little(array("Q", bytes(mixed))).tolist()


def _little(numbers: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _bits(value: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits


def _float(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value
