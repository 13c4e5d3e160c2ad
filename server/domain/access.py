"""Who calls, and how long a way in stays open."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

SIGN_IN_CODE_LIFE = timedelta(hours=1)
SESSION_LIFE = timedelta(days=7)
SESSION_IDLE = timedelta(hours=12)
SESSION_SEEN_EVERY = timedelta(minutes=5)
"""How exactly the last use of a session is known: writing it down at each request would make every read a write."""


class Role(StrEnum):
    """What a caller may do: an agent writes its own runs and reads nothing else, an operator does what a person does."""

    AGENT = "agent"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone let in. `token_id` is None for a session in a browser."""

    role: Role
    name: str
    token_id: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's way in."""

    role: Role
    name: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime

    def is_open(self, now: datetime) -> bool:
        """Whether it still lets anybody in."""
        return now < self.expires_at and now - self.seen_at < SESSION_IDLE
