"""How the run is, by its own numbers: the newest value of each series, whether it is dead, whether a save would be sick."""

import torch

from . import guard
from .finite import nonfinite_tensor
from .probes import Reading


class Health:
    """Thread: training."""

    def __init__(self, skipped_steps: int) -> None:
        self.signals: dict[str, float] = {}
        """The newest value of each series of this segment."""
        self._skipped_steps = skipped_steps
        self._guard = guard.GuardState()

    def begin(self) -> None:
        """Nothing is known: a segment begins."""
        self.signals, self._guard = {}, guard.GuardState()

    def take(self, reading: Reading) -> None:
        """The numbers of one step."""
        self.signals |= reading.values
        self._guard = guard.step(self._guard, reading.facts, self._skipped_steps)

    def look_at_weights(self, step: int, model: torch.nn.Module) -> None:
        """Looks for weights that are not finite, before a save. Waits for the GPU."""
        name = nonfinite_tensor(model)
        if name is not None:
            self._guard = guard.weights_not_finite(self._guard, step, name)

    @property
    def death(self) -> guard.Death | None:
        """Why and since when the run is dead; None while it is not."""
        return self._guard.death

    @property
    def sick_because(self) -> str:
        """Why a checkpoint saved now is no place to go back to; empty when there is no sign."""
        return guard.sick_because(self._guard)
