"""The data of a Trainer: its loader follows the plan, and a batch that stands in for an empty one leaves nothing behind.

    get_train_dataloader -> the plan is put in       get_batch_samples -> stand-ins are not counted       training_step -> not run
                                                                                                             or run without weight

What counts of a step is known from its place in the epoch, which is the Trainer's own arithmetic of steps. Where the training has
one process a stand-in is not run at all. Where it has several it is run, because the ranks wait for each other in the forward and
backward pass, and all it does is undone (see `weightless`). The loss of a step is the mean over what counts on all ranks.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from trainer_agent.data.leaving_out import exclusion, named_samples
from trainer_agent.data.plan import CannotSkip, Changes, DataPlan, Exclusion, Shape, cuts_for
from trainer_agent.data.planned import Planned, Share, install, shape_of
from trainer_agent.data.samples import DocumentOf, dataset_of
from trainer_agent.data.weightless import Weightless
from trainer_agent.guest.harmless import go_on
from trainer_agent.guest.wrapping import wrap
from trainer_agent.wire.vocabulary import DataMode

IGNORED = -100
"""The label of a token that no loss counts."""


class TrainerData:
    """Thread: training. `leave_out` may also run in a thread for which the training waits."""

    def __init__(self, trainer: Any, document_of: DocumentOf = None) -> None:
        self._trainer, self._document_of = trainer, document_of
        self._loader: Any = None
        self._planned: Planned | None = None
        self._plan: DataPlan | None = None
        self._share: Share | None = None
        self._own: list[bool] = []

    # --- the plan

    def take_loader(self, loader: Any, plan: DataPlan) -> None:
        """The loader of the `train()` that begins.

        Raises:
            CannotSkip: it cannot follow the plan.
        """
        self._loader, self._plan = loader, plan
        self._planned = install(loader, plan, self._accumulation, fills=True)

    @property
    def _accumulation(self) -> int:
        return int(self._trainer.args.gradient_accumulation_steps)

    def _shape(self) -> Shape:
        if self._loader is None:
            raise CannotSkip("the order of the data is not known yet")
        return shape_of(self._loader, self._accumulation)

    def cut(self, first: int, last: int) -> Changes:
        """The places of these steps.

        Raises:
            CannotSkip
        """
        return cuts_for(first, last, self._shape())

    def lacks(self, changes: Changes) -> str:
        """Nothing: all is in the plan."""
        del changes
        return ""

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Where the training stands when `step` steps are done.

        Raises:
            CannotSkip
        """
        del directory
        return self._shape().place_of(step)

    def leave_out(self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int) -> Exclusion:
        """The exclusion of these samples and of all samples of these documents.

        Raises:
            CannotSkip
        """
        shape, already = self._shape(), self._plan.excluded if self._plan is not None else frozenset()
        dataset = dataset_of(self._loader, self._trainer.train_dataset)
        found = named_samples(samples, documents, dataset, self._document_of, already)
        return exclusion(found, documents, epoch, place, shape.accumulation)

    # --- what counts

    def watch(self) -> Callable[[], None]:
        """Puts itself between the Trainer and two of its public methods; what undoes that."""
        undo_batches = wrap(self._trainer, "get_batch_samples", self._get_batch_samples)
        undo_step = wrap(self._trainer, "training_step", self._training_step)

        def undo() -> None:
            undo_step()
            undo_batches()

        return undo

    def _get_batch_samples(
        self, original: Callable[..., Any], batches: Iterator[Any], count: int, *rest: Any, **more: Any
    ) -> Any:
        self._look(count)
        if all(self._own):
            return original(batches, count, *rest, **more)
        swapped: list[tuple[Any, Any]] = []
        given, items = original(_uncounted(batches, self._own, swapped), count, *rest, **more)
        return [next((real for masked, real in swapped if masked is batch), batch) for batch in given], items

    def _look(self, count: int) -> None:
        """What of the step that begins counts."""
        self._share, self._own = None, []
        try:
            if self._planned is None:
                return
            _, place = self._shape().place_of(self._trainer.state.global_step)
            self._share = self._planned.share_of(place)
            if self._share is not None:
                self._own = [self._share.own.get(place + number, True) for number in range(count)]
        except Exception as error:
            go_on(error)

    def _training_step(self, original: Callable[..., Any], model: Any, inputs: Any, items: Any = None, **more: Any) -> Any:
        share = self._share
        if share is None:
            return original(model, inputs, items, **more)
        counts = self._own.pop(0) if self._own else True
        if counts:
            self._trainer.current_gradient_accumulation_steps = _divided(share.batches, share.world_size)
            return original(model, inputs, self._counted(items, share), **more)
        if share.world_size > 1:
            with Weightless(model):
                original(model, inputs, items, **more)
        return torch.zeros((), device=self._trainer.args.device)

    def _counted(self, items: Any, share: Share) -> Any:
        """Where each rank divides by its own count, the mean is over the ranks on which anything counts."""
        if items is None or share.ranks == share.world_size or self._trainer.args.average_tokens_across_devices:
            return items
        return items * share.ranks / share.world_size


def _divided(count: int, by: int) -> float:
    """A whole number where it is one, so that a loss is divided as the Trainer would."""
    return count // by if count % by == 0 else count / by


def _uncounted(batches: Iterator[Any], counts: list[bool], swapped: list[tuple[Any, Any]]) -> Iterator[Any]:
    """The batches, those that do not count with labels that no loss counts; `swapped` gets such a one and the real one."""
    for number, batch in enumerate(batches):
        if (counts[number] if number < len(counts) else True) or not isinstance(batch, Mapping):
            yield batch
            continue
        masked = dict(batch)
        for key in ("labels", "shift_labels"):
            if isinstance(masked.get(key), torch.Tensor):
                masked[key] = torch.full_like(masked[key], IGNORED)
        swapped.append((masked, batch))
        yield masked


def modes_of(trainer: Any) -> tuple[tuple[DataMode, ...], str]:
    """What a rollback of this training can do with its data, as far as is known before its loader is made; why not more."""
    args, several = trainer.args, trainer.args.world_size > 1
    if isinstance(trainer.train_dataset, IterableDataset):
        reason = "the data set is iterable, so its order cannot be changed"
    elif args.train_sampling_strategy == "batch_rebalance":
        reason = "train_sampling_strategy='batch_rebalance' makes batches whose order cannot be changed"
    elif args.accelerator_config.dispatch_batches:
        reason = "dispatch_batches=True reads the data in one process, and their order cannot be changed"
    elif several and not args.accelerator_config.even_batches:
        reason = "even_batches=False gives the ranks different numbers of batches, so their order cannot be changed"
    else:
        return tuple(DataMode), ""
    return (DataMode.REPLAY,), reason
