"""The state of a hand-written training: what goes into its checkpoint, and how it comes back in place.

    save      the parts -> files in a folder          read    files -> parts in memory, checked against the training
    apply     parts in memory -> the training

A checkpoint has the file names of the HF Trainer, so that it is inspected, digested and judged as one: `pytorch_model.bin`,
`optimizer.pt`, `scheduler.pt` (an empty one where the script has none), `scaler.pt`, `rng_state.pth`, `trainer_state.json`, and
`also.pt` with whatever else the script named. Reading runs no code of the files.

Everything that can go wrong with a load goes wrong before the training is touched: the weights are compared by name, shape and
type, and the optimizer, which checks its state before it takes it, comes first.
"""

import io
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from trainer_agent.data import randomness
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.wire import crash

from .data import Place

POSITION = "trainer_state.json"


class CannotLoad(Exception):  # noqa: N818  reads as what it says
    """The checkpoint does not fit this training, and nothing was touched. The text is the reason."""


class Damaged(CannotLoad):
    """It cannot be read at all, so an older one may do."""


class HalfLoaded(RuntimeError):  # noqa: N818  reads as what it says
    """The load of a checkpoint broke off in the middle, so the training is in no state to go on from."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the data, the number of the script's loop it is of, and the kind of feed that loop ran over."""

    place: Place
    loop: int
    kind: str

    def random_state(self) -> bytes:
        """The random state of now, and the one that the order of the data came from, as a file holds them."""
        content = io.BytesIO()
        torch.save({"rng": randomness.capture(), "order": self.place.order}, content)
        return content.getvalue()


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint in memory, or found fit to be loaded from `directory`."""

    directory: Path
    step: int
    where: Where
    rng: dict[str, Any]
    parts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """The parts of a training. `also` has more things with a state, by name."""

    model: torch.nn.Module
    optimizer: Any
    scheduler: Any = None
    scaler: Any = None
    also: Mapping[str, Any] = field(default_factory=dict)

    shares_save: ClassVar[bool] = False
    """Whether every rank takes part in `save_parts`; else rank 0 alone calls it."""

    @property
    def stored_model(self) -> torch.nn.Module:
        """The one by whose names the weights in a checkpoint go."""
        return self.model

    def save_parts(self, directory: Path) -> None:
        """Writes the parts into an empty folder, each to the disk. Waits for the GPU.

        Raises:
            OSError, RuntimeError
        """
        parts = {
            "pytorch_model.bin": self.model.state_dict(),
            "optimizer.pt": self.optimizer.state_dict(),
            "scheduler.pt": self.scheduler.state_dict() if self.scheduler is not None else {},
        }
        if self.scaler is not None:
            parts["scaler.pt"] = self.scaler.state_dict()
        if self.also:
            parts["also.pt"] = {name: doors(thing)[0]() for name, thing in self.also.items()}
        save_each(directory, parts)

    def save_place(self, directory: Path, step: int, where: Where, random_states: Sequence[bytes]) -> None:
        """Writes what is not the parts' own: the step, the place in the data, and `random_state()` of each rank, by rank.

        Raises:
            OSError
        """
        for rank, state in enumerate(random_states):
            _write(directory / _random_name(rank, len(random_states)), state)
        place, told = where.place, {"global_step": step, "loop": where.loop, "kind": where.kind}
        _write(directory / POSITION, json.dumps(told | {"epoch": place.epoch, "batches": place.batches}).encode())

    def read(self, directory: Path, rank: int = 0, world_size: int = 1) -> Stored:
        """The checkpoint in memory, as this rank wants it and found to fit this training.

        Raises:
            CannotLoad, Damaged
        """
        ranks = len(list(directory.glob("rng_state*.pth")))
        if ranks and not (directory / _random_name(rank, world_size)).exists():
            raise CannotLoad(
                f"{directory.name} is not of this training: it was saved by {ranks} ranks, and here are {world_size}"
            )
        try:
            position = json.loads((directory / POSITION).read_bytes())
            random_state = load(directory / _random_name(rank, world_size))
            place = Place(int(position["epoch"]), int(position["batches"]), random_state["order"])
            where = Where(place, int(position["loop"]), str(position["kind"]))
            parts = self._read_parts(directory)
            stored = Stored(directory, int(position["global_step"]), where, random_state["rng"], parts)
            difference = next(self._differences(stored, rank), "")
        except Exception as error:
            let_pass(error)
            why = str(error).splitlines() or [""]
            raise Damaged(f"{directory.name} cannot be loaded: {type(error).__name__}: {why[0][:200]}") from None
        if place.batches and place.order is None:
            raise Damaged(f"{directory.name} does not hold the order of its epoch")
        if difference:
            raise CannotLoad(f"{directory.name} is not of this training: {difference}")
        return stored

    def _read_parts(self, directory: Path) -> dict[str, Any]:
        parts = {path.stem: load(path) for path in sorted(directory.glob("*.pt"))}
        return parts | {"model": load(directory / "pytorch_model.bin")}

    def _differences(self, stored: Stored, rank: int) -> Iterator[str]:
        del rank
        parts = stored.parts
        found = {name: (value.shape, value.dtype) for name, value in parts["model"].items() if isinstance(value, torch.Tensor)}
        yield from unlike(self.model, found, set(parts["model"]))
        for name, thing in (("scaler", self.scaler), ("scheduler", self.scheduler)):
            if bool(parts.get(name)) is not (thing is not None):
                yield f"there is {'no' if thing is not None else 'a'} {name} in it"
        if set(parts.get("also", {})) != set(self.also):
            yield f"also holds {sorted(parts.get('also', {}))} there and {sorted(self.also)} here"

    def apply(self, stored: Stored) -> None:
        """Puts the parts in place. The random state is for the caller, because the data come between.

        Raises:
            CannotLoad: the optimizer did not take its state; nothing was touched.
            HalfLoaded
        """
        parts = stored.parts
        try:
            self.optimizer.load_state_dict(parts["optimizer"])
        except Exception as error:
            let_pass(error)
            raise CannotLoad(f"the optimizer does not take its state: {error}") from None
        try:
            self.model.load_state_dict(parts["model"])
            for thing, name in ((self.scheduler, "scheduler"), (self.scaler, "scaler")):
                if thing is not None:
                    thing.load_state_dict(parts[name])
            for name, thing in self.also.items():
                doors(thing)[1](parts["also"][name])
        except Exception as error:
            let_pass(error)
            raise HalfLoaded(f"the load broke off after the optimizer: {type(error).__name__}: {error}") from error


def step_in(directory: Path) -> int | None:
    """The step that a folder says it is of; None where it does not."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((directory / POSITION).read_bytes())["global_step"])
    return None


