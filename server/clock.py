"""The only reader of the time in the server."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Now, aware, in UTC."""
    return datetime.now(UTC)
