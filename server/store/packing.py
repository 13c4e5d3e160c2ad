"""Points as bytes: little-endian float64, so that every bit of a value is kept, a NaN's payload too.

A *block* is an array of shape (4, N): seq, step, time, value. Whole numbers up to 2^53 - 1 are exact in it.

    chunk    block
    batch    uint32 length of the header | header | block of each series
             header: JSON [[series, N], ...], padded with spaces so that the blocks lie on multiples of 8
"""

import json
import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from server.domain.reduction import Sparkline
from trainer_agent.wire.messages import Column

Block = NDArray[np.float64]

SEQ, STEP, TIME, VALUE = range(4)
_ROWS = 4
_NUMBER = np.dtype("<f8")
_BYTES_PER_POINT = _ROWS * _NUMBER.itemsize


def block_of(column: Column) -> Block:
    """The points of a column, shape (4, N)."""
    return np.array((column.seq, column.step, column.time, column.value), dtype=np.float64)


def pack(block: Block) -> bytes:
    """A block as the body of a chunk."""
    return block.astype(_NUMBER, copy=False).tobytes()


def unpack(body: bytes) -> Block:
    """The block of a chunk, shape (4, N)."""
    return np.frombuffer(body, _NUMBER).reshape(_ROWS, -1)


def pack_batch(blocks: Iterable[tuple[str, Block]]) -> bytes:
    """The series of one batch as one body."""
    parts = list(blocks)
    header = json.dumps([[series, block.shape[1]] for series, block in parts], separators=(",", ":")).encode()
    header += b" " * (-(4 + len(header)) % 8)
    return struct.pack("<I", len(header)) + header + b"".join(pack(block) for _, block in parts)


def unpack_batch(body: bytes) -> list[tuple[str, Block]]:
    """Series and block, in the order they were packed. The arrays are views on `body`."""
    (length,) = struct.unpack_from("<I", body)
    offset = 4 + length
    parts = []
    for series, count in json.loads(body[4:offset]):
        numbers = np.frombuffer(body, _NUMBER, _ROWS * count, offset)
        parts.append((series, numbers.reshape(_ROWS, count)))
        offset += _BYTES_PER_POINT * count
    return parts


def pack_sparkline(line: Sparkline) -> bytes:
    """Stride, seen, then the steps and the values."""
    return struct.pack(f"<QQ{2 * len(line.steps)}d", line.stride, line.seen, *line.steps, *line.values)


def unpack_sparkline(body: bytes | None) -> Sparkline:
    """The sparkline out of its bytes; an empty one out of none."""
    if body is None:
        return Sparkline()
    count = (len(body) - 16) // 16
    stride, seen, *numbers = struct.unpack(f"<QQ{2 * count}d", body)
    return Sparkline(stride, seen, tuple(numbers[:count]), tuple(numbers[count:]))
