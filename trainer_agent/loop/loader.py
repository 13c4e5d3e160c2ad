"""A loader of the script's at a place in an epoch: its epoch told, its generators found, its first batches passed over."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler

from trainer_agent.data.planned import Planned

MOST_HOLDERS = 16
"""Samplers lie in samplers, but a sampler of the script's may also lead to itself."""


class _Tail(Sampler[int]):
    """The order of another sampler without its first `count`."""

    def __init__(self, inner: Any, count: int) -> None:
        self._inner, self._count = inner, count

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._inner), self._count, None)

    def __len__(self) -> int:
        return len(self._inner)


def begun_at(loader: Any, batches: int, planned: Planned | None) -> tuple[Iterator[Any], int]:
    """A new iterator with its first batches passed over, and how many it has given: unread where that is exact, else read.

    The last of them is always read, because many an iterator draws its order only then. Workers have random states of their own,
    which only reading brings to where they were.
    """
    if planned is not None:
        return _begun_by_plan(loader, batches, planned)
    unread = batches - 1 if _is_plain(loader) else 0
    if not unread:
        iterator: Iterator[Any] = iter(loader)
        for _ in range(batches):
            next(iterator, None)
        return iterator, batches
    inner: Any = loader.batch_sampler
    sampler, inner.sampler = inner.sampler, _Tail(inner.sampler, unread * inner.batch_size)
    try:
        iterator = iter(loader)
        next(iterator, None)
    finally:
        inner.sampler = sampler
    return iterator, batches


def _begun_by_plan(loader: Any, place: int, planned: Planned) -> tuple[Iterator[Any], int]:
    """The same of a loader that follows a plan. Where nothing before the place is left, the first batch is read ahead."""
    planned.begin_at(0 if loader.num_workers else place)
    iterator, given = iter(loader), 0
    for batch in iterator:
        at = planned.place_of(given)
        if at is not None and at >= place:
            return chain([batch], iterator), given
        given += 1
        following = planned.place_of(given)
        if following is None or following >= place:
            break
    return iterator, given


def _is_plain(loader: Any) -> bool:
    return (
        isinstance(loader, DataLoader)
        and not loader.num_workers
        and not hasattr(loader, "base_dataloader")
        and type(loader.batch_sampler) is BatchSampler
    )


def generators_of(loader: Any) -> list[torch.Generator]:
    """The generators that an epoch's order is drawn from, each once: the loader's and its samplers', however deep one lies."""
    found: dict[int, torch.Generator] = {}
    holders = [loader]
    for holder in islice(holders, MOST_HOLDERS):
        for name in ("generator", "synchronized_generator"):
            generator = getattr(holder, name, None)
            if isinstance(generator, torch.Generator):
                found[id(generator)] = generator
        # Among several ranks accelerate puts the script's batch sampler, and so its sampler, into one of its own.
        holders += [each for name in ("sampler", "batch_sampler") if (each := getattr(holder, name, None)) is not None]
    return list(found.values())


def set_epoch(loader: Any, epoch: int) -> None:
    """Tells the epoch to whoever wants to know it, as scripts do for a distributed sampler."""
    for holder in (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        tell = getattr(holder, "set_epoch", None)
        if callable(tell):
            tell(epoch)
            return
