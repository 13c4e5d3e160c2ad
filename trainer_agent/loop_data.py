"""Where a hand-written loop gets its data from, how it goes back, and how it passes over a window.

    Draws     the script draws its batches itself, from the random state     `run.steps(...)`
    Batches   the batches of a loader, epoch after epoch                     `run.batches(loader, ...)`

Going back to a place in a loader means: the random state in which the epoch's order was drawn, that order again, and the batches
up to the place passed over. Positions count the batches as the loader gives them, those passed over by a skip included.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Sampler

from . import loop_rng
from .data_plan import CannotSkip, Cut, shape_of

END = object()
"""There is no more data."""

NO_EPOCH = -1
"""Of cuts that are steps, not batches of a loader."""
MOST_PLACES = 100_000
"""So many steps back a window can begin."""


@dataclass(frozen=True, slots=True)
class Place:
    """`batches` taken of epoch `epoch`; `order` is the random state in which that epoch's order was drawn, None before it was."""

    epoch: int = 0
    batches: int = 0
    order: dict[str, Any] | None = None


class Feed(Protocol):
    """What a loop runs over."""

    kind: str

    def take(self, step: int) -> Any:
        """What the script gets next; `END` where there is nothing more."""

    def place(self) -> Place:
        """Where it stands."""

    def go_to(self, place: Place) -> None:
        """Goes back or on to a place. Leaves the random state anywhere."""

    def note(self, step: int) -> None:
        """A step is done."""

    def cut(self, first: int, last: int) -> Cut:
        """The data of the steps `first` .. `last`, to be passed over from now on.

        Raises:
            CannotSkip
        """


class Draws:
    """The script draws its batches itself; all that LossGuard can do is bring the random state back."""

    kind = "draws"

    def __init__(self, *, random_batches: bool) -> None:
        self._random_batches = random_batches
        self._step = 0

    def take(self, step: int) -> int:
        """The number of steps done before this one."""
        return step

    def place(self) -> Place:
        """Nowhere: all is in the random state."""
        return Place()

    def go_to(self, place: Place) -> None:
        """Nothing to do."""

    def note(self, step: int) -> None:
        """Keeps the step."""
        self._step = step

    def cut(self, first: int, last: int) -> Cut:
        """The draws from `first` on. They end where the training stands: later ones have not been drawn yet."""
        if not self._random_batches:
            raise CannotSkip(
                "the script takes its batches itself; say run.steps(..., random_batches=True) if it draws them at random"
            )
        if last != self._step or not 1 <= first <= last:
            raise CannotSkip(f"steps {first} to {last} are not the last ones drawn; the training is at step {self._step}")
        return Cut(NO_EPOCH, first, last + 1)


class Batches:
    """The batches of a loader. `cuts` gives those to pass over, in positions of an epoch; `epochs` None: without end."""

    kind = "batches"

    def __init__(self, loader: Any, epochs: int | None, cuts: Callable[[], Sequence[Cut]]) -> None:
        self._loader, self._epochs, self._cuts = loader, epochs, cuts
        self._epoch = self._batches = 0
        self._order: dict[str, Any] | None = None
        self._iterator: Iterator[Any] | None = None
        self._places: dict[int, tuple[int, int]] = {}

    def take(self, step: int) -> Any:
        """The next batch that is not passed over. An epoch without any batch is the end."""
        del step
        while self._epochs is None or self._epoch < self._epochs:
            batch = self._next()
            if batch is not END and not self._is_cut():
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
        batch = next(self._iterator, END)
        self._batches += batch is not END
        return batch

    def _open(self) -> None:
        self._order = {"rng": loop_rng.capture(), "generators": [g.get_state() for g in _generators(self._loader)]}
        _set_epoch(self._loader, self._epoch)
        self._iterator = iter(self._loader)

    def _is_cut(self) -> bool:
        at = self._batches - 1
        return any(cut.epoch == self._epoch and cut.start <= at < cut.stop for cut in self._cuts())

    def place(self) -> Place:
        """Where it stands."""
        return Place(self._epoch, self._batches, self._order)

    def go_to(self, place: Place) -> None:
        """Draws the order of that epoch again and passes over what was taken of it."""
        self._abandon()
        self._epoch, self._batches, self._order = place.epoch, place.batches, place.order
        self._places = {step: at for step, at in self._places.items() if at <= (place.epoch, place.batches)}
        if place.order is None:
            return
        loop_rng.restore(place.order["rng"])
        for generator, state in zip(_generators(self._loader), place.order["generators"], strict=False):
            generator.set_state(state)
        _set_epoch(self._loader, place.epoch)
        self._iterator = _from(self._loader, place.batches)

    def _abandon(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None and hasattr(self._loader, "gradient_state"):
            with suppress(Exception):  # accelerate counts the loaders under way, and this one will not come to its end
                self._loader.end()

    def note(self, step: int) -> None:
        """Keeps which batch a step ended with."""
        self._places[step] = self._epoch, self._batches
        if len(self._places) > MOST_PLACES:
            del self._places[next(iter(self._places))]

    def cut(self, first: int, last: int) -> Cut:
        """The batches of the window, which lies in one epoch."""
        before, after = self._places.get(first - 1), self._places.get(last)
        if before is None or after is None or not before < after:
            raise CannotSkip(f"which batches steps {first} to {last} were made of is not known to this process")
        if before[0] != after[0]:
            before = (after[0], 0) if self._is_end(before) and before[0] + 1 == after[0] else before
        if before[0] != after[0]:
            raise CannotSkip(f"steps {first} to {last} cross the end of an epoch, where skipping is not exact yet")
        return Cut(after[0], before[1], after[1])

    def _is_end(self, place: tuple[int, int]) -> bool:
        return isinstance(self._loader, Sized) and place[1] == len(self._loader)


class _Tail(Sampler[int]):
    """The order of another sampler without its first `count`."""

    def __init__(self, inner: Any, count: int) -> None:
        self._inner, self._count = inner, count

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._inner), self._count, None)

    def __len__(self) -> int:
        return len(self._inner)


def _from(loader: Any, batches: int) -> Iterator[Any]:
    """The loader's iterator with its first batches passed over: unread where that is exact, else read again.

    The last of them is always read, because many an iterator draws its order only then. Workers have random states of their own,
    which only reading brings to where they were.
    """
    unread = batches - 1 if _is_plain(loader) else 0
    if not unread:
        iterator: Iterator[Any] = iter(loader)
        for _ in range(batches):
            next(iterator, None)
        return iterator
    inner: Any = loader.batch_sampler
    sampler, inner.sampler = inner.sampler, _Tail(inner.sampler, unread * inner.batch_size)
    try:
        iterator = iter(loader)
        next(iterator, None)
    finally:
        inner.sampler = sampler
    return iterator


def _is_plain(loader: Any) -> bool:
    if not isinstance(loader, DataLoader) or loader.num_workers:
        return False
    with suppress(CannotSkip):
        return bool(shape_of(loader, 1).batches)
    return False


def _generators(loader: Any) -> list[torch.Generator]:
    """The loader's own generators, each once."""
    holders = (loader, getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tells the epoch to whoever wants to know it, as scripts do for a distributed sampler."""
    for holder in (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        tell = getattr(holder, "set_epoch", None)
        if callable(tell):
            tell(epoch)
            return
