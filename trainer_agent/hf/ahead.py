"""The random state of batches that were fetched before their step.

    fetch 21, step 20, save 20, fetch 22, step 21 ...        as it was: accelerate's loader is always one batch ahead
    fetch 21, fetch 22, random state of save 20, step 21     as the Trainer resumes: other random numbers for both batches

A collator or data set that draws from the generators of Python, NumPy or torch would then give other batches than before. So the
state before each fetch is kept until its batch is used; those that are ahead at a save go into the checkpoint, beside the state
that the Trainer saves; and when it resumes, each fetch gets the state that it had. The states of workers are their own, and not
brought back: with workers, such a collator does not draw the same again.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trainer_agent.data import randomness
from trainer_agent.data.carried import MapView
from trainer_agent.guest.harmless import quietly
from trainer_agent.guest.interrupts import suppress_ours
from trainer_agent.guest.wrapping import wrap

METHOD = "_load_rng_state"
"""The Trainer's own, private: without it the Trainer resumes as it does by itself."""


def file_name(rank: int) -> str:
    """Our file in a checkpoint."""
    return f"lossguard_ahead_{rank}.pth"


class FetchedAhead:
    """Thread: training, in which batches are fetched as well where there are no workers."""

    def __init__(self, trainer: Any, rank: int) -> None:
        self._trainer, self._rank = trainer, rank
        self._ahead: deque[tuple[Any, ...]] = deque()
        self._again: deque[dict[str, Any]] = deque()
        """Of the batches that were ahead at the save, to be fetched again."""
        self._then = ""
        """The checkpoint whose own state holds from the next fetch on."""
        self._is_back = False
        """It is in place already, and the Trainer must not put it there once more."""
        self._load: Callable[[str], None] | None = None

    def watch(self) -> Callable[[], None]:
        """Puts itself before the Trainer's own loading of random states; what undoes that."""
        self._load = getattr(self._trainer, METHOD, None)
        return wrap(self._trainer, METHOD, self._loaded) if self._load is not None else lambda: None

    def _loaded(self, load: Callable[[str], None], checkpoint: str) -> None:
        is_back = self._is_back
        self.resume(None)
        if not is_back:
            load(checkpoint)

    def take_loader(self, loader: Any) -> None:
        """The loader of the `train()` that begins, after `samples.install`."""
        self._ahead.clear()
        base = getattr(loader, "base_dataloader", loader)
        if self._load is not None and type(base.dataset) is MapView and not base.num_workers:
            object.__setattr__(base.dataset, "lossguard_fetching", self._fetching)

    @quietly
    def _fetching(self) -> None:
        if self._again:
            randomness.restore(self._again.popleft())
        elif self._then and self._load is not None:
            self._load(self._then)
            self._then, self._is_back = "", True
        self._ahead.append(randomness.glance())

    def used(self, batches: int) -> None:
        """So many batches have gone into a step."""
        for _ in range(min(batches, len(self._ahead))):
            self._ahead.popleft()

    @quietly
    def keep(self, directory: Path) -> None:
        """The states of what is ahead, into a checkpoint that the Trainer has just written."""
        path = directory / file_name(self._rank)
        if self._ahead and directory.is_dir():
            torch.save([randomness.packed(seen) for seen in self._ahead], path)
        else:
            path.unlink(missing_ok=True)

    def resume(self, directory: Path | None) -> None:
        """The `train()` that begins goes on from this checkpoint; None: as the Trainer does it by itself."""
        self._again.clear()
        self._then, self._is_back = "", False
        path = None if directory is None else directory / file_name(self._rank)
        if path is None or not path.is_file():
            return
        with suppress_ours():
            self._again.extend(torch.load(path, map_location="cpu", weights_only=True))
            self._then = str(directory)
