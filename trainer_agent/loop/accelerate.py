"""The state of a training in accelerate's own layout, so that its checkpoints serve without LossGuard, too.

    save    accelerator.save_state(folder) on every rank    then, of ours, on rank 0: place, random states, what accelerate lacks
    read    the files beside the training, nothing loaded
    apply   accelerator.load_state(folder)                  then what accelerate lacks

`load_state` begins with the weights, checks each part only as it comes to it, passes over random states that it cannot read,
and runs the code of registered objects. So all its files are compared with the training beforehand. What cannot be: files of
the script's own load hooks, and what a registered object makes of its state. Should the load break off there, it is half.

Exact are model, optimizer, scheduler, scaler, registered objects and the count of accumulated batches. Accelerate keeps no
place in the data, and its random states are of each rank alone: both come from our own files.
"""

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from trainer_agent.guest.interrupts import let_pass
from trainer_agent.guest.on_disk import sync

from .state import HalfLoaded, State, Stored, doors, load, save_each, unlike

CUSTOM = "custom_checkpoint_{}.pkl"


@dataclass(frozen=True, slots=True)
class AcceleratedState(State):
    """The parts of a training that `accelerator` has prepared. What of them it does not save is saved beside."""

    accelerator: Any = None
    shares_save: ClassVar[bool] = True

    @property
    def stored_model(self) -> torch.nn.Module:
        """The one that accelerate saves: inside what it has wrapped around it for several processes, or compiled."""
        found: Any = self.model
        while found is not None and not any(each is found for each in self.accelerator._models):  # noqa: SLF001  no public list
            found = getattr(found, "module", getattr(found, "_orig_mod", None))
        return self.model if found is None else found

    def save_parts(self, directory: Path) -> None:
        """Lets accelerate save, and sees that all is on the disk. On every rank."""
        with _as_named(self.accelerator):
            self.accelerator.save_state(str(directory))
        if self.accelerator.is_main_process:
            save_each(directory, self._lacking())
            for path in directory.rglob("*"):
                sync(path)

    def _lacking(self) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        if self.scheduler is None or not _holds(self.accelerator, self.scheduler):
            parts["scheduler.pt"] = self.scheduler.state_dict() if self.scheduler is not None else {}
        if also := self._unknown():
            parts["also.pt"] = {name: doors(thing)[0]() for name, thing in also.items()}
        return parts

    def _unknown(self) -> dict[str, Any]:
        """What else the script named and accelerate does not save."""
        return {name: thing for name, thing in self.also.items() if not _holds(self.accelerator, thing)}

    def _read_parts(self, directory: Path) -> dict[str, Any]:
        return {path.stem: load(path) for path in (directory / "scheduler.pt", directory / "also.pt") if path.exists()}

    def _differences(self, stored: Stored, rank: int) -> Iterator[str]:
        """Compares what `load_state` will read with what it will be read into."""
        directory, accelerator = stored.directory, self.accelerator
        if not accelerator._load_model_state_pre_hook:  # noqa: SLF001  else a hook of the script's may load the weights itself
            for number, model in enumerate(accelerator._models):  # noqa: SLF001  there is no public list of what is prepared
                yield from _unlike_weights(model, directory, number)
        for number, optimizer in enumerate(accelerator._optimizers):  # noqa: SLF001
            yield from _unlike_groups(optimizer, _read(directory / _numbered("optimizer", number), mmap=True))
        for number in range(len(accelerator._schedulers)):  # noqa: SLF001
            _read(directory / _numbered("scheduler", number))
        if accelerator.scaler is not None:
            _read(directory / "scaler.pt")
        _read(directory / f"random_states_{rank}.pkl")
        yield from self._unlike_rest(stored)

    def _unlike_rest(self, stored: Stored) -> Iterator[str]:
        found = len(list(stored.directory.glob(CUSTOM.format("[0-9]*"))))
        registered = len(self.accelerator._custom_objects)  # noqa: SLF001
        if found != registered:
            yield f"{found} objects were registered for checkpointing there and {registered} here"
        for number in range(registered):
            zipfile.ZipFile(stored.directory / CUSTOM.format(number)).close()  # read no further: it may run code
        lacking, has_scheduler = set(self._unknown()), self.scheduler is not None and not _holds(self.accelerator, self.scheduler)
        if bool(stored.parts.get("scheduler")) is not has_scheduler:
            yield f"there is {'no' if has_scheduler else 'a'} scheduler beside it"
        if set(stored.parts.get("also", {})) != lacking:
            yield f"also holds {sorted(stored.parts.get('also', {}))} there and {sorted(lacking)} here"

    def apply(self, stored: Stored) -> None:
        """Lets accelerate load, then puts in what it does not know.

        Raises:
            HalfLoaded
        """
        try:
            self.accelerator.load_state(str(stored.directory))
            if self.scheduler is not None and stored.parts.get("scheduler"):
                self.scheduler.load_state_dict(stored.parts["scheduler"])
            for name, thing in self._unknown().items():
                doors(thing)[1](stored.parts["also"][name])
        except Exception as error:
            let_pass(error)
            raise HalfLoaded(f"accelerate's load broke off: {type(error).__name__}: {error}") from error


