"""What commands have changed of a training and is in force: the factor on its learning rate, the norm it clips at.

Kept in the journal, so that a restart goes on with it. How a training clips is its integration's to know.
"""

from collections.abc import Callable

from trainer_agent.guest.harmless import go_on
from trainer_agent.wire.messages import Scalar

from .journal import Journal, Opened, Overrides
from .overrides import RateFactor

SetNorm = Callable[[float | None], None]


class InForce:
    """Thread: training. `set_max_grad_norm` clips at a norm from the next update on; None: as the script has it."""

    def __init__(self, journal: Journal, set_max_grad_norm: SetNorm) -> None:
        self.rate = RateFactor(go_on)
        self._journal, self._set_max_grad_norm = journal, set_max_grad_norm

    def apply(self, overrides: Overrides) -> None:
        """From the next update on."""
        factor = overrides.learning_rate_factor
        self.rate.factor = 1.0 if factor is None else factor
        self._set_max_grad_norm(overrides.max_grad_norm)

    def open(self, opened: Opened) -> None:
        """A segment begins: noted down, and its overrides are in force."""
        self._journal.note_anyway(opened)
        self.apply(self.overrides)

    @property
    def overrides(self) -> Overrides:
        """What holds now."""
        return self._journal.state.overrides

    def end(self) -> None:
        """Everything is the script's own again."""
        self.rate.detach()
        self._set_max_grad_norm(None)

    def parent_of(self, segment: int) -> int | None:
        """The segment that was open before this one, by the journal."""
        return max((point.segment for point in self._journal.state.points if point.segment < segment), default=None)

    def attributes(self) -> dict[str, Scalar]:
        """As attributes of a segment."""
        held = self.overrides
        named: dict[str, Scalar] = {"learning_rate_factor": held.learning_rate_factor, "max_grad_norm": held.max_grad_norm}
        return {name: value for name, value in named.items() if value is not None}
