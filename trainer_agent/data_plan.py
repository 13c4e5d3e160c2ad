"""Which data a run passes over: the batches of a window, cut out of the order of an epoch.

A cut takes a range of positions out of the order of one epoch and fills the epoch up from its own start, so that every epoch
keeps its length. Therefore whatever the Trainer computes from a step number (epoch, position, what to skip when it resumes)
stays right without knowing of the plan. Cuts are applied in the order they were made, each to what the earlier ones left.

The plan belongs to the run and lies in `<output_dir>/.lossguard/data_plan.json`, replaced whole, so that a training resumed
after the skip goes on in the same order.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

from .config import replace_file

FILE_NAME = "data_plan.json"


class CannotSkip(ValueError):  # noqa: N818  reads as what it says
    """The window cannot be passed over exactly. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions `start` .. `stop` - 1 of the samples of one epoch, in the order as it was before this cut."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How steps and samples of an epoch belong together."""

    samples: int
    batches: int
    batch_size: int
    accumulation: int

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last may be short."""
        return max(1, math.ceil(self.batches / self.accumulation))


def apply(order: Sequence[int], cuts: Iterable[Cut]) -> list[int]:
    """The order after the cuts, of the same length as before."""
    result = list(order)
    for cut in cuts:
        kept = result[: cut.start] + result[cut.stop :]
        missing = len(result) - len(kept)
        result = kept + [kept[i % len(kept)] for i in range(missing)] if kept else result
    return result


def cut_for(first_step: int, last_step: int, shape: Shape) -> Cut:
    """The samples of the optimizer steps `first_step` .. `last_step` (counted from 1, both included).

    Raises:
        CannotSkip: the window crosses the end of an epoch, or is all of one.
    """
    if not 1 <= first_step <= last_step:
        raise CannotSkip(f"steps {first_step} to {last_step} are no window")
    epoch, first = divmod(first_step - 1, shape.steps)
    if (last_step - 1) // shape.steps != epoch:
        raise CannotSkip(
            f"steps {first_step} to {last_step} cross the end of an epoch ({shape.steps} steps), where skipping is not exact yet"
        )
    samples_in_step = shape.batch_size * shape.accumulation
    start, stop = first * samples_in_step, min((last_step - epoch * shape.steps) * samples_in_step, shape.samples)
    if stop - start >= shape.samples:
        raise CannotSkip(f"steps {first_step} to {last_step} are a whole epoch, so nothing would be left to train on")
    return Cut(epoch, start, stop)


def shape_of(loader: DataLoader[Any], accumulation: int) -> Shape:
    """How the loader deals out its samples.

    Raises:
        CannotSkip: it deals them out in a way in which positions cannot be cut.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise CannotSkip("the data set is iterable, so its order cannot be cut; use one with a length, or data = replay")
    dealt: Any = loader.batch_sampler
    batches, ranks = _undealt(dealt)
    if type(batches) is not BatchSampler:
        raise CannotSkip(f"the batches come from a {type(batches).__name__}, whose order cannot be cut; use data = replay")
    return Shape(len(batches.sampler), len(dealt), batches.batch_size * ranks, accumulation)  # type: ignore[arg-type]  # it has a length


def _undealt(batches: Any) -> tuple[Any, int]:
    """The batches of all ranks in one order, and how many ranks they are dealt out to, one whole batch each in turn."""
    if type(batches).__name__ == "BatchSamplerShard" and not batches.split_batches:  # accelerate's
        return batches.batch_sampler, batches.num_processes
    return batches, 1


class PlannedSampler(Sampler[int]):
    """The order of another sampler after the cuts of the epoch under way."""

    def __init__(self, inner: Any, cuts: Callable[[int], Sequence[Cut]]) -> None:
        self._inner = inner
        self._cuts = cuts
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the loader at the start of each epoch."""
        self._epoch = epoch
        if hasattr(self._inner, "set_epoch"):
            self._inner.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        cuts = self._cuts(self._epoch)
        return iter(apply(list(self._inner), cuts) if cuts else self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class DataPlan:
    """The cuts of a run, and their file."""

    def __init__(self, path: Path, cuts: tuple[Cut, ...] = ()) -> None:
        self._path = path
        self.cuts = cuts

    @classmethod
    def empty(cls, directory: Path) -> "DataPlan":
        """A plan without cuts; whatever lies in the folder is replaced by the first one."""
        return cls(directory / FILE_NAME)

    @classmethod
    def open(cls, directory: Path) -> "DataPlan":
        """The plan of this `.lossguard` folder, empty when there is none.

        Raises:
            ValueError: the file is there and cannot be understood; resuming without it would show the data again.
        """
        path = directory / FILE_NAME
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, tuple(Cut(int(c["epoch"]), int(c["start"]), int(c["stop"])) for c in content["cuts"]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, ArithmeticError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read ({error}); mend or remove it") from None

    def add(self, cut: Cut) -> None:
        """Keeps the cut, on disk before in memory.

        Raises:
            OSError
        """
        self._write((*self.cuts, cut))
        self.cuts = (*self.cuts, cut)

    def take_back(self, cut: Cut) -> None:
        """Forgets a cut that was added last.

        Raises:
            OSError
        """
        kept = self.cuts[:-1] if self.cuts[-1:] == (cut,) else self.cuts
        self._write(kept)
        self.cuts = kept

    def follow(self, cut: Cut) -> None:
        """Takes a cut that rank 0 has added, whose file it is."""
        self.cuts = (*self.cuts, cut)

    def clear(self) -> None:
        """Forgets all cuts: a new run began in this folder."""
        if self.cuts:
            self._write(())
            self.cuts = ()

    def install(self, loader: DataLoader[Any]) -> None:
        """Makes the loader follow the plan. A plan without cuts leaves it as it is.

        Raises:
            CannotSkip: there are cuts, and this loader cannot follow them.
        """
        if not self.cuts:
            return
        shape_of(loader, 1)
        batches, _ = _undealt(loader.batch_sampler)
        if not isinstance(batches.sampler, PlannedSampler):  # a trainer may hand out the same loader again
            batches.sampler = PlannedSampler(batches.sampler, self._cuts_of)

    def _cuts_of(self, epoch: int) -> tuple[Cut, ...]:
        return tuple(cut for cut in self.cuts if cut.epoch == epoch)

    def _write(self, cuts: tuple[Cut, ...]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps({"cuts": [asdict(cut) for cut in cuts]}).encode())
