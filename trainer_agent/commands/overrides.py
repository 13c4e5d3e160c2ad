"""A factor on the learning rate of a training, in force only while the optimizer makes its update.

    before step()   lr of each group times the factor          after step()   lr as it was, bit by bit

So the schedule computes with its own rates, and a checkpoint holds them: a rollback to one that was saved before, or a factor
taken back, leaves nothing behind. An update that the loss scaler skips runs no hook. The hooks are torch's own, on the plain
optimizer inside whatever accelerate has wrapped around it, and they nest where an optimizer's `step` calls that of its parent.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

Rate = float | torch.Tensor


class RateFactor:
    """Thread: training."""

    def __init__(self, on_error: Callable[[Exception], None] = lambda _: None) -> None:
        self.factor = 1.0
        self._on_error = on_error
        self._handles: list[Any] = []
        self._depth = 0
        self._kept: list[tuple[dict[str, Any], Rate, Rate]] = []

    def attach(self, optimizer: Any) -> None:
        """Sets the hooks on an optimizer, in place of those set before. One that takes none is left alone (see `fits`)."""
        self.detach()
        plain = plain_optimizer(optimizer)
        if fits(optimizer):
            self._handles = [plain.register_step_pre_hook(self._before), plain.register_step_post_hook(self._after)]

    def detach(self) -> None:
        """Takes the hooks off again."""
        self.put_back()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def effective(self, optimizer: Any) -> Rate:
        """The rate that the update under way, or the next one, is made with; of the first group."""
        rate: Rate = optimizer.param_groups[0]["lr"]
        return rate if self._depth or not self._handles else rate * self.factor

    def put_back(self) -> None:
        """Rates as they were, where a step was left in the middle; one that somebody has set since stays, as a number."""
        kept, self._kept, self._depth = self._kept, [], 0
        for group, rate, scaled in kept:
            if isinstance(rate, torch.Tensor):
                group["lr"].copy_(rate)
            elif group["lr"] == scaled:
                group["lr"] = rate

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        try:
            if self._depth and not _is_nested(optimizer):
                self.put_back()  # the last step broke off, and the script has caught that
            self._depth += 1
            if self._depth > 1 or self.factor == 1.0:
                return
            for group in optimizer.param_groups:
                self._scale(group)
        except Exception as error:
            self._on_error(error)

    def _scale(self, group: dict[str, Any]) -> None:
        rate = group["lr"]
        if isinstance(rate, torch.Tensor):  # in place: a captured graph, or a compiled step, reads this very tensor
            self._kept.append((group, rate.clone(), rate))
            rate.mul_(self.factor)
        else:
            group["lr"] = rate * self.factor
            self._kept.append((group, rate, group["lr"]))

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        self._depth = max(0, self._depth - 1)
        if not self._depth and self._kept:
            try:
                self.put_back()
            except Exception as error:
                self._on_error(error)


def _is_nested(optimizer: Any) -> bool:
    """Whether another step of this optimizer is under way, further up the stack than the one whose hooks run now."""
    now = sys._getframe(2)  # noqa: SLF001  torch's, which calls the hooks
    frame = now.f_back
    while frame is not None:
        if frame.f_code is now.f_code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def plain_optimizer(optimizer: Any) -> Any:
    """The optimizer inside the one that accelerate has prepared."""
    return optimizer.optimizer if hasattr(optimizer, "gradient_state") and hasattr(optimizer, "optimizer") else optimizer


def fits(optimizer: Any) -> bool:
    """Whether a factor can be put on this optimizer's rates."""
    plain = plain_optimizer(optimizer)
    return callable(getattr(plain, "register_step_pre_hook", None)) and callable(getattr(plain, "register_step_post_hook", None))
