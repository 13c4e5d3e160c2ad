"""The batches of a loader after the changes of a data plan, the same on all ranks without a word between them.

    the undealt batches -> dealt to all ranks -> rows -> the plan's changes -> this rank's batches
                                                   |
                             what of them has no weight, on any rank (`share_of`)

Every rank works out the batches of all, because what becomes of a batch is decided on the optimizer step over all of them. The
loader's own sampler draws the order, once an epoch and when it would have; accelerate's own code deals it out.

    fills      how
    True       an epoch is filled up from its own start and keeps its length, as the Trainer computes with it
    False      an epoch is shorter by what is left out; `place_of` tells where in the whole one a batch lies
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from .exclusion import Batch, Placed, Row, filled, weighs, without
from .plan import CannotSkip, Cut, DataPlan, Shape, apply


@dataclass(frozen=True, slots=True)
class Share:
    """What counts of one optimizer step of which not all does."""

    own: dict[int, bool]
    """By place, whether this rank's batch counts."""
    batches: int
    """How many count on all ranks together."""
    ranks: int
    """On how many ranks any does."""
    world_size: int


@dataclass(frozen=True, slots=True)
class Dealing:
    """How a loader's batches go to the ranks."""

    batches: Any
    """The loader's own batch sampler."""
    world_size: int
    rank: int

    def rows(self, early: Sequence[Cut] = ()) -> list[Row]:
        """The batches of all ranks in the order that is drawn now. `early`: cuts in samples, of the first version."""
        kind = type(self.batches).__name__
        if kind == "BatchSamplerShard":
            undealt = _drawn(self.batches.batch_sampler, early)
            dealt = [_of_shard(self.batches, undealt, rank) for rank in range(self.world_size)]
        elif self.world_size > 1:
            dealt = [_of_distributed(self.batches, rank) for rank in range(self.world_size)]
        else:
            dealt = [_drawn(self.batches, early)]
        return list(zip(*dealt, strict=True))


def dealing_of(loader: Any) -> Dealing:
    """How this loader deals out its batches.

    Raises:
        CannotSkip: it deals them out in a way in which no plan can be followed.
    """
    base = getattr(loader, "base_dataloader", loader)
    if not isinstance(base, DataLoader):
        raise CannotSkip(f"the data come from a {type(loader).__name__}, not from a DataLoader")
    if isinstance(base.dataset, IterableDataset):
        raise CannotSkip("the data set is iterable, so its order cannot be changed; use one with a length, or data = replay")
    if type(loader).__name__ == "DataLoaderDispatcher":
        raise CannotSkip("accelerate reads these data in one process and hands them to the others; use data = replay")
    found: Any = base.batch_sampler
    dealt = found.dealing.batches if isinstance(found, Planned) else found
    is_shard = type(dealt).__name__ == "BatchSamplerShard"
    inner = dealt.batch_sampler if is_shard else dealt
    if type(inner) is not BatchSampler:
        raise CannotSkip(f"the batches come from a {type(inner).__name__}, whose order cannot be changed; use data = replay")
    if is_shard and not dealt.even_batches and dealt.num_processes > 1:
        raise CannotSkip("even_batches=False gives the ranks different numbers of batches; use data = replay")
    if is_shard:
        return Dealing(dealt, dealt.num_processes, dealt.process_index)
    sampler: Any = inner.sampler
    if type(sampler) is DistributedSampler:
        return Dealing(dealt, sampler.num_replicas, sampler.rank)
    return Dealing(dealt, 1, 0)


class _Given(list[Batch]):
    """Batches for accelerate to deal out."""

    batch_size: int


def _drawn(batches: Any, early: Sequence[Cut]) -> list[Batch]:
    if not early:
        return list(batches)
    return list(BatchSampler(apply(list(batches.sampler), early), batches.batch_size, batches.drop_last))


def _of_shard(shard: Any, undealt: Sequence[Batch], rank: int) -> list[Batch]:
    """What accelerate deals to a rank. It lengthens batches in place, so it is given copies."""
    given = _Given(list(batch) for batch in undealt)
    given.batch_size = shard.batch_size
    dealer = copy.copy(shard)
    dealer.batch_sampler, dealer.process_index = given, rank
    return [list(batch) for batch in dealer]


def _of_distributed(batches: Any, rank: int) -> list[Batch]:
    sampler = copy.copy(batches.sampler)
    sampler.rank = rank
    return list(BatchSampler(list(sampler), batches.batch_size, batches.drop_last))


