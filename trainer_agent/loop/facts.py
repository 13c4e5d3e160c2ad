"""What is true of a hand-written training: its attributes, what it can be told, whether the arguments of `watch` make sense."""

import platform
from collections.abc import Mapping
from typing import Any

import torch

from trainer_agent.policy import Abilities, Policy
from trainer_agent.wire.messages import Scalar
from trainer_agent.wire.vocabulary import DataMode

from .state import State, doors

NOT_BEGUN = "what more can be done with the data is known once the loop has begun"
_SHARDED = ("FSDP", "DEEPSPEED", "MEGATRON_LM")


def abilities(policy: Policy, state: State) -> Abilities:
    """What this training can be told."""
    if problem := cannot_save(state):
        return Abilities((), problem, acts=False)
    return Abilities(policy.obey, policy.refusal, modes=(DataMode.REPLAY,), modes_because=NOT_BEGUN)


def cannot_save(state: State) -> str:
    """Why no checkpoint of this training can be saved here; empty where it can."""
    shared = getattr(state.optimizer, "accelerator_state", None)
    kind = str(getattr(shared, "distributed_type", "")).rpartition(".")[2]
    sharded = any(type(weight).__name__ in ("DTensor", "FlatParameter") for weight in state.model.parameters())
    if kind in _SHARDED or sharded:
        return f"weights that are spread over processes ({kind if kind in _SHARDED else 'DTensor'}) cannot be saved here"
    return ""


def attributes(state: State) -> dict[str, Scalar]:
    """What is told of the run when it starts."""
    model = getattr(getattr(state.model, "_orig_mod", state.model), "module", state.model)
    weight = next(state.model.parameters(), None)
    return {
        "model": type(model).__name__,
        "parameters": sum(weight.numel() for weight in state.model.parameters()),
        "device": weight.device.type if weight is not None else "cpu",
        "learning_rate": float(state.optimizer.param_groups[0]["lr"]),
        "optimizer": type(plain(state.optimizer)).__name__,
        "loss_scaler": state.scaler is not None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def integration(state: State) -> str:
    """Who wrote the loop's parts."""
    return "accelerate" if hasattr(state.optimizer, "gradient_state") else "loop"


def plain(optimizer: Any) -> Any:
    """The optimizer inside the one that accelerate has prepared."""
    return optimizer.optimizer if hasattr(optimizer, "gradient_state") and hasattr(optimizer, "optimizer") else optimizer


def check_state(state: State) -> None:
    """Whether the parts are what they are named.

    Raises:
        TypeError
    """
    if not isinstance(state.model, torch.nn.Module):
        raise TypeError(f"watch takes a torch.nn.Module as its model, not a {type(state.model).__name__}")
    if not getattr(state.optimizer, "param_groups", None):
        raise TypeError(f"watch takes a torch optimizer, not a {type(state.optimizer).__name__}")
    if state.scaler is not None and not hasattr(state.scaler, "get_scale"):
        raise TypeError(f"scaler must be a GradScaler, not a {type(state.scaler).__name__}")
    if not isinstance(state.also, Mapping):
        raise TypeError(f"also must name each thing, such as {{'ema': ema}}, not be a {type(state.also).__name__}")
    named = {"optimizer": state.optimizer, "scheduler": state.scheduler, "scaler": state.scaler, **state.also}
    for name, thing in named.items():
        try:
            thing is None or doors(thing)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None


def check_attributes(given: Mapping[Any, Any]) -> None:
    """Whether attributes can be sent: one that cannot would keep the whole run from its page.

    Raises:
        TypeError
    """
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, Scalar):
            raise TypeError(f"attributes hold texts, numbers, True, False and None by name, not {name!r}: {type(value).__name__}")


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Whether a number of steps is one, or None.

    Raises:
        TypeError, ValueError
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
