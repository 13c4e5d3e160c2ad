"""What the ranks of a hand-written training do together with its files: write one checkpoint, and agree that all can load one.

Rank 0 writes, with the random states of all. All ranks call each method, at the same step.
"""

from .agreement import joined
from .interrupts import let_pass
from .loop_folder import Folder
from .loop_state import State, Where
from .ranks import Apart, Ranks
from .voice import Voice


class Together:
    """Where the training has one process, nothing is said to anybody. Thread: training."""

    def __init__(self, ranks: Ranks, folder: Folder, state: State, voice: Voice) -> None:
        self._ranks, self._folder, self._state, self._voice = ranks, folder, state, voice

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self._ranks.is_alone or bool(self._ranks.problem)

    def write(self, step: int, where: Where) -> bool:
        """Whether there is a checkpoint of `step` now. Ranks that are apart leave it to rank 0 alone."""
        try:
            states = [where.random_state()]
            states = states if self.is_alone else self._ranks.gather(states[0])
            problem = self._lead(step, where, states) if self._ranks.leads else ""
            said = problem.encode() if self.is_alone else self._ranks.share(problem.encode() if self._ranks.leads else None)
        except Exception as error:
            let_pass(error)
            return not self._say(step, error)
        return not said

    def _lead(self, step: int, where: Where, states: list[bytes]) -> str:
        """What went wrong; empty when nothing did."""
        try:
            self._folder.write(step, lambda draft: self._state.save(draft, step, where, states))
        except Exception as error:
            let_pass(error)
            return self._say(step, error)
        return ""

    def _say(self, step: int, error: Exception) -> str:
        """A full disk, a state that cannot be pickled, ranks that are apart: an older checkpoint is still there."""
        self._voice.say("save", f"no checkpoint of step {step}, the training goes on: {type(error).__name__}: {error}")
        return str(error) or type(error).__name__

    def problem(self, own: str) -> str:
        """What stands in the way of any rank, with its number; empty when nothing does."""
        if self.is_alone:
            return own
        try:
            return joined(self._ranks.gather(own.encode()))
        except Apart as parted:
            return own or str(parted)
