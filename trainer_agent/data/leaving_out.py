"""What a rollback changes of the data: the command's words made into changes of the plan.

    skip      the window of steps                      -> cuts
    exclude   samples, and all samples of documents    -> an exclusion from the target on
    any       samples left out earlier                 -> stay left out, also where the target lies before their place

Whatever cannot be done is refused before anything is touched, with what to do about it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from trainer_agent.wire.commands import RollbackPayload
from trainer_agent.wire.messages import Scalar
from trainer_agent.wire.vocabulary import DataMode

from .exclusion import ranges_of
from .plan import CannotSkip, Changes, DataPlan, Exclusion
from .samples import DOCUMENT_KEY, DocumentOf, documents_of

MOST_NAMED = 5


class Source(Protocol):
    """Where a training gets its batches from, as an integration knows it."""

    def cut(self, first: int, last: int) -> Changes:
        """The batches of the steps `first` .. `last`, to be passed over.

        Raises:
            CannotSkip
        """

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Epoch and place at which the checkpoint in `directory`, of `step`, was saved.

        Raises:
            CannotSkip
        """

    def leave_out(self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int) -> Exclusion:
        """These samples and all samples of these documents, to be left out from a place on.

        Raises:
            CannotSkip
        """

    def lacks(self, changes: Changes) -> str:
        """Why changes that an earlier process was about to make cannot be made any more; empty where they can."""


class NoSource:
    """A training that cannot be rolled back."""

    def cut(self, first: int, last: int) -> Changes:
        """Never."""
        raise CannotSkip(f"steps {first} to {last}: this training cannot be rolled back")

    def lacks(self, changes: Changes) -> str:
        """Nothing."""
        del changes
        return ""

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Never."""
        raise CannotSkip(f"{directory.name} of step {step}: this training cannot be rolled back")

    def leave_out(self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int) -> Exclusion:
        """Never."""
        del samples, documents
        raise CannotSkip(f"epoch {epoch}, place {place}: this training cannot be rolled back")


def changes_for(payload: RollbackPayload, left_step: int, directory: Path, plan: DataPlan, source: Source) -> Changes:
    """What a rollback to the checkpoint in `directory` adds to the plan.

    Raises:
        CannotSkip
    """
    target = payload.target_step
    wanted: Changes = ()
    if payload.data is DataMode.SKIP and left_step > target:  # else nothing was trained since the checkpoint
        first, last = window_of(payload, left_step)
        if first <= target:
            raise CannotSkip(f"the window to skip begins at step {first}, which is not after the checkpoint's {target}")
        wanted = source.cut(first, last)
    if payload.data is DataMode.EXCLUDE or plan.exclusions:
        place = source.place_of(target, directory)
        wanted = (*plan.renewed(*place), *wanted)
    if payload.data is DataMode.EXCLUDE:
        wanted = (*wanted, source.leave_out(payload.exclude_samples, payload.exclude_documents, *place))
    return wanted


def window_of(payload: RollbackPayload, left_step: int) -> tuple[int, int]:
    """First and last step whose batches are passed over; all that was rolled back where the command does not say."""
    first = payload.target_step + 1 if payload.skip_from_step is None else payload.skip_from_step
    return first, left_step if payload.skip_to_step is None else payload.skip_to_step


def excluded_by(changes: Changes) -> dict[str, Scalar]:
    """What a segment says of the samples left out from its beginning on."""
    found = [change for change in changes if isinstance(change, Exclusion)]
    samples = frozenset().union(*(each.samples for each in found))
    documents = dict.fromkeys(document for each in found for document in each.documents)
    return {"excluded_samples": len(samples), "excluded_documents": ", ".join(documents)}


def named_samples(
    samples: Iterable[int], documents: Iterable[str], dataset: Any, document_of: DocumentOf, already: frozenset[int]
) -> frozenset[int]:
    """The samples named, and those of the documents named. May read all of the data.

    Raises:
        CannotSkip: one of them is not there, or nothing would be left.
    """
    wanted, named, count = frozenset(samples), frozenset(documents), len(dataset)
    if not wanted and not named:
        raise CannotSkip("the command names no samples and no documents")
    strange = sorted(sample for sample in wanted if not 0 <= sample < count)
    if strange:
        raise CannotSkip(f"the data set has {count} samples, and none with the number {_listed(strange)}")
    wanted |= _of_documents(named, dataset, document_of) if named else frozenset()
    if len(wanted | already) >= count:
        raise CannotSkip(f"that would leave out all {count} samples of the data set")
    return wanted


def _of_documents(named: frozenset[str], dataset: Any, document_of: DocumentOf) -> frozenset[int]:
    found: dict[int, str] = {}
    has_any = False
    try:
        for sample, document in documents_of(dataset, document_of):
            has_any = True
            if document in named:
                found[sample] = document
    except Exception as error:
        raise CannotSkip(f"the documents of the data cannot be read: {type(error).__name__}: {error}") from error
    if not has_any:
        raise CannotSkip(
            f"the data do not say which document a sample is of: let each item have a {DOCUMENT_KEY!r}, "
            "or give document_of=, a key or a function from a sample's number to the id"
        )
    if unknown := named - set(found.values()):
        raise CannotSkip(f"no sample is of the document {_listed(sorted(unknown))}")
    return frozenset(found)


def exclusion(samples: frozenset[int], documents: tuple[str, ...], epoch: int, place: int, accumulation: int) -> Exclusion:
    """The exclusion of these samples from a place on."""
    return Exclusion(epoch, place, ranges_of(samples), documents, accumulation)


def _listed(things: list[Any]) -> str:
    more = f" and {len(things) - MOST_NAMED} more" if len(things) > MOST_NAMED else ""
    return ", ".join(f"{thing!r:.80}" for thing in things[:MOST_NAMED]) + more
