"""Where a hand-written loop gets its data from, how it goes back, and what of them it passes over.

Draws     the script draws its batches itself, from the random state     `run.steps(...)`
Batches   the batches of a loader, epoch after epoch                     `run.batches(loader, ...)`: see `batches`
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainer_agent.data.plan import CannotSkip, Changes, Cut, Exclusion

END = object()
"""There is no more data."""

NO_EPOCH = -1
"""Of cuts that are steps, not batches of a loader."""
_DRAWN = "the script takes its batches itself, so samples cannot be left out of them; use run.batches(loader), or data = skip"


@dataclass(frozen=True, slots=True)
class Place:
    """`batches` taken of epoch `epoch`; `order` is the random state in which that epoch's order was drawn, None before it was."""

    epoch: int = 0
    batches: int = 0
    order: dict[str, Any] | None = None


class Feed(Protocol):
    """What a loop runs over."""

    kind: str
    weight: float
    """What the loss of the batch taken last counts: 1, or 0 where it stands in for one that was left empty."""

    def take(self, step: int) -> Any:
        """What the script gets next; `END` where there is nothing more."""

    def place(self) -> Place:
        """Where it stands."""

    def go_to(self, place: Place) -> None:
        """Goes back or on to a place. Leaves the random state anywhere."""

    def note(self, step: int) -> None:
        """A step is done."""

    def let_go(self) -> None:
        """The loop is over."""

    def cut(self, first: int, last: int) -> Changes:
        """The data of the steps `first` .. `last`, to be passed over from now on.

        Raises:
            CannotSkip
        """

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Epoch and place at which the checkpoint in `directory`, of `step`, was saved.

        Raises:
            CannotSkip
        """

    def leave_out(
        self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int, world_size: int
    ) -> Exclusion:
        """These samples and all samples of these documents, to be left out from a place on.

        Raises:
            CannotSkip
        """

    def check_exclude(self, world_size: int) -> None:
        """Whether samples can be left out at all.

        Raises:
            CannotSkip
        """


class Draws:
    """The script draws its batches itself; all that LossGuard can do is bring the random state back."""

    kind = "draws"
    weight = 1.0

    def __init__(self, *, random_batches: bool) -> None:
        self.random_batches = random_batches
        self._step = 0

    def take(self, step: int) -> int:
        """The number of steps done before this one."""
        return step

    def place(self) -> Place:
        """Nowhere: all is in the random state."""
        return Place()

    def go_to(self, place: Place) -> None:
        """Nothing to do."""

    def note(self, step: int) -> None:
        """Keeps the step."""
        self._step = step

    def let_go(self) -> None:
        """Nothing to do."""

    def cut(self, first: int, last: int) -> Changes:
        """The draws from `first` on. They end where the training stands: later ones have not been drawn yet."""
        if not self.random_batches:
            raise CannotSkip(
                "the script takes its batches itself; say run.steps(..., random_batches=True) if it draws them at random"
            )
        if last != self._step or not 1 <= first <= last:
            raise CannotSkip(f"steps {first} to {last} are not the last ones drawn; the training is at step {self._step}")
        return (Cut(NO_EPOCH, first, last + 1),)

    def place_of(self, step: int, directory: Path) -> tuple[int, int]:
        """Nowhere: all is in the random state."""
        del step, directory
        return NO_EPOCH, 0

    def leave_out(
        self, samples: tuple[int, ...], documents: tuple[str, ...], epoch: int, place: int, world_size: int
    ) -> Exclusion:
        """Never: what the script draws is not known before it is drawn."""
        del samples, documents, epoch, place, world_size
        raise CannotSkip(_DRAWN)

    def check_exclude(self, world_size: int) -> None:
        """Never."""
        del world_size
        raise CannotSkip(_DRAWN)