class _Told:
    """Answers for the sampler that draws the order, and takes the epoch for the plan too."""

    def __init__(self, planned: "Planned", inner: Any) -> None:
        self._planned, self._inner = planned, inner

    def set_epoch(self, epoch: int) -> None:
        """Called by whoever knows only the sampler."""
        self._planned.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[int]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class Planned(BatchSampler):
    """Stands in the place of a loader's batch sampler, and answers for it."""

    def __init__(self, dealing: Dealing, plan: DataPlan, accumulation: int, *, fills: bool) -> None:
        self.dealing, self.accumulation = dealing, accumulation
        self._plan, self._fills = plan, fills
        self._epoch = self._begins_at = 0
        self._places: list[int] | None = None
        self._shares: dict[int, Share] = {}

    @property
    def sampler(self) -> Any:  # type: ignore[override]  # it answers for a sampler
        """The one that draws the order."""
        return _Told(self, getattr(self.dealing.batches, "sampler", None) or self.dealing.batches.batch_sampler.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Called by the loader at the start of each epoch."""
        self._epoch = epoch
        batches = self.dealing.batches
        samplers: list[Any] = [getattr(each, "sampler", None) for each in (batches, getattr(batches, "batch_sampler", None))]
        for each in {id(sampler): sampler for sampler in samplers}.values():
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)

    def begin_at(self, place: int) -> None:
        """The next time, what lies before this place is passed over unread, but for the last of it."""
        self._begins_at = place

    def __iter__(self) -> Iterator[Batch]:
        begins_at, self._begins_at = self._begins_at, 0
        placed = self._placed() if begins_at or self._applies() else None
        if placed is None:
            self._places, self._shares = None, {}
            yield from self.dealing.batches
            return
        before = sum(place < begins_at for place, _ in placed)
        placed = placed[max(0, before - 1) :]
        self._places = [place for place, _ in placed]
        for _, row in placed:
            yield row[self.dealing.rank]

    def _applies(self) -> bool:
        cuts = any(cut.epoch == self._epoch for cut in self._plan.cuts) if self._fills else False
        return cuts or any(each.starts_in(self._epoch) is not None for each in self._plan.exclusions)

    def _placed(self) -> list[Placed]:
        epoch, changes = self._epoch, self._plan.changes
        early = [change for change in self._plan.cuts if change.is_early and change.epoch == epoch] if self._fills else []
        rows = self.dealing.rows(early)
        placed = list(enumerate(rows))
        for change in changes:
            if isinstance(change, Cut):
                is_due = self._fills and change.epoch == epoch and not change.is_early
                placed = list(enumerate(apply([row for _, row in placed], [change]))) if is_due else placed
            elif (start := change.starts_in(epoch)) is not None:
                placed = self._left(placed, change.samples, start, len(rows))
        self._shares = dict(self._shares_in(placed))
        return placed

    def _left(self, placed: list[Placed], samples: frozenset[int], start: int, count: int) -> list[Placed]:
        left = without(placed, samples, start, self.accumulation)
        if not self._fills:
            return left
        filler = without(placed, samples, 0, self.accumulation)
        return list(enumerate(filled(left, filler, count, self.accumulation)))

    def _shares_in(self, placed: list[Placed]) -> Iterator[tuple[int, Share]]:
        rank = self.dealing.rank
        for step, group in groupby(placed, key=lambda each: each[0] // self.accumulation):
            counts = {place: tuple(map(weighs, row)) for place, row in group}
            if not all(map(all, counts.values())):
                own = {place: row[rank] for place, row in counts.items()}
                ranks = sum(map(any, zip(*counts.values(), strict=True)))
                yield step, Share(own, sum(map(sum, counts.values())), ranks, self.dealing.world_size)

    def share_of(self, place: int) -> Share | None:
        """What counts of the step that a place of the epoch under way belongs to; None where all of it does."""
        return self._shares.get(place // self.accumulation)

    def place_of(self, number: int) -> int | None:
        """Where in the whole epoch a batch lies, counted as it was given; None where there was none."""
        if self._places is None:
            return number
        return self._places[number] if number < len(self._places) else None

    def __len__(self) -> int:
        return len(self.dealing.batches)

    def __getattr__(self, name: str) -> Any:
        if name == "dealing":  # not there yet
            raise AttributeError(name)
        return getattr(self.dealing.batches, name)


def install(loader: Any, plan: DataPlan, accumulation: int, *, fills: bool) -> Planned | None:
    """Makes the loader follow the plan; None where the plan asks nothing of it, and then the loader stays as it is.

    Raises:
        CannotSkip: there are changes, and this loader cannot follow them.
    """
    found = planned_of(loader)
    if found is not None:  # a trainer may hand out the same loader again
        found.accumulation = accumulation
        return found
    if not (plan.changes if fills else plan.exclusions):
        return None
    base = getattr(loader, "base_dataloader", loader)
    planned = Planned(dealing_of(loader), plan, accumulation, fills=fills)
    object.__setattr__(base, "batch_sampler", planned)  # the loader refuses it by name
    if getattr(base, "_iterator", None) is not None:  # of workers that live on: it keeps the batch sampler that it began with
        base._iterator = None  # noqa: SLF001
    return planned


def planned_of(loader: Any) -> Planned | None:
    """What `install` has put into this loader."""
    found = getattr(getattr(loader, "base_dataloader", loader), "batch_sampler", None)
    return found if isinstance(found, Planned) else None


def shape_of(loader: Any, accumulation: int) -> Shape:
    """How the loader deals out its batches.

    Raises:
        CannotSkip
    """
    return Shape(len(dealing_of(loader).batches), accumulation)
