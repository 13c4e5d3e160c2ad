"""What is noted once of a rule on a run: that the series it names does not come, or that its pattern matches too many.

A note stands where a rule's state would, under a rank that no process has: so it goes with the rule, and is of one version.
"""

from enum import IntEnum
from typing import Final


class RuleNote(IntEnum):
    """Which of them; the number stands for the rank."""

    NEVER_SEEN = -2
    """The series has not come in the first `SEEN_BY_STEPS` steps. Taken back when it comes."""
    TOO_MANY_SERIES = -3
    """More than `MAX_SERIES` series match; those after the first so many are not judged."""


RULE_NOTES: Final = tuple(RuleNote)


def is_note(rank: int) -> bool:
    """Whether what stands at a rank is a note, and no rule's state."""
    return rank in RULE_NOTES