def check_accelerator(state: AcceleratedState) -> None:
    """Whether the accelerator can save and load this training.

    Raises:
        TypeError, ValueError
    """
    given = state.accelerator
    if not callable(getattr(given, "save_state", None)) or not callable(getattr(given, "load_state", None)):
        raise TypeError(f"accelerator must be an accelerate.Accelerator, not a {type(given).__name__}")
    for what, thing, prepared in (
        ("model", state.stored_model, given._models),  # noqa: SLF001  there is no public list of what is prepared
        ("optimizer", state.optimizer, given._optimizers),  # noqa: SLF001
    ):
        if not any(each is thing for each in prepared):
            raise ValueError(f"the accelerator has not prepared this {what}: pass what accelerator.prepare gave")
    if state.scaler is not None and state.scaler is not given.scaler:
        raise ValueError("scaler must be the accelerator's own, which is found by itself")
    if any(getattr(loader, "use_stateful_dataloader", False) for loader in given._dataloaders):  # noqa: SLF001
        raise ValueError("use_stateful_dataloader must be off: such a loader keeps a place of its own, as LossGuard does")


def _holds(accelerator: Any, thing: Any) -> bool:
    lists = (accelerator._models, accelerator._optimizers, accelerator._schedulers, accelerator._custom_objects)  # noqa: SLF001
    return any(each is thing for each in (each for held in lists for each in held))


@contextmanager
def _as_named(accelerator: Any) -> Iterator[None]:
    """Accelerate saves to the folder it is given, also where the script lets it number its own folders, which go on as before."""
    settings = accelerator.project_configuration
    before = settings.automatic_checkpoint_naming, settings.iteration
    settings.automatic_checkpoint_naming = False
    try:
        yield
    finally:
        settings.automatic_checkpoint_naming, settings.iteration = before


def _unlike_weights(model: torch.nn.Module, directory: Path, number: int) -> Iterator[str]:
    """Tied weights are stored under one of their names."""
    found = _shapes(directory, number)
    homes: dict[Any, str] = {}
    here = model.state_dict()
    for name in found:
        if isinstance(here.get(name), torch.Tensor):
            homes[_place_of(here[name])] = name
    names = set(found) | {n for n, value in here.items() if isinstance(value, torch.Tensor) and _place_of(value) in homes}
    found |= {n: (here[n].shape, here[n].dtype) for n in names - set(found)}
    yield from unlike(model, found, names)


def _shapes(directory: Path, number: int) -> dict[str, tuple[Any, Any]]:
    path = directory / (f"model_{number}.safetensors" if number else "model.safetensors")
    if path.exists():
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            return {name: _shape(file, name) for name in file.keys()}  # noqa: SIM118  it is no dict
    content: Mapping[str, Any] = _read(directory / _numbered("pytorch_model", number), mmap=True)
    return {name: (value.shape, value.dtype) for name, value in content.items() if isinstance(value, torch.Tensor)}


def _shape(file: Any, name: str) -> tuple[Any, Any]:
    whole = file.get_slice(name)
    shape = torch.Size(whole.get_shape())
    return shape, (whole[:0] if shape and shape[0] else file.get_tensor(name)).dtype


def _place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.device, tensor.data_ptr(), tensor.numel(), tensor.dtype, tuple(tensor.shape)


def _unlike_groups(optimizer: Any, stored: Mapping[str, Any]) -> Iterator[str]:
    """As torch compares them before it takes them: groups, and weights in each."""
    here, there = ([len(group["params"]) for group in groups] for groups in (optimizer.param_groups, stored["param_groups"]))
    if here != there:
        yield f"its optimizer has groups of {there} weights, and this one of {here}"


def _read(path: Path, **settings: Any) -> Any:
    """As accelerate will read it."""
    from accelerate.utils import load as read  # type: ignore[import-untyped]  # it has no types

    return read(path, map_location="cpu", **settings)


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}.bin" if number else f"{name}.bin"
