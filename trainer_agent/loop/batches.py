"""The batches of a loader, epoch after epoch, for a hand-written loop.

Going back to a place in a loader means: the random state in which the epoch's order was drawn, that order again, and the batches
up to the place passed over. Places count the batches as the loader would give them, those passed over included: what a skip or
an exclude takes out makes an epoch shorter, and moves no place.
"""

import json
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainer_agent.data import randomness
from trainer_agent.data import samples as samples_of
from trainer_agent.data.leaving_out import exclusion, named_samples
from trainer_agent.data.plan import CannotSkip, Changes, Cut, DataPlan, Exclusion
from trainer_agent.data.planned import Planned, dealing_of, install
from trainer_agent.data.samples import DocumentOf, Ids
from trainer_agent.guest.voice import Voice

from .data import END, Place
from .loader import begun_at, generators_of, set_epoch

TO_THE_END = 1 << 60
"""More batches than an epoch has."""
MOST_PLACES = 100_000
"""So many steps back a window can begin."""


class Batches:
    """The batches of a loader. The plan says what to pass over; `epochs` None: without end.

    `weighted` says that the script multiplies each loss by the weight of its batch.
    """

    kind = "batches"

    def __init__(
        self, loader: Any, epochs: int | None, plan: DataPlan, *, weighted: bool = False, document_of: DocumentOf = None
    ) -> None:
        self._loader, self._epochs, self._plan = loader, epochs, plan
        self._weighted, self._document_of = weighted, document_of
        self.weight = 1.0
        self._epoch = self._batches = 0
        self._order: dict[str, Any] | None = None
        self._iterator: Iterator[Any] | None = None
        self._planned: Planned | None = None
        self._given = 0
        self._places: dict[int, tuple[int, int]] = {}
        self._taken = self._most_taken = 0
        self._ids: Ids | None = None
        self.see: Callable[[Ids | None], None] = lambda _: None
        """Told the samples of each batch that the script gets."""

    def let_go(self) -> None:
        """The loader as the script made it."""
        samples_of.uninstall(self._loader)

    def take(self, step: int) -> Any:
        """The next batch that is not passed over. An epoch without any batch is the end."""
        del step
        while self._epochs is None or self._epoch < self._epochs:
            batch = self._next()
            if batch is not END and not self._is_cut():
                self._taken += 1
                if self.weight:
                    self.see(self._ids)
                return batch
            if batch is END and not self._batches:
                return END
            if batch is END:
                self._epoch, self._batches, self._order, self._iterator = self._epoch + 1, 0, None, None
        return END

    def _next(self) -> Any:
        if self._iterator is None:
            self._open()
        assert self._iterator is not None
        batch, self._ids = samples_of.take(next(self._iterator, END))
        if batch is not END:
            place = self._batches if self._planned is None else self._planned.place_of(self._given)
            self._batches = (self._batches if place is None else place) + 1
            self._given += 1
            self.weight = self._weight_of(self._batches - 1)
        return batch

    def _weight_of(self, place: int) -> float:
        """What counts of a step is its mean: where some batches count nothing, the others count for them."""
        share = self._planned.share_of(place) if self._planned is not None else None
        if share is None:
            return 1.0
        return len(share.own) * share.world_size / share.batches if share.own.get(place, True) else 0.0

    def _open(self) -> None:
        self._order = {"rng": randomness.capture(), "generators": [g.get_state() for g in generators_of(self._loader)]}
        self._follow_plan()
        set_epoch(self._loader, self._epoch)
        self._iterator, self._given = iter(self._loader), 0

    def _follow_plan(self) -> None:
        samples_of.install(self._loader, self._document_of)
        accumulation = self._plan.exclusions[-1].accumulation if self._plan.exclusions else 1
        try:
            self._planned = install(self._loader, self._plan, accumulation, fills=False)
        except CannotSkip as reason:
            Voice().once("data plan", f"samples that were left out before come again: {reason}")

    def _is_cut(self) -> bool:
        at = self._batches - 1
        return any(cut.epoch == self._epoch and cut.start <= at < cut.stop for cut in self._plan.cuts)

    def place(self) -> Place:
        """Where it stands."""
        return Place(self._epoch, self._batches, self._order)

    def go_to(self, place: Place) -> None:
        """Draws the order of that epoch again and passes over what was taken of it."""
        self._abandon()
        self._epoch, self._batches, self._order = place.epoch, place.batches, place.order
        self._places = {step: at for step, at in self._places.items() if at <= (place.epoch, place.batches)}
        self._taken = 0
        if place.order is None:
            return
        randomness.restore(place.order["rng"])
        for generator, state in zip(generators_of(self._loader), place.order["generators"], strict=False):
            generator.set_state(state)
        self._follow_plan()
        set_epoch(self._loader, place.epoch)
        self._iterator, self._given = begun_at(self._loader, place.batches, self._planned)

    def _abandon(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None and hasattr(self._loader, "gradient_state"):
            with suppress(Exception):  # accelerate counts the loaders under way, and this one will not come to its end
                self._loader.end()

    def note(self, step: int) -> None:
        """Keeps which batch a step ended with."""
        self._places[step] = self._epoch, self._batches
        self._most_taken, self._taken = max(self._most_taken, self._taken), 0
        if len(self._places) > MOST_PLACES:
            del self._places[next(iter(self._places))]

    def cut(self, first: int, last: int) -> Changes:
        """The batches of the window, a cut for each epoch that it reaches into."""
        before, after = self._places.get(first - 1), self._places.get(last)
        if before is None or after is None or not before < after:
            raise CannotSkip(f"which batches steps {first} to {last} were made of is not known to this process")
        if before[0] == after[0]:
            return (Cut(after[0], before[1], after[1]),)
        whole = [Cut(epoch, 0, TO_THE_END) for epoch in range(before[0] + 1, after[0])]
        return (Cut(before[0], before[1], TO_THE_END), *whole, Cut(after[0], 0, after[1]))

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """As this process noted it, else as the checkpoint says."""
        if step in self._places:
            return self._places[step]
        try:
            position = json.loads((directory / "trainer_state.json").read_bytes())
            return int(position["epoch"]), int(position["batches"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotSkip(f"{directory.name} does not say where in the data it was saved: {error}") from None

    def leave_out(
        self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int, world_size: int
    ) -> Exclusion:
        """Without weights, only where no step is made of several batches, of which some might be left empty."""
        self.check_exclude(world_size)
        accumulation = self._step_size()
        dataset = getattr(self._loader, "base_dataloader", self._loader).dataset
        found = named_samples(samples, documents, dataset, self._document_of, self._plan.excluded)
        return exclusion(found, documents, epoch, place, accumulation)

    def check_exclude(self, world_size: int) -> None:
        """Whether samples can be left out of the batches of this loader, as far as is known of its steps by now.

        Raises:
            CannotSkip
        """
        dealing = dealing_of(self._loader)
        if dealing.world_size != world_size:
            raise CannotSkip("each rank draws an order of its own, so no rank knows whether a step is left empty on the others")
        batches = dealing.world_size * (self._most_taken or self._told_step_size())
        if batches > 1 and not self._weighted:
            raise CannotSkip(
                f"a step is made of {batches} batches, some of which may be left empty: multiply the "
                "loss of each batch by run.weight, and say so by run.batches(loader, weighted=True)"
            )

    def _told_step_size(self) -> int:
        """What accelerate accumulates; before the first step nothing else is known."""
        shared = getattr(self._loader, "gradient_state", None)
        return max(1, int(getattr(shared, "num_steps", 1)))

    def _step_size(self) -> int:
        """Of how many batches of this rank a step is made."""
        size, whole = max(1, self._most_taken), len(self._loader) if isinstance(self._loader, Sized) else None
        if any(batches % size and batches != whole for _, batches in self._places.values()):
            raise CannotSkip("the steps of this loop are not made of the same number of batches each")
        return size
