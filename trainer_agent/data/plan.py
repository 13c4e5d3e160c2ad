"""Which data a run passes over: the batches of a window, and samples that are left out of theirs.

    Cut          places `start` .. `stop` - 1 of one epoch                 data = skip
    Exclusion    samples, from a place of an epoch on, and ever after      data = exclude

A place is a micro-batch of an epoch as each rank gets it, counted from 0. Changes are applied in the order they were made, each
to what the earlier ones left (see `planned` for how, `exclusion` for what becomes of a batch). Batches before the place from
which an exclusion holds were trained with the samples, and stay what they were.

The plan belongs to the run and lies in `<output_dir>/.lossguard/data_plan.json`, replaced whole, so that a training resumed
afterwards goes on in the same order.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from trainer_agent.guest.on_disk import replace_file

from .exclusion import samples_in

FILE_NAME = "data_plan.json"
MOST_SAMPLES = 10**8
"""Left out by one change: as a set they take gigabytes. More are no plan of ours."""

T = TypeVar("T")


class CannotSkip(ValueError):  # noqa: N818  reads as what it says
    """The window cannot be passed over exactly, or the samples not be left out. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Places `start` .. `stop` - 1 of one epoch, in the order as it was before this cut."""

    epoch: int
    start: int
    stop: int
    is_early: bool = False
    """Out of a file of the first version, in which the Trainer's cuts counted samples."""


@dataclass(frozen=True)
class Exclusion:
    """Samples to leave out from place `start` of an epoch on, and in all later epochs."""

    epoch: int
    start: int
    ranges: tuple[tuple[int, int], ...]
    """Of samples, first and last included."""
    documents: tuple[str, ...] = ()
    """Those that were named, for people: their samples are among the others."""
    accumulation: int = 1
    """So many places were one optimizer step when it was made."""

    @cached_property
    def samples(self) -> frozenset[int]:
        """All of them."""
        return samples_in(self.ranges)

    def starts_in(self, epoch: int) -> int | None:
        """The place from which it holds in an epoch; None where it does not."""
        return None if epoch < self.epoch else self.start if epoch == self.epoch else 0


