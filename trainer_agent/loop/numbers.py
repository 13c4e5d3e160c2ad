"""The numbers of the step under way: what the script tells of it and the hooks see, gathered until it is over.

    take, take, ... (a micro-batch each)  ->  is_over  ->  hand_over  ->  forget

Reads nothing of a GPU.
"""

from typing import Any

import torch

from trainer_agent.measuring.probes import Probes

from .hooks import Hooks


class StepNumbers:
    """Thread: training."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the script has told that the update is made."""
        self._loss: torch.Tensor | None = None
        self._losses = 0
        self._norm: Any = None

    def take(self, loss: Any, norm: Any, *, is_over: bool) -> None:
        """The numbers of a step, or of one of its micro-batches: their losses are averaged."""
        self.is_over = self.is_over or is_over
        if is_over:
            self._norm = norm
        if loss is not None:
            new = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss), dtype=torch.float64)
            self._loss = new if self._loss is None else self._loss + new
            self._losses += 1

    def hand_over(self, probes: Probes, hooks: Hooks | None, optimizer: Any) -> None:
        """What was gathered, to the probes. The norm is the script's word, else what the hooks measured."""
        if self._loss is not None:
            probes.take_loss(self._loss if self._losses == 1 else self._loss / self._losses)
        if hooks is not None:
            seen = hooks.take_update(optimizer)
            hooks.wants_norm = self._norm is None
            probes.take_norm(seen if self._norm is None else self._norm)

    def forget(self) -> None:
        """The next step begins."""
        self._loss, self._losses, self._norm, self.is_over = None, 0, None, False
