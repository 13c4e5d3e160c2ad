"""LossGuard in a training loop that is written by hand, with accelerate or without: the door.

    from trainer_agent.loop import watch

    with watch(model, optimizer, scaler=scaler, output_dir="out", save_every=500) as run:
        ...

`watching` is what stands behind it; the other modules are parts of it. Refuses to know the Trainer of transformers.
"""

from .state import HalfLoaded
from .watching import Run, watch

__all__ = ["HalfLoaded", "Run", "watch"]