Change = Cut | Exclusion
Changes = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """How places and optimizer steps of an epoch belong together."""

    places: int
    accumulation: int

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last may be short."""
        return max(1, math.ceil(self.places / self.accumulation))

    def place_of(self, step: int) -> tuple[int, int]:
        """Epoch and place at which the training stands when `step` steps are done."""
        epoch, done = divmod(step, self.steps)
        return epoch, done * self.accumulation


def apply(order: Sequence[T], cuts: Iterable[Cut]) -> list[T]:
    """The order after the cuts, filled up from its own start to the same length as before."""
    result = list(order)
    for cut in cuts:
        kept = result[: cut.start] + result[cut.stop :]
        missing = len(result) - len(kept)
        result = kept + [kept[i % len(kept)] for i in range(missing)] if kept else result
    return result


def cuts_for(first_step: int, last_step: int, shape: Shape) -> tuple[Cut, ...]:
    """The places of the optimizer steps `first_step` .. `last_step` (counted from 1, both included), a cut for each epoch.

    Raises:
        CannotSkip: there is no such window, or it is all of an epoch.
    """
    if not 1 <= first_step <= last_step:
        raise CannotSkip(f"steps {first_step} to {last_step} are no window")
    (epoch, start), (last_epoch, last_start) = shape.place_of(first_step - 1), shape.place_of(last_step - 1)
    stop = min(last_start + shape.accumulation, shape.places)
    parts = [(epoch, start, shape.places if last_epoch > epoch else stop)]
    parts += [(last_epoch, 0, stop)] if last_epoch > epoch else []
    if last_epoch > epoch + 1 or any(stop - start >= shape.places for _, start, stop in parts):
        raise CannotSkip(f"steps {first_step} to {last_step} are a whole epoch, so nothing would be left to train on")
    return tuple(Cut(*part) for part in parts)


class DataPlan:
    """The changes of a run, and their file; None for a plan that nobody keeps."""

    def __init__(self, path: Path | None, changes: Changes = ()) -> None:
        self._path = path
        self.changes = changes

    @classmethod
    def empty(cls, directory: Path) -> "DataPlan":
        """A plan without changes; whatever lies in the folder is replaced by the first one."""
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
            if "cuts" in content:  # the first version
                return cls(
                    path, tuple(Cut(int(c["epoch"]), int(c["start"]), int(c["stop"]), is_early=True) for c in content["cuts"])
                )
            return cls(path, tuple(from_json(told) for told in content["changes"]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read ({error}); mend or remove it") from None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Those of its changes that pass over a window."""
        return tuple(change for change in self.changes if isinstance(change, Cut))

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """Those of its changes that leave samples out."""
        return tuple(change for change in self.changes if isinstance(change, Exclusion))

    @property
    def excluded(self) -> frozenset[int]:
        """All samples that are left out by now."""
        return frozenset().union(*(each.samples for each in self.exclusions))

    def renewed(self, epoch: int, place: int) -> Changes:
        """What a rollback to this place adds: samples that were left out from a later one on do not come again before it."""
        found: list[Exclusion] = []
        for each in self.exclusions:
            now = [one for one in (*self.exclusions, *found) if (one.epoch, one.start) <= (epoch, place)]
            if not each.samples <= frozenset().union(*(one.samples for one in now)):
                found.append(Exclusion(epoch, place, each.ranges, each.documents, each.accumulation))
        return tuple(found)

    def add(self, *changes: Change) -> None:
        """Keeps the changes, on disk before in memory.

        Raises:
            OSError
        """
        self._write((*self.changes, *changes))
        self.changes = (*self.changes, *changes)

    def take_back(self, *changes: Change) -> None:
        """Forgets changes that were added last, in memory in any case: the other ranks forget them, too.

        Raises:
            OSError: a later process will know them.
        """
        try:
            if changes and self.changes[-len(changes) :] == changes:
                self._write(self.changes[: -len(changes)])
        finally:
            self.forget(*changes)

    def forget(self, *changes: Change) -> None:
        """Forgets changes that were followed last."""
        if changes and self.changes[-len(changes) :] == changes:
            self.changes = self.changes[: -len(changes)]

    def follow(self, *changes: Change) -> None:
        """Takes changes that rank 0 has added, whose file it is."""
        self.changes = (*self.changes, *changes)

    def clear(self) -> None:
        """Forgets all changes: a new run began in this folder."""
        if self.changes:
            self._write(())
            self.changes = ()

    def _write(self, changes: Changes) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps({"version": 2, "changes": [to_json(change) for change in changes]}).encode())


def to_text(changes: Changes) -> str:
    """The changes in a line; nothing for none."""
    return json.dumps([to_json(change) for change in changes]) if changes else ""


def from_text(told: str) -> Changes:
    """What `to_text` gave.

    Raises:
        KeyError, TypeError, ValueError
    """
    return tuple(map(from_json, json.loads(told))) if told else ()


def to_json(change: Change) -> dict[str, Any]:
    """A change as `json` takes it."""
    return {"kind": type(change).__name__.lower(), **asdict(change)}


def from_json(told: dict[str, Any]) -> Change:
    """What `to_json` gave.

    Raises:
        KeyError, TypeError, ValueError
    """
    if told["kind"] == "cut":
        return Cut(int(told["epoch"]), int(told["start"]), int(told["stop"]), is_early=bool(told["is_early"]))
    if told["kind"] != "exclusion":
        raise ValueError(f"{told['kind']!r:.40} is no change")
    ranges = tuple((int(first), int(last)) for first, last in told["ranges"])
    if any(not 0 <= first <= last for first, last in ranges) or sum(last - first + 1 for first, last in ranges) > MOST_SAMPLES:
        raise ValueError(f"its samples are no ranges of up to {MOST_SAMPLES} in all")
    documents = tuple(map(str, told["documents"]))
    return Exclusion(int(told["epoch"]), int(told["start"]), ranges, documents, int(told["accumulation"]))
