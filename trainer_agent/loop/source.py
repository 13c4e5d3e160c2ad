"""Where the batches of a hand-written loop come from, as a rollback asks: of the feed of the script's first loop.

Only there are epochs and places those of the run's plan: a script with several loops begins to count anew in each.
"""

from collections.abc import Callable
from pathlib import Path

from trainer_agent.data.plan import CannotSkip, Changes, Cut, Exclusion
from trainer_agent.wire.vocabulary import DataMode

from .data import NO_EPOCH, Draws, Feed
from .jumps import Jumps

NOT_FIRST = "only in the first loop of a script is it known which batches a step was made of"


class LoopSource:
    """`feed` and `loop` give those of now. Thread: any for which the training waits."""

    def __init__(self, feed: Callable[[], Feed], loop: Callable[[], int], world_size: int, jumps: Jumps) -> None:
        self._feed, self._loop, self._world_size, self._jumps = feed, loop, world_size, jumps

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

    def lacks(self, changes: Changes) -> str:
        """The random state that draws go on from after a window is known only to the process that has drawn them."""
        cuts = [change for change in changes if isinstance(change, Cut) and change.epoch == NO_EPOCH]
        if any(self._jumps.after(cut.start - 1) is None for cut in cuts):
            return "the process ended before it noted down what comes after the window, so its batches are drawn again"
        return ""

    def modes(self) -> tuple[tuple[DataMode, ...], str]:
        """What a rollback of the loop under way can do with its data, and why it cannot do more; empty where it can do all."""
        feed = self._feed()
        if self._loop() > 1:
            return (DataMode.REPLAY,), NOT_FIRST
        if isinstance(feed, Draws):
            why = "the script takes its batches itself (run.steps), so what is in them is not known"
            more = "; of random ones it could pass over a window, where it says random_batches=True"
            return ((DataMode.REPLAY, DataMode.SKIP), why) if feed.random_batches else ((DataMode.REPLAY,), why + more)
        try:
            feed.check_exclude(self._world_size)
        except CannotSkip as reason:
            return (DataMode.REPLAY, DataMode.SKIP), str(reason)
        return tuple(DataMode), ""

    def _known(self) -> Feed:
        if self._loop() > 1:
            raise CannotSkip(NOT_FIRST)
        return self._feed()
