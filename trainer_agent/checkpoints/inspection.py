"""What is true of a saved checkpoint: whether it is whole, what parts it has, whether its numbers are finite, and its digests.

Reads files and nothing else; knows no run and no verdict. Half-written files are found by what they say of themselves: the
trainer writes in place, and a file that can be opened may still end early. All that can be said of a file's inside is taken from
one pass over it (see `scanning`); where its numbers lie it says itself (`tensor_files`), and what it is for its name
(`layouts`).
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from stat import S_ISREG
from typing import Any

import torch

from trainer_agent.guest.interrupts import let_pass
from trainer_agent.scanning.far import scan_all
from trainer_agent.scanning.float_bits import can_count
from trainer_agent.scanning.one_pass import CutShort, Region, Scanned
from trainer_agent.scanning.tensor_files import Contents, Incomplete, read_safetensors, read_torch
from trainer_agent.wire.messages import CheckpointFile, CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

from . import layouts

MANIFEST = "lossguard.json"
"""Our own file in a checkpoint, and no part of it."""
MOST_FILES = 10_000

parts_of = layouts.parts_of


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
    """The facts of the checkpoint in `save.directory`: complete, or corrupt with the problem. Reads all of it, once."""
    bare = _known_before(save)
    try:
        paths = _files_of(save.directory)
        earlier = left_behind(save.directory, save.before)
        try:
            contents, problem = check_whole(save.directory, save.step, save.world_size, earlier), ""
        except Incomplete as fault:
            contents, problem = {}, str(fault)
        scanned = scan_all({name: (path, _regions(contents.get(name))) for name, path in paths.items()})
    except Incomplete as fault:
        return replace(bare, problem=str(fault))
    except CutShort as name:
        return replace(bare, problem=f"{name} was cut off while it was read")
    except OSError as error:
        return replace(bare, problem=f"cannot be read: {error.strerror or error}")
    files = tuple(CheckpointFile(name, found.size_bytes, found.sha256) for name, found in scanned.items())
    own = [name for name in paths if name not in earlier]
    bare = replace(bare, files=files, size_bytes=sum(f.size_bytes for f in files), parts=parts_of(own))
    if problem:
        return replace(bare, problem=problem)
    return replace(
        bare,
        state=CheckpointState.COMPLETE,
        nonfinite_weights=_count("model", own, contents, scanned),
        nonfinite_optimizer=_count("optimizer", own, contents, scanned),
        problem=f"{earlier[0]} was there before the save and is no part of it" if earlier else "",
    )


def _known_before(save: Save) -> CheckpointSaved:
    return CheckpointSaved(
        checkpoint_id=save.directory.name,
        segment=save.segment,
        step=save.step,
        time=save.time,
        state=CheckpointState.CORRUPT,
        directory=str(save.directory),
        sick_because=save.sick_because,
        save_seconds=save.save_seconds,
        world_size=save.world_size,
        versions=versions(),
        signals=dict(save.signals),
        vocabulary=save.vocabulary,
    )


def versions() -> dict[str, str]:
    """Of python, torch, this agent, and transformers and accelerate where they are in use."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "lossguard": _own_version()}
    for name in ("transformers", "accelerate"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


@cache
def _own_version() -> str:
    try:
        return metadata.version("lossguard")
    except metadata.PackageNotFoundError:
        return "unknown"


def _regions(contents: Contents | None) -> tuple[Region, ...]:
    return (contents.regions or ()) if contents is not None and can_count else ()


def _count(part: str, names: Iterable[str], contents: Mapping[str, Contents], scanned: Mapping[str, Scanned]) -> int | None:
    """None where there is none, or one of its files does not tell where its numbers are."""
    files = [name for name in names if layouts.part_of(name) == part]
    if not can_count or not files or any(contents[name].regions is None for name in files):
        return None
    return sum(scanned[name].nonfinite for name in files)


# --- whole


def check_whole(directory: Path, step: int, world_size: int = 1, earlier: Iterable[str] = ()) -> dict[str, Contents]:
    """That every file says of itself that it is all there, and what it is for; what is in those that tell, by name.

    Args:
        earlier: files that are no work of this save, so not to be taken for parts of it.

    Raises:
        Incomplete, OSError
    """
    left = set(earlier)
    paths = {name: path for name, path in _files_of(directory).items() if name not in left}
    if doubtful := next((name for name in sorted(left) if layouts.part_of(name) == "model"), None):
        raise Incomplete(f"{doubtful} was there before the save, which did not write it: two sets of weights lie here")
    if "model" not in parts_of(paths):
        raise Incomplete("there are no weights in it")
    if missing := layouts.missing_by_name(paths, world_size):
        raise Incomplete(f"{missing} is missing")
    contents = {name: found for name, path in paths.items() if (found := _contents(name, path)) is not None}
    for name, path in paths.items():
        if name.endswith(".index.json"):
            _check_index(path, contents)
        elif name == "trainer_state.json":
            _check_position(path, step)
    return contents


def _contents(name: str, path: Path) -> Contents | None:
    """What is in a file of tensors; None for one of another kind."""
    if name.endswith(".safetensors"):
        return read_safetensors(path)
    if not layouts.is_torch_file(name):
        return None
    found, part = read_torch(path), layouts.part_of(name)
    kind = _kind_of(found)
    if part is not None and kind is not None and kind != part and (kind != "model" or part == "optimizer"):
        raise Incomplete(f"{name} holds the state of the {kind}, where the {part}'s belongs")
    return found


def _kind_of(contents: Contents) -> str | None:
    """Which part a state is by its keys; None where they do not tell."""
    if contents.only_tensors:
        return "model"
    return next((kind for kind, keys in _KEYS if keys <= contents.names), None)


_KEYS = (
    ("optimizer", frozenset({"param_groups"})),
    ("scaler", frozenset({"scale", "growth_factor"})),
    ("scheduler", frozenset({"last_epoch"})),
    ("rng", frozenset({"python", "numpy", "cpu"})),
    ("rng", frozenset({"rng", "order"})),
    ("rng", frozenset({"random_state", "torch_manual_seed"})),
)


def _check_index(path: Path, contents: Mapping[str, Contents]) -> None:
    """That each shard is there, and holds the tensors that the index looks for in it."""
    try:
        homes = {str(name): str(shard) for name, shard in json.loads(path.read_bytes())["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Incomplete(f"{path.name} cannot be understood") from None
    for name, shard in homes.items():
        found = contents.get(shard)
        if found is None:
            raise Incomplete(f"{shard} is missing")
        if found.regions is not None and name not in found.names:
            raise Incomplete(f"{shard} does not hold {name[:200]}, which the index looks for in it")


def _check_position(path: Path, step: int) -> None:
    try:
        found = json.loads(path.read_bytes())["global_step"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Incomplete(f"{path.name} cannot be understood") from None
    if found != step:
        raise Incomplete(f"{path.name} is of step {found}, not {step}")


# --- files


def _files_of(directory: Path) -> dict[str, Path]:
    """All files by their path in the directory, but for our own."""
    found = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != MANIFEST]
    if len(found) > MOST_FILES:
        raise Incomplete(f"holds {len(found)} files, more than a checkpoint can")
    return {path.relative_to(directory).as_posix(): path for path in found}


def stats_of(directory: Path, older_than: float) -> dict[str, Stat]:
    """The files that lie in a directory about to be saved into and are older than `older_than`, seconds since the epoch.

    Empty where there is no such directory, as nearly always.
    """
    try:
        stats = {name: stat_of(path) for name, path in _files_of(directory).items()} if directory.is_dir() else {}
    except (OSError, Incomplete):
        return {}
    return {name: stat for name, stat in stats.items() if stat[1] < older_than * 1e9}


def stat_of(path: Path) -> Stat:
    """What changes when a file is written."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def left_behind(directory: Path, before: Mapping[str, Stat]) -> list[str]:
    """Those parts of a checkpoint that are as they were before the save, which therefore did not write them.

    No clock is asked: a file that the save wrote has another stat than before, whatever the clock of the disk says.
    """
    parts = [name for name in before if layouts.part_of(name) or name.endswith(".index.json")]
    return sorted(name for name in parts if (directory / name).is_file() and stat_of(directory / name) == before[name])


def changed_file(facts: CheckpointSaved, directory: Path, give_up: Callable[[], bool] = lambda: False) -> str:
    """What is no longer as the manifest has it, in words; empty when every file is. Reads all of them.

    Raises:
        Cancelled: `give_up`, asked between pieces, said so.
    """
    try:
        for file in facts.files:
            found_there = (directory / file.path).stat()
            if found_there.st_size != file.size_bytes or not S_ISREG(found_there.st_mode):  # a pipe would be read for ever
                return f"{file.path} has changed since it was saved"
        found = scan_all({file.path: (directory / file.path, ()) for file in facts.files}, give_up)
    except OSError as error:
        name = Path(error.filename or directory.name).name
        return f"{name} is missing" if isinstance(error, FileNotFoundError) else f"{name} cannot be read ({error.strerror})"
    changed = (file.path for file in facts.files if found[file.path].sha256 != file.sha256)
    return next((f"{path} has changed since it was saved" for path in changed), "")


# --- weights


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

    Of several models that accelerate has saved, those of the first.

    Raises:
        Incomplete: there are none, or none that can be read without running code of theirs.
    """
    named = sorted(path for path in directory.iterdir() if layouts.is_weights(path.name))
    paths = [path for path in named if path.suffix == ".safetensors"]
    if not paths:
        yield from _pickled_weights(named)
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
