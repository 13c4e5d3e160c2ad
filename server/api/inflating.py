"""Bodies that come compressed: one whole gzip member, held to its limits while it is inflated. Pure.

A body may not grow beyond 8 MiB nor beyond 100 times what was sent, and one that grew holds no more JSON values than the largest
plain body could: 8 MiB of `[],[],[]` would become 20 times that in memory.
"""

import zlib

from trainer_agent.wire.messages import MAX_BATCH_BYTES

from .problems import Problem

MAX_PLAIN_BYTES = 8 << 20
MAX_RATIO = 100
MAX_VALUES = MAX_BATCH_BYTES // 2
_GZIP_ONLY = 31


def inflate(body: bytes) -> bytes:
    """The plain body. Blocks for up to 0.1 s, in which other threads run.

    Raises:
        Problem: it is not one whole gzip member (415), or larger than it may be (413).
    """
    most = min(MAX_PLAIN_BYTES, MAX_RATIO * len(body))
    inflating = zlib.decompressobj(_GZIP_ONLY)
    try:
        plain = inflating.decompress(body, most + 1)
    except zlib.error:
        raise _unreadable("is not gzip, or damaged") from None
    if len(plain) > most:
        raise Problem(
            413,
            f"the body inflates to more than {MAX_PLAIN_BYTES} bytes or {MAX_RATIO} times its size",
            "send less at once, or send it plain",
        )
    if not inflating.eof:
        raise _unreadable("is cut off before the end of its gzip member")
    if inflating.unused_data:
        raise _unreadable("goes on after its first gzip member")
    if len(plain) > MAX_BATCH_BYTES and sum(map(plain.count, (b",", b":", b"[", b"{"))) > MAX_VALUES:
        raise Problem(413, f"the body holds more than {MAX_VALUES} JSON values", "send less at once")
    return plain


def _unreadable(why: str) -> Problem:
    """415, as for an encoding that is not known: what follows is the same, to send it plain."""
    return Problem(415, f"the body {why}", "send one whole gzip member, or send the body plain")
