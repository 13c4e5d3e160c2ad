"""What is read off a call of a model: the tokens that go in, the loss that comes out. Thread: training."""

from collections.abc import Mapping
from typing import Any

import torch


def count_tokens(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The tokens that go into a call of a model; 0 where it takes none."""
    ids = kwargs.get("input_ids", args[0] if args else None)
    if isinstance(ids, torch.Tensor) and not ids.is_floating_point():
        return ids.numel()
    embedded = kwargs.get("inputs_embeds")
    return embedded.shape[0] * embedded.shape[1] if isinstance(embedded, torch.Tensor) and embedded.ndim == 3 else 0


def loss_of(output: Any) -> torch.Tensor | None:
    """The loss of a model's output, found as the Trainer finds it."""
    if isinstance(output, Mapping):
        loss = output.get("loss")
    else:
        loss = output[0] if isinstance(output, tuple | list) and output else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) and loss.numel() else None
