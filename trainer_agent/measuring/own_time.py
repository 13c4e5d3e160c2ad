"""What of a step this rank does by itself: getting its data and the forward passes, before it first waits for the others.

All ranks end a step together, in the all-reduce of the gradients, so that its duration tells nothing of who was late. This clock
runs from the moment at which the rank is let go (`free`) to its first forward pass, and through each forward pass.

It reads the host's clock and waits for nothing. On a GPU a forward pass is only launched: what is seen there is the data and the
host's own work, not a GPU that computes slowly. Where the forward pass itself waits for the others (FSDP, synchronised batch
norms) all ranks look alike.

Thread: training.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from .own_hooks import ClosedHook, OwnHook


class OwnTime:
    """Adds up one step at a time. Says nothing until it is attached."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._hooks: list[Any] = []
        self._since: float | None = None
        self._seconds: float | None = None

    def attach(self, model: torch.nn.Module, kind: type[OwnHook]) -> None:
        """Sets the hooks. Within DDP, which waits for the others before it calls the module inside, on that module."""
        self.detach()
        inside = model.module if isinstance(model, DistributedDataParallel) and kind is not ClosedHook else model
        self._hooks = [
            inside.register_forward_pre_hook(kind(self._begins)),
            inside.register_forward_hook(kind(self._ends)),
        ]
        self.free()

    def detach(self) -> None:
        """Takes the hooks off again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._since, self._seconds = [], None, None

    def free(self) -> None:
        """The rank waits for nobody from here on."""
        self._since = self._clock()

    def take(self) -> float | None:
        """The seconds of this step; None where there was no forward pass."""
        seconds, self._seconds, self._since = self._seconds, None, None
        return seconds

    def _begins(self, module: torch.nn.Module, args: Any) -> None:
        """Up to here it was the data's time, if nothing else has come between."""
        del args
        if torch.compiler.is_compiling() or not module.training:
            return
        now = self._clock()
        waited = 0.0 if self._since is None else now - self._since
        self._seconds, self._since = (self._seconds or 0.0) + waited, now

    def _ends(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        del args, output
        if torch.compiler.is_compiling() or not module.training or self._since is None:
            return
        self._seconds, self._since = (self._seconds or 0.0) + self._clock() - self._since, None
