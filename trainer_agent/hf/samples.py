"""The ids of a Trainer's batches: put to them in its loader, taken off where the Trainer draws the batches of a step.

    get_train_dataloader -> install          get_batch_samples(batches, ...) -> batches without ids, ids to the ledger

The batches lose their ids on their way into `get_batch_samples`, so neither that method, nor a trainer that overrides it, nor the
model ever sees any. What an override throws away does not count: the ids are those of the batches it gives.
"""

from collections.abc import Callable, Iterator
from typing import Any

from trainer_agent.data.samples import DOCUMENT_KEY, DocumentOf, Ids, Taking, dataset_of, install, uninstall
from trainer_agent.guest.harmless import go_on
from trainer_agent.guest.wrapping import wrap
from trainer_agent.ledger.ledger import Ledger


class TrainerSamples:
    """Thread: training."""

    def __init__(self, trainer: Any, ledger: Ledger, document_of: DocumentOf = None) -> None:
        self._trainer, self._ledger, self._document_of = trainer, ledger, document_of
        self._loaders: list[Any] = []

    def take_loader(self, loader: Any) -> None:
        """The loader of the `train()` that begins."""
        self._loaders = [loader]
        install(loader, self._source(loader))

    def _source(self, loader: Any) -> DocumentOf:
        """Where the documents are to be found: in the items, or in a column that the Trainer has taken off."""
        key = self._document_of or DOCUMENT_KEY
        if callable(key) or key in (getattr(getattr(loader, "dataset", None), "column_names", None) or ()):
            return self._document_of
        return _column(dataset_of(loader, self._trainer.train_dataset), key) or self._document_of

    def watch(self) -> Callable[[], None]:
        """Puts itself before `get_batch_samples`, outermost; what undoes that."""
        unwrap = wrap(self._trainer, "get_batch_samples", self._get_batch_samples)

        def undo() -> None:
            unwrap()
            for loader in self._loaders:
                uninstall(loader)

        return undo

    def _get_batch_samples(self, original: Callable[..., Any], batches: Iterator[Any], *args: Any, **kwargs: Any) -> Any:
        seen: list[tuple[Any, Ids | None]] = []
        given = original(Taking(batches, lambda batch, ids: seen.append((batch, ids))), *args, **kwargs)
        try:
            self._tell(given, seen)
        except Exception as error:
            go_on(error)
        return given

    def _tell(self, given: Any, seen: list[tuple[Any, Ids | None]]) -> None:
        """The ids of the batches that the step is made of."""
        self._ledger.begin_step()
        batches = given[0]
        known = {id(batch): ids for batch, ids in seen}
        if len(batches) == len(seen) and not all(id(batch) in known for batch in batches):
            known = {id(batch): ids for batch, (_, ids) in zip(batches, seen, strict=True)}  # made over, one by one
        for batch in batches:
            self._ledger.saw(known.get(id(batch)))


def _column(dataset: Any, key: str) -> Callable[[int], object] | None:
    """The documents of a `datasets.Dataset`, whose column the Trainer takes off because the model does not want it."""
    if key not in (getattr(dataset, "column_names", None) or ()) or not hasattr(dataset, "select_columns"):
        return None
    column = dataset.with_format(None).select_columns([key])
    return lambda number: column[number][key]
