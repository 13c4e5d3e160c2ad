"""Which file of a checkpoint holds which part of the training's state, by its name alone. Pure.

    Trainer, plain loop   model.safetensors | pytorch_model.bin | adapter_model.*, in shards too; optimizer.pt  scheduler.pt
                          scaler.pt  rng_state[_RANK].pth  trainer_state.json
    Accelerate            model[_N].safetensors | pytorch_model[_N].bin; optimizer[_N].bin  scheduler[_N].bin  scaler.pt
                          random_states_RANK.pkl  dl_state_dict[_N].bin  sampler[_N].bin  custom_checkpoint_N.pkl

Accelerate numbers its models, optimizers, schedulers and loaders from the second one on. Its `sampler.bin` is the shuffling of a
sampler and no place in the data, so it is no position.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

_SHARD = r"-(\d+)-of-(\d+)"
_PARTS = {
    "model": re.compile(rf"((adapter_)?model|pytorch_model)(_\d+|{_SHARD})?\.(safetensors|bin)"),
    "optimizer": re.compile(r"optimizer(\.pt|(_\d+)?\.bin)"),
    "scheduler": re.compile(r"scheduler(\.pt|(_\d+)?\.bin)"),
    "scaler": re.compile(r"scaler\.pt"),
    "rng": re.compile(r"(?:rng_state(?:_(\d+))?\.pth|random_states_(\d+)\.pkl)"),
    "position": re.compile(r"trainer_state\.json|dl_state_dict(_\d+)?\.bin"),
}
_FIRST_MODEL = re.compile(rf"((adapter_)?model|pytorch_model)({_SHARD})?\.(safetensors|bin)")
_OF_TORCH = re.compile(r"training_args\.bin|sampler(_\d+)?\.bin|custom_checkpoint_\d+\.pkl|also\.pt")
_SHARDED = re.compile(rf"(.+){_SHARD}(\.\w+)")
_NUMBERED = re.compile(r"(model|optimizer|scheduler|pytorch_model)_(\d+)(\.\w+)")


def part_of(name: str) -> str | None:
    """The part that a file of this name holds; None for a file that holds none."""
    return next((part for part, pattern in _PARTS.items() if pattern.fullmatch(name)), None)


def parts_of(names: Iterable[str]) -> tuple[str, ...]:
    """Which parts of the training state files of these names hold."""
    present = {part_of(name) for name in names}
    return tuple(part for part in _PARTS if part in present)


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights of the (first) model."""
    return _FIRST_MODEL.fullmatch(name) is not None


def is_torch_file(name: str) -> bool:
    """Whether a file of this name was written by `torch.save`."""
    if _OF_TORCH.fullmatch(name):
        return True
    return part_of(name) is not None and not name.endswith((".safetensors", ".json"))


def missing_by_name(names: Iterable[str], world_size: int) -> str | None:
    """A file that has to be there because of the others, and is not; None where none is missing."""
    present = set(names)
    wanted = {*_shards_beside(present), *_numbers_before(present), *_ranks_beside(present, world_size)}
    return min(wanted - present, default=None)


def _shards_beside(present: set[str]) -> Iterable[str]:
    """All shards of the sets of which there is one, and the index that says what is in them."""
    for name in present:
        if (match := _SHARDED.fullmatch(name)) and part_of(name) == "model":
            stem, number, of, ending = match.groups()
            yield from (f"{stem}-{i:0{len(number)}}-of-{of}{ending}" for i in range(1, min(int(of), len(present) + 1) + 1))
            yield f"{stem}{ending}.index.json"


def _numbers_before(present: set[str]) -> Iterable[str]:
    """Where there is a third, there are a second and a first."""
    highest: defaultdict[tuple[str, str], int] = defaultdict(int)
    for match in filter(None, map(_NUMBERED.fullmatch, present)):
        stem, number, ending = match.groups()
        highest[stem, ending] = max(highest[stem, ending], min(int(number), len(present)))
    for (stem, ending), number in highest.items():
        yield from (f"{stem}_{i}{ending}" for i in range(1, number + 1))
        yield f"{stem}{ending}"


def _ranks_beside(present: set[str], world_size: int) -> Iterable[str]:
    """The random state of each rank, where any rank's was saved."""
    if world_size > 1 and any(part_of(name) == "rng" for name in present):
        is_of_accelerate = any(name.startswith("random_states_") for name in present)
        form = "random_states_{}.pkl" if is_of_accelerate else "rng_state_{}.pth"
        yield from (form.format(rank) for rank in range(world_size))
