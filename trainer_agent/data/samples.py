"""Which samples a batch is made of, for the loaders of a training.

    install(loader, document_of)      from now on its batches carry their ids (see `carried`)
    batch, ids = take(batch)          parts the two again, before the script or the model sees the batch
    uninstall(loader)                 the loader as it was

Where a loader cannot tell its samples, the training goes on without ids, and that is said once on stderr. Nothing here draws
from a random state, touches a device or waits.
"""

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_agent.guest.harmless import go_on
from trainer_agent.guest.interrupts import let_pass, suppress_ours
from trainer_agent.guest.voice import Voice

from .carried import (
    DOCUMENT_KEY,
    VIEWS,
    BatchView,
    Carried,
    Collate,
    DocumentOf,
    Ids,
    MapView,
    Numbers,
    StreamView,
    Unweighted,
    document_id,
)

__all__ = ["DOCUMENT_KEY", "DocumentOf", "Ids", "Taking", "Unweighted", "documents_of", "install", "take", "uninstall"]

_voice = Voice()


def install(loader: Any, document_of: DocumentOf = None) -> str:
    """Makes the loader's batches carry their ids; why they will not, empty when they will. Doing it twice does it once.

    Args:
        loader: a `DataLoader`, or one that accelerate has prepared.
        document_of: the key under which an item names its document, or a function from a sample's number to the id; None looks
            for `document_id`.
    """
    reason = ""
    try:
        base = _base(loader)
        reason = _cannot(loader, base)
        if not reason:
            _put_in(base, _portable(base, document_of))
    except Exception as error:
        go_on(error)
        reason = f"{type(error).__name__}: {error}"
    if reason:
        _voice.once(f"no ids {reason}", f"which samples a step is made of is not recorded: {reason}")
    return reason


def uninstall(loader: Any) -> None:
    """The loader as it was before `install`."""
    with suppress_ours():
        base = _base(loader)
        if type(base.collate_fn) is Collate:
            base.collate_fn = base.collate_fn.lossguard_inner
        if type(base.dataset) in VIEWS:
            object.__setattr__(base, "dataset", base.dataset.lossguard_inner)


def take(batch: Any) -> tuple[Any, Ids | None]:
    """The batch as the script's collator made it, and its ids; None where it carries none.

    Thread: the training thread; a few field accesses.
    """
    if type(batch) is not Carried:
        return batch, None
    if batch._lossguard_problem:  # noqa: SLF001  ours
        problem = batch._lossguard_problem  # noqa: SLF001
        _voice.once("documents", problem)
    return batch._lossguard_batch, batch._lossguard_ids  # noqa: SLF001


class Taking:
    """The batches of an iterator without their ids, which go to `see` together with the batch."""

    def __init__(self, batches: Iterator[Any], see: Callable[[Any, Ids | None], None]) -> None:
        self._batches, self._see = batches, see

    def __iter__(self) -> "Taking":
        return self

    def __next__(self) -> Any:
        batch, ids = take(next(self._batches))
        self._see(batch, ids)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def documents_of(dataset: Any, document_of: DocumentOf = None) -> Iterator[tuple[int, str]]:
    """Number and document of each sample that names one, in the order of the data set.

    A function is asked for each number; a column of a `datasets.Dataset` is read without its other columns; else each item is
    made, which may take as long as reading the data.

    Raises:
        Exception: what the data set or the function raises.
    """
    dataset = dataset.lossguard_inner if type(dataset) in VIEWS else dataset
    if callable(document_of):
        yield from ((number, document_id(document_of(number))) for number in range(len(dataset)))
        return
    key = document_of or DOCUMENT_KEY
    column = _column(dataset, key)
    for number in range(len(dataset)):
        item = column[number] if column is not None else dataset[number]
        value = item.get(key) if hasattr(item, "get") else getattr(item, key, None)
        if value is not None:
            yield number, document_id(value)


def dataset_of(loader: Any, given: Any) -> Any:
    """What the numbers of a loader's samples count: its own data set, or the one given where that only has more columns."""
    read = _base(loader).dataset
    read = read.lossguard_inner if type(read) in VIEWS else read
    has_columns = all(getattr(each, "column_names", None) for each in (read, given))
    return given if has_columns and len(read) == len(given) else read


def _column(dataset: Any, key: str) -> Any:
    """Only that column of a `datasets.Dataset`; None for any other data set."""
    if key in (getattr(dataset, "column_names", None) or ()) and hasattr(dataset, "select_columns"):
        return dataset.with_format(None).select_columns([key])
    return None


def _base(loader: Any) -> Any:
    """The loader that fetches: accelerate keeps it inside its own."""
    return getattr(loader, "base_dataloader", loader)


def _cannot(loader: Any, base: Any) -> str:
    """Why this loader's batches can carry no ids; empty when they can."""
    if not isinstance(base, DataLoader):
        return f"the data come from a {type(loader).__name__}, not from a DataLoader"
    if type(loader).__name__ == "DataLoaderDispatcher":
        return "accelerate reads these data in one process and hands them to the others (dispatch_batches)"
    if any(kind.__name__ in ("IterDataPipe", "MapDataPipe") for kind in type(base.dataset).__mro__):
        return "the data set is a data pipe"
    if getattr(base, "_iterator", None) is not None and type(base.dataset) not in VIEWS:
        return "the loader's workers were at work before the training began"
    return ""


def _portable(base: Any, document_of: DocumentOf) -> DocumentOf:
    """The function, unless workers that are started afresh could not be given it."""
    method = getattr(base.multiprocessing_context, "_name", None) or multiprocessing.get_start_method()
    if not base.num_workers or method == "fork" or not callable(document_of):
        return document_of
    try:
        pickle.dumps(document_of)
    except Exception as error:
        let_pass(error)
        _voice.once("documents", f"document_of cannot be given to the loader's workers ({error}), so no documents are recorded")
        return None
    return document_of


def _numbers(dataset: Any) -> Numbers:
    if not isinstance(dataset, IterableDataset):
        return Numbers.PLACES
    # accelerate and transformers deal such a stream out to ranks after it is read: places in it are not places in the data
    return Numbers.NONE if type(dataset).__name__ == "IterableDatasetShard" else Numbers.READ


def _put_in(base: Any, document_of: DocumentOf) -> None:
    inner = base.dataset.lossguard_inner if type(base.dataset) in VIEWS else base.dataset
    collate = base.collate_fn.lossguard_inner if type(base.collate_fn) is Collate else base.collate_fn
    numbers = _numbers(inner)
    view = MapView if base.batch_sampler is not None else BatchView
    base.collate_fn = Collate(collate, document_of, numbers)
    seen = view(inner) if numbers is Numbers.PLACES else StreamView(inner)
    object.__setattr__(base, "dataset", seen)  # the loader refuses it by name
