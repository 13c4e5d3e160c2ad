"""Hooks of ours on modules of the script, which stay behind when the script copies or pickles a module.

In the copy (`copy.deepcopy`, `torch.save`, pickle) there is something in its place that does nothing and comes with Python: an
average of the weights is not the training, and a saved module may be loaded where LossGuard is not installed.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch


class OwnHook:
    """A hook that calls `call`."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        """Calls what it holds."""
        self._call(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """As a method that takes anything and gives None."""
        return getattr, (contextlib.nullcontext(), "__exit__")


class ClosedHook(OwnHook):
    """A hook that is closed to the compiler."""

    __call__ = torch.compiler.disable(OwnHook.__call__)  # type: ignore[no-untyped-call]  # torch leaves it untyped
