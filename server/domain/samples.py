"""Which samples went into which steps: what is asked of the ledger, and what counts of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The samples of one step on one rank; None where they have no numbers, or name no documents.

    `superseded`: the step was rewound by a later segment.
    """

    step: int
    segment: int
    rank: int
    samples: tuple[int, ...] | None
    documents: tuple[str, ...] | None
    superseded: bool


@dataclass(frozen=True, slots=True)
class Document:
    """How often a document was read in a window."""

    document: str
    samples: int
    first_step: int
    last_step: int


def last_counting(from_steps: Mapping[int, int], segment: int) -> int | None:
    """The last step of a segment that no later segment has rewound; None: all count. `from_steps`: by segment."""
    return min((step for later, step in from_steps.items() if later > segment), default=None)


def documents_of(steps: Iterable[SampledStep]) -> list[Document]:
    """The documents of these steps, the most frequent first, then by where they were first seen."""
    counts: Counter[str] = Counter()
    seen: dict[str, tuple[int, int]] = {}
    for each in steps:
        counts.update(each.documents or ())
        for name in set(each.documents or ()):
            first, last = seen.get(name, (each.step, each.step))
            seen[name] = min(first, each.step), max(last, each.step)
    found = [Document(name, count, *seen[name]) for name, count in counts.items()]
    return sorted(found, key=lambda each: (-each.samples, each.first_step, each.document))


def most_recent_first(steps: Sequence[SampledStep]) -> list[SampledStep]:
    """By step, the newest first."""
    return sorted(steps, key=lambda each: (-each.step, -each.segment, each.rank))


def oldest_first(steps: Sequence[SampledStep]) -> list[SampledStep]:
    """By segment, step and rank."""
    return sorted(steps, key=lambda each: (each.segment, each.step, each.rank))
