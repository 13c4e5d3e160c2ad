"""How long to wait before the next try. Pure.

Full jitter: anything from nothing to a ceiling that doubles from 1 s, so that many agents coming back after an outage do not
arrive together. At the ceiling of 60 s it is the last quarter of it: they are spread by then, and a server that is away for long
is asked about 75 times an hour. A server's `Retry-After` is a floor, within reason.

Source: AWS Architecture Blog, "Exponential Backoff And Jitter", 2015.
"""

from collections.abc import Callable

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0
SHORTEST_AT_LONGEST = 0.75
CRAWL_SECONDS = 300.0
"""Between tries where only a person can help: a token that is refused, an address that is not LossGuard's."""
MOST_RETRY_AFTER_SECONDS = 3600.0


def delay(failures: int, random: Callable[[], float], retry_after: float | None = None) -> float:
    """Seconds to wait after `failures` failures in a row (at least 1). `random` gives numbers in [0, 1)."""
    ceiling = FIRST_SECONDS * 2.0 ** min(max(failures, 1) - 1, 16)
    shortest = 0.0 if ceiling < LONGEST_SECONDS else SHORTEST_AT_LONGEST
    jitter = (shortest + random() * (1 - shortest)) * min(LONGEST_SECONDS, ceiling)
    if retry_after is None or not retry_after > 0:
        return jitter
    return min(retry_after, MOST_RETRY_AFTER_SECONDS) + jitter


def crawl(random: Callable[[], float]) -> float:
    """Seconds to wait where only a person can help."""
    return CRAWL_SECONDS * (1.0 + 0.1 * random())


def read_retry_after(header: str | None) -> float | None:
    """Seconds out of a `Retry-After` header. The date form is not read: it would compare two wall clocks."""
    if header is None or not header.strip().isascii() or not header.strip().isdigit() or len(header) > 12:
        return None
    return float(header)
