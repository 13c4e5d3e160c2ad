"""The batch ledger: which samples and documents went into which steps."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import Connection

from server.domain.samples import SampledStep, documents_of
from server.services.errors import Invalid, NotFound
from server.store import runs, samples
from server.store.samples import Sought, Window

from .deps import MAX_INTEGER, In, Out, RunId
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs/{run_id}", route_class=PeopleRoute, tags=["samples"])

MOST_STEPS, MOST_SAMPLES, MOST_DOCUMENTS = 1_000, 100_000, 500
MOST_STEPS_OF_DOCUMENTS, MOST_SAMPLES_OF_DOCUMENTS = 20_000, 2_000_000

Step = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
Rank = Annotated[int | None, Query(ge=0, le=1_000_000)]
Segment = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


class StepOut(Out):
    """What one rank took in one step."""

    step: int
    segment: int
    rank: int
    superseded: bool
    samples: list[int]
    """Empty where the data have no numbers, and where a sample or document was looked for."""
    documents: list[str] | None
    """One for each sample; null where the data name none."""


class SamplesOut(Out):
    """Steps with their samples."""

    steps: list[StepOut]
    ranks: list[StepOut]
    """Of one step (`step=`): what each rank took, in the segment that counts, else in the newest one that was left with it."""
    truncated: bool


class DocumentOut(Out):
    """How often a document was read in a window."""

    document: str
    samples: int
    first_step: int
    last_step: int


class DocumentsOut(Out):
    """The documents of a window, the most frequent first."""

    documents: list[DocumentOut]
    truncated: bool


@router.get("/samples")
def read_samples(
    *,
    run_id: RunId,
    context: In,
    segment: Segment = None,
    from_step: Step = None,
    to_step: Step = None,
    step: Step = None,
    rank: Rank = None,
    sample: Annotated[int | None, Query(ge=0, le=MAX_INTEGER)] = None,
    document: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
) -> SamplesOut:
    """Steps with their samples, or the steps that a sample or a document went into."""
    if sample is not None and document is not None:
        raise Invalid("sample and document are both given", "look for one at a time")
    window = Window(segment, from_step if step is None else step, to_step if step is None else step, rank)
    what = sample if sample is not None else document
    with context.database.reading() as connection:
        _expect(connection, run_id)
        if what is not None:
            return _out(samples.find(connection, run_id, what, window, most_steps=MOST_STEPS), with_samples=False)
        read = samples.read if step is None else samples.read_step
        sought = read(connection, run_id, window, most_steps=MOST_STEPS, most_samples=MOST_SAMPLES)
        return _out(sought, with_samples=True, of_one_step=step is not None)


@router.get("/documents")
def read_documents(
    *,
    run_id: RunId,
    context: In,
    segment: Segment = None,
    from_step: Step = None,
    to_step: Step = None,
    rank: Rank = None,
) -> DocumentsOut:
    """The documents that were read in a window, the most frequent first."""
    window = Window(segment, from_step, to_step, rank)
    with context.database.reading() as connection:
        _expect(connection, run_id)
        most = {"most_steps": MOST_STEPS_OF_DOCUMENTS, "most_samples": MOST_SAMPLES_OF_DOCUMENTS}
        sought = samples.read(connection, run_id, window, **most)
    found = documents_of(sought.steps)
    shown = [DocumentOut(document=d.document, samples=d.samples, first_step=d.first_step, last_step=d.last_step) for d in found]
    return DocumentsOut(documents=shown[:MOST_DOCUMENTS], truncated=sought.truncated or len(shown) > MOST_DOCUMENTS)


def _expect(connection: Connection, run_id: str) -> None:
    if runs.get(connection, run_id) is None:
        raise NotFound(f"there is no run {run_id}", "open the list of runs")


def _out(sought: Sought, *, with_samples: bool, of_one_step: bool = False) -> SamplesOut:
    steps = [_step_out(each, with_samples=with_samples) for each in sought.steps]
    return SamplesOut(steps=steps, ranks=steps if of_one_step else [], truncated=sought.truncated)


def _step_out(each: SampledStep, *, with_samples: bool) -> StepOut:
    documents = list(each.documents) if with_samples and each.documents is not None else None
    return StepOut(
        step=each.step,
        segment=each.segment,
        rank=each.rank,
        superseded=each.superseded,
        samples=list(each.samples or ()) if with_samples else [],
        documents=documents,
    )
