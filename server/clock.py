"""The only reader of the time in the server."""

import time
from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, aware, in UTC."""
    return datetime.now(UTC)


def uptime() -> float:
    """Seconds that only ever go on, also while the process is stopped or the machine sleeps (where the system can tell)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