def doors(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """How the state of a thing is got and set.

    Raises:
        TypeError: it has none that we know how to keep.
    """
    if callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None)):
        return thing.state_dict, thing.load_state_dict
    if isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    if isinstance(thing, random.Random):
        return thing.getstate, thing.setstate
    if hasattr(getattr(thing, "bit_generator", None), "state"):  # numpy.random.Generator
        bits = thing.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    raise TypeError(f"a {type(thing).__name__} has no state_dict() and load_state_dict(), and is no random generator")


def unlike(model: torch.nn.Module, found: Mapping[str, tuple[Any, Any]], names: AbstractSet[str]) -> Iterator[str]:
    """In what stored weights are not those of a model: their names, and shape and type of each tensor, by name."""
    here = model.state_dict()
    yield from (f"the model has no {name}" for name in names if name not in here)
    for name, value in here.items():
        if name not in names:
            yield f"it has no {name}"
        elif isinstance(value, torch.Tensor) and found.get(name) != (value.shape, value.dtype):
            shape, kind = found.get(name, ((), "something else"))
            yield f"{name} is {tuple(shape)} {kind} there and {tuple(value.shape)} {value.dtype} here"


def load(path: Path) -> Any:
    """The content of a torch file, on the CPU; runs no code of it."""
    return torch.load(path, map_location="cpu", weights_only=True)


def save_each(directory: Path, parts: Mapping[str, Any]) -> None:
    """Writes each part to the disk, by file name."""
    for name, part in parts.items():
        with (directory / name).open("wb") as file:
            torch.save(part, file)
            _to_disk(file)


def _random_name(rank: int, world_size: int) -> str:
    return "rng_state.pth" if world_size == 1 else f"rng_state_{rank}.pth"


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        _to_disk(file)


def _to_disk(file: Any) -> None:
    file.flush()
    crash.reach("save.file_written")
    os.fsync(file.fileno())
    crash.reach("save.file_synced")
