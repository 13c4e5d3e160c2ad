"""The checkpoints of a training, from before the save to their end.

    coming -> saved -> (all ranks have saved) -> inspected -> in the catalogue -> gone

Rank 0 looks after them; on any other rank nothing here does anything. Each rank writes its own random state into the directory,
so a checkpoint is inspected only once all ranks are past the save.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .checkpoints import Catalogue, Inspector
from .inspection import Save
from .wire.messages import CheckpointSaved


class Saves:
    """Thread: training. `tell` is called in a thread of the inspector too."""

    def __init__(
        self, output_dir: Path, run_id: str, tell: Callable[[CheckpointSaved], None], *, leads: bool, world_size: int = 1
    ) -> None:
        self.catalogue = Catalogue(output_dir, run_id)
        self._inspector, self._tell, self._leads = Inspector(tell), tell, leads
        self._run_id, self._world_size = run_id, world_size
        self.vocabulary = ""
        """What the token ids mean, where the integration knows it; see `vocabulary`."""
        self._began = time.monotonic()
        self._due: Save | None = None
        self.is_due = False
        """Whether a save is not yet known to be over on every rank."""

    def load(self) -> None:
        """Takes up what an earlier life of the run left."""
        if self._leads:
            self.catalogue.load()

    def restart_clock(self) -> None:
        """What follows is the time of a save."""
        self._began = time.monotonic()

    def coming(self, step: int) -> None:
        """A directory that is written anew is no checkpoint until it has been inspected again."""
        if self._leads:
            self._inspector.withdraw(self.catalogue.path_of_step(step))
        self.restart_clock()

    def saved(self, step: int, segment: int, sick: str, *, wait: bool, signals: Mapping[str, float] | None = None) -> str:
        """The trainer has written the checkpoint of `step`; its id.

        Args:
            wait: until `all_have_saved`.
            signals: the newest value of each standard series.
        """
        directory = self.catalogue.path_of_step(step)
        self.is_due = wait
        if self._leads:
            took = time.monotonic() - self._began
            self._due = Save(
                self._run_id,
                directory,
                segment,
                step,
                time.time(),
                sick,
                took,
                world_size=self._world_size,
                signals=dict(signals or {}),
                vocabulary=self.vocabulary,
            )
            if not wait:
                self.all_have_saved()
        return directory.name

    def all_have_saved(self) -> None:
        """Every rank is past the last save."""
        due, self._due, self.is_due = self._due, None, False
        if due is not None:
            self._inspector.submit(due)

    def take_inspected(self) -> None:
        """Takes in the checkpoints inspected since the last call."""
        for facts in self._inspector.take_done():
            self.catalogue.add(facts)

    def settle(self) -> None:
        """Takes in the checkpoints inspected, and tells of those gone. Looks at the disk, so not for every step."""
        self.take_inspected()
        for facts in self.catalogue.take_vanished(time.time()):
            self._tell(facts)

    def settle_all(self, timeout_seconds: float) -> None:
        """Waits within the limit until nothing is left to inspect."""
        self.all_have_saved()
        self._inspector.wait(timeout_seconds)
        self.settle()

    def close(self) -> None:
        """Lets the thread end after what is queued."""
        self._inspector.close()
