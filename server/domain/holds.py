"""A hold: a person has said that nothing is done to a run by itself, until when and why.

It stops automatic actions and nothing else: alerts fire, people are told, and what a person orders is done. A silence is the
other way round: it stops messages, and never an action.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

MAX_HOURS: Final = 720.0
"""30 days: a hold that nobody would remember is no hold but a policy, which is the script's to say."""
MAX_REASON: Final = 2_000


@dataclass(frozen=True, slots=True)
class Hold:
    """Who said so, when, until when, and why."""

    by: str
    at: datetime
    until: datetime
    reason: str

    def lasts(self, now: datetime) -> bool:
        """Whether it is not over yet."""
        return now < self.until


def to_parsed(hold: Hold) -> dict[str, Any]:
    """The hold as JSON."""
    return {"by": hold.by, "at": hold.at.isoformat(), "until": hold.until.isoformat(), "reason": hold.reason}


def from_parsed(parsed: Mapping[str, Any] | None) -> Hold | None:
    """The hold out of what `to_parsed` gave; None out of None."""
    if parsed is None:
        return None
    at, until = datetime.fromisoformat(parsed["at"]), datetime.fromisoformat(parsed["until"])
    return Hold(str(parsed["by"]), at, until, str(parsed["reason"]))


def in_force(parsed: Mapping[str, Any] | None, now: datetime) -> Hold | None:
    """The stored hold, where it is not over."""
    hold = from_parsed(parsed)
    return hold if hold is not None and hold.lasts(now) else None
