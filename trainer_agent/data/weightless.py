"""A batch that is run and leaves nothing behind: no gradient, no draw from a random state, no changed buffer.

    with Weightless(model):            forward and backward of a stand-in, so that this rank takes part in the collectives

Its gradients are made zero where they are about to be added to the weights' own, so a loss or a gradient that is not finite adds
nothing either, whatever lies between.
"""

from types import TracebackType
from typing import Any, Self

import torch

from . import randomness


class Weightless:
    """Ends with the block, or with the next update of `optimizer`, whichever comes first. Thread: training."""

    def __init__(self, model: torch.nn.Module, optimizer: Any = None) -> None:
        self._model, self._optimizer = model, optimizer
        self._handles: list[Any] = []
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._rng: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        self._rng = randomness.capture()
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]
        hooked: list[Any] = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._handles = [weight.register_hook(torch.zeros_like) for weight in hooked]
        add = getattr(self._optimizer, "register_step_pre_hook", None)
        if add is not None:
            self._handles.append(add(lambda *_: self.end()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Everything as it was, but for what was done together with the other ranks. A second call does nothing."""
        rng, self._rng = self._rng, None
        if rng is None:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        self._buffers = []
        randomness.restore(rng)
