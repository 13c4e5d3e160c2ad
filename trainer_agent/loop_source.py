"""Where the batches of a hand-written loop come from, as a rollback asks: of the feed of the script's first loop.

Only there are epochs and places those of the run's plan: a script with several loops begins to count anew in each.
"""

from collections.abc import Callable
from pathlib import Path

from .data_plan import CannotSkip, Changes, Exclusion
from .loop_data import Feed


class LoopSource:
    """`feed` and `loop` give those of now. Thread: any for which the training waits."""

    def __init__(self, feed: Callable[[], Feed], loop: Callable[[], int], world_size: int) -> None:
        self._feed, self._loop, self._world_size = feed, loop, world_size

    def cut(self, first: int, last: int) -> Changes:
        """The data of these steps.

        Raises:
            CannotSkip
        """
        return self._known().cut(first, last)

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Where the checkpoint was saved.

        Raises:
            CannotSkip
        """
        return self._known().place_of(step, directory)

    def leave_out(self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int) -> Exclusion:
        """These samples, and those of these documents.

        Raises:
            CannotSkip
        """
        return self._known().leave_out(samples, documents, epoch, place, self._world_size)

    def _known(self) -> Feed:
        if self._loop() > 1:
            raise CannotSkip("only in the first loop of a script is it known which batches a step was made of")
        return self._feed()
