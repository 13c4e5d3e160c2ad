"""What is true of a saved checkpoint: whether it is whole, what parts it has, whether its numbers are finite, and its digests.

Reads files and nothing else; knows no run and no verdict. Half-written files are found by what they say of themselves: the
trainer writes in place, and a file that can be opened may still end early.
"""

import hashlib
import json
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from .finite import count_nonfinite
from .interrupts import let_pass
from .wire.messages import CheckpointFile, CheckpointSaved
from .wire.vocabulary import CheckpointState

MANIFEST = "lossguard.json"
"""Our own file in a checkpoint, and no part of it."""
MOST_FILES = 10_000

_ZIPPED = re.compile(r"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|pytorch_model.*\.bin|training_args\.bin")
_PARTS = {
    "model": re.compile(r"(model|adapter_model)(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin"),
    "optimizer": re.compile(r"optimizer\.pt"),
    "scheduler": re.compile(r"scheduler\.pt"),
    "scaler": re.compile(r"scaler\.pt"),
    "rng": re.compile(r"rng_state(_\d+)?\.pth"),
    "position": re.compile(r"trainer_state\.json"),
}


class Incomplete(Exception):  # noqa: N818  reads as what it says
    """The checkpoint is not whole. The text says which file and why."""


@dataclass(frozen=True, slots=True)
class Save:
    """What the run knows of a save and the directory cannot tell."""

    run_id: str
    directory: Path
    segment: int
    step: int
    time: float
    sick_because: str = ""
    save_seconds: float | None = None
    world_size: int = 1
    signals: Mapping[str, float] = field(default_factory=dict)
    """The newest value of each standard series."""
    vocabulary: str = ""
    before: Mapping[str, "Stat"] = field(default_factory=dict)
    """The files that lay in the directory when the save began and were no work of this process; see `left_behind`."""


Stat = tuple[int, int, int, int]
"""Size, times of content and of change in nanoseconds, number: of a file that is written anew at least one is another."""


def inspect(save: Save) -> CheckpointSaved:
    """The facts of the checkpoint in `save.directory`: complete, or corrupt with the problem. Reads all of it."""
    bare = CheckpointSaved(
        checkpoint_id=save.directory.name,
        segment=save.segment,
        step=save.step,
        time=save.time,
        state=CheckpointState.CORRUPT,
        directory=str(save.directory),
        sick_because=save.sick_because,
        save_seconds=save.save_seconds,
        world_size=save.world_size,
        signals=dict(save.signals),
        vocabulary=save.vocabulary,
    )
    try:
        files = tuple(_describe(save.directory, path) for path in _files_of(save.directory))
        bare = replace(bare, files=files, size_bytes=sum(f.size_bytes for f in files), parts=parts_of(f.path for f in files))
        check_whole(save.directory, save.step)
        return replace(
            bare,
            state=CheckpointState.COMPLETE,
            nonfinite_weights=_count_weights(save.directory),
            nonfinite_optimizer=_count_optimizer(save.directory),
        )
    except Incomplete as problem:
        return replace(bare, problem=str(problem))
    except OSError as error:
        return replace(bare, problem=f"cannot be read: {error.strerror or error}")


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Which parts of the training state files of these names hold."""
    present = list(names)
    return tuple(part for part, pattern in _PARTS.items() if any(pattern.fullmatch(name) for name in present))


def check_whole(directory: Path, step: int) -> None:
    """That every file says of itself that it is all there.

    Raises:
        Incomplete, OSError
    """
    names = [path.name for path in _files_of(directory)]
    if "model" not in parts_of(names):
        raise Incomplete("there are no weights in it")
    for name in names:
        if name.endswith(".safetensors"):
            _check_safetensors(directory / name)
        elif _ZIPPED.fullmatch(name):
            _check_zip(directory / name)
        elif name.endswith(".index.json"):
            _check_shards(directory / name)
    if "trainer_state.json" in names:
        _check_position(directory / "trainer_state.json", step)


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over name, type, shape and bits of tensors, in the order given. Waits for the GPU."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def stored_weights(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights in the files of a checkpoint, by name in order, one at a time; in safetensors tied ones once.

    Raises:
        Incomplete: there are none, or none that can be read without running code of theirs.
    """
    paths = sorted(directory.glob("*.safetensors"))
    if not paths:
        yield from _pickled_weights(sorted(directory.glob("pytorch_model*.bin")))
        return
    from safetensors import safe_open

    homes: dict[str, Path] = {}
    for path in paths:
        with safe_open(path, "pt") as file:
            homes.update(dict.fromkeys(file.keys(), path))
    for name in sorted(homes):
        with safe_open(homes[name], "pt") as file:
            yield name, file.get_tensor(name)


def _pickled_weights(paths: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    state: dict[str, Any] = {}
    try:
        for path in paths:
            state |= torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        let_pass(error)
        raise Incomplete(f"its weights cannot be read: {type(error).__name__}") from None
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise Incomplete("its weights are kept neither as safetensors nor as pytorch_model.bin")
    yield from sorted(tensors.items())


def changed_file(facts: CheckpointSaved, directory: Path) -> str:
    """What is no longer as the manifest has it, in words; empty when every file is."""
    for file in facts.files:
        path = directory / file.path
        try:
            same = path.stat().st_size == file.size_bytes and _sha256(path) == file.sha256
        except OSError as error:
            return f"{file.path} cannot be read ({error.strerror or error})"
        if not same:
            return f"{file.path} has changed since it was saved"
    return ""


def _files_of(directory: Path) -> list[Path]:
    found = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != MANIFEST]
    if len(found) > MOST_FILES:
        raise Incomplete(f"holds {len(found)} files, more than a checkpoint can")
    return found


def _describe(directory: Path, path: Path) -> CheckpointFile:
    return CheckpointFile(path.relative_to(directory).as_posix(), path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_safetensors(path: Path) -> None:
    """Source: the safetensors format; 8 bytes of header length, the header, then data up to the last offset."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if 8 + length > size:
            raise Incomplete(f"{path.name} ends inside its header")
        try:
            entries = json.loads(file.read(length))
            end = max((e["data_offsets"][1] for name, e in entries.items() if name != "__metadata__"), default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise Incomplete(f"{path.name} has a header that makes no sense") from None
    if 8 + length + end != size:
        raise Incomplete(f"{path.name} has {size} bytes where its header wants {8 + length + end}")


def _check_zip(path: Path) -> None:
    try:
        zipfile.ZipFile(path).close()
    except zipfile.BadZipFile:
        raise Incomplete(f"{path.name} is cut off or no torch file") from None


def _check_shards(path: Path) -> None:
    try:
        shards = set(json.loads(path.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Incomplete(f"{path.name} cannot be understood") from None
    missing = sorted(shard for shard in shards if not (path.parent / str(shard)).is_file())
    if missing:
        raise Incomplete(f"{missing[0]} is missing")


def _check_position(path: Path, step: int) -> None:
    try:
        found = json.loads(path.read_bytes())["global_step"]
    except (ValueError, KeyError, TypeError):
        raise Incomplete(f"{path.name} cannot be understood") from None
    if found != step:
        raise Incomplete(f"{path.name} is of step {found}, not {step}")


def _count_weights(directory: Path) -> int | None:
    try:
        return sum(count_nonfinite(tensor) for _, tensor in stored_weights(directory))
    except Incomplete:
        return None


def _count_optimizer(directory: Path) -> int | None:
    """None when there is no optimizer, or one that only its own code can read."""
    try:
        state = torch.load(directory / "optimizer.pt", map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        let_pass(error)
        return None
    return sum(count_nonfinite(tensor) for tensor in _tensors(state))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
