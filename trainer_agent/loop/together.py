"""What the ranks of a hand-written training do together with its files: write one checkpoint, and agree that all can load one.

Rank 0 writes, with the random states of all. All ranks call each method, at the same step.

    gather random states -> rank 0 makes a draft -> (all save into it, where the layout is accelerate's) -> rank 0 renames it
"""

from collections.abc import Callable
from pathlib import Path

from trainer_agent.checkpoints.disk_space import disk_fault
from trainer_agent.commands.agreement import joined
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.ranks import Apart, Ranks

from .folder import Folder
from .state import State, Where


class Together:
    """Where the training has one process, nothing is said to anybody. Thread: training."""

    def __init__(self, ranks: Ranks, folder: Folder, state: State) -> None:
        self._ranks, self._folder, self._state = ranks, folder, state
        self._has_called = False
        self.failure = ""
        """Why the last `write` came to nothing; empty when it did not."""

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self._ranks.is_alone or bool(self._ranks.problem)

    def write(self, step: int, where: Where, ready: Callable[[], str]) -> bool:
        """Whether there is a checkpoint of `step` now. Ranks that are apart leave it to rank 0 alone.

        A full disk, a state that cannot be pickled, ranks that are apart: an older checkpoint is still there. Nothing is raised.

        Args:
            ready: asked on rank 0 before anything is written: why it is not to be.
        """
        try:
            states = [where.random_state()]
            states = states if self.is_alone else self._ranks.gather(states[0])
            problem = self._lead(step, where, states, ready) if self._ranks.leads else self._follow()
            said = problem.encode() if self.is_alone else self._ranks.share(problem.encode() if self._ranks.leads else None)
            self.failure = said.decode()
        except Exception as error:
            let_pass(error)
            self.failure = _in_words(error)
        return not self.failure

    def _lead(self, step: int, where: Where, states: list[bytes], ready: Callable[[], str]) -> str:
        """What went wrong; empty when nothing did."""
        self._has_called = not self._state.shares_save or self.is_alone
        try:
            problem = ready()
            if not problem:
                self._folder.write(step, lambda draft: self._fill(draft, step, where, states))
        except Exception as error:
            let_pass(error)
            problem = _in_words(error)
        if problem and not self._has_called:
            self._ranks.share(b"")
        return problem

    def _fill(self, draft: Path, step: int, where: Where, states: list[bytes]) -> None:
        if self._has_called:
            self._state.save_parts(draft)
        else:
            self._has_called = True
            self._ranks.share(draft.name.encode())
            if problem := self.problem(self._save_parts(draft)):
                raise OSError(problem)
        self._state.save_place(draft, step, where, states)

    def _follow(self) -> str:
        """Takes part in the save where all ranks do."""
        if self._state.shares_save and not self.is_alone and (name := self._ranks.share()):
            self.problem(self._save_parts(self._folder.path / name.decode()))
        return ""

    def _save_parts(self, draft: Path) -> str:
        """What went wrong on this rank; no rank may be left alone with the others' calls, so it is not raised."""
        try:
            if not draft.is_dir():
                return f"{draft.parent} is not the folder that rank 0 writes to; all ranks must share it"
            self._state.save_parts(draft)
        except Exception as error:
            let_pass(error)
            return str(error) or type(error).__name__
        return ""

    def problem(self, own: str) -> str:
        """What stands in the way of any rank, with its number; empty when nothing does."""
        if self.is_alone:
            return own
        try:
            return joined(self._ranks.gather(own.encode()))
        except Apart as parted:
            return own or str(parted)


def _in_words(error: Exception) -> str:
    return disk_fault(error) or f"{type(error).__name__}: {error}"
