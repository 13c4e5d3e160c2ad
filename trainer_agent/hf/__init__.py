"""LossGuard in the Trainer of transformers: the door.

    from trainer_agent.hf import guarded_train
    guarded_train(trainer)                      # in place of trainer.train()

`guarding` is what stands behind it; the other modules are parts of it. Refuses to know loops that are written by hand.
"""

from .callback import LossGuardCallback
from .guarding import guarded_train

__all__ = ["LossGuardCallback", "guarded_train"]
