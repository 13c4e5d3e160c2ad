"""Going back in place, up to the load: each thing that may fail at one rank is asked of all before any rank goes on.

    fetch (files -> memory)  ->  note down (what a restart needs)  ->  apply (memory -> training)
         |                            |                                   |
       refused on all ranks, and nothing was touched                    HalfLoaded, where it breaks off

Nothing here knows the session: what is decided comes as a target.
"""

from trainer_agent.checkpoints.rollback import Target
from trainer_agent.data import randomness
from trainer_agent.data.plan import Cut
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.ranks import Ranks

from .data import Draws
from .jumps import Jumps
from .state import CannotLoad, HalfLoaded, State, Stored
from .together import Together


class Back:
    """Thread: training. All ranks call `load`, at the same step."""

    def __init__(self, state: State, ranks: Ranks, together: Together, jumps: Jumps) -> None:
        self._state, self._ranks, self._together, self._jumps = state, ranks, together, jumps

    def load(self, target: Target | None, loop: int, kind: str) -> tuple[Stored | None, str]:
        """The checkpoint whose state the training has now; or None, and why not, and nothing was touched then.

        Args:
            loop: the number of the script's loop that is under way.
            kind: of its feed.

        Raises:
            HalfLoaded
        """
        stored, problem = self._fetch(target, loop, kind)
        problem = self._together.problem(problem) or self._together.problem(self._note_down(target, kind))
        if stored is not None and not problem:
            problem = self._apply(stored)
        return (None, problem) if problem else (stored, "")

    def _fetch(self, target: Target | None, loop: int, kind: str) -> tuple[Stored | None, str]:
        """The checkpoint in memory, or why it cannot be loaded. Touches nothing."""
        if target is None:
            return None, "where to go back to is not known"
        try:
            stored = self._state.read(target.directory, self._ranks.rank, self._ranks.world_size)
        except CannotLoad as reason:
            return None, str(reason)
        if (stored.where.loop, stored.where.kind) != (loop, kind):
            return None, f"{target.directory.name} was saved in another loop of the script"
        return stored, ""

    def _note_down(self, target: Target | None, kind: str) -> str:
        """Draws that are passed over, for a restart too; why that could not be written."""
        try:
            cut = next((change for change in target.changes if isinstance(change, Cut)), None) if target is not None else None
            if cut is not None and kind == Draws.kind:
                self._jumps.add(cut.start - 1, randomness.capture())
        except Exception as error:
            let_pass(error)
            return f"the draws to pass over cannot be noted down: {error}"
        return ""

    def _apply(self, stored: Stored) -> str:
        try:
            self._state.apply(stored)
        except CannotLoad as reason:
            if not self._together.is_alone:
                raise HalfLoaded(f"this rank could not go back with the others: {reason}") from reason
            return str(reason)
        return ""
