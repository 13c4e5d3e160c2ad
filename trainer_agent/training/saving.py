"""One save on all ranks of a trainer that writes by itself: whether it may begin, and what became of it.

    begin: does it fit? what lies there is moved away   --no-->  withheld, on all ranks
         | yes
    (the trainer saves; what the disk does to a rank is caught there)
         |
    end: has it come to anything on every rank?         --no-->  failed, on all ranks: nothing is left of it

Rank 0 asks and clears away; all ranks hear of it, because a trainer's own collectives in a save hang where one rank stays out.
What a save met is told once on the terminal and once on the wire, and again only after one has come through.
"""

import re
import time
from collections.abc import Callable

from trainer_agent.checkpoints.saves import Saves
from trainer_agent.commands.agreement import joined
from trainer_agent.guest.voice import Voice
from trainer_agent.ranks import Apart, Ranks
from trainer_agent.wire import crash
from trainer_agent.wire.messages import SaveFailed


class Saving:
    """`begin` and `end` are called on all ranks. Thread: training."""

    def __init__(
        self,
        ranks: Ranks,
        saves: Saves,
        tell: Callable[[SaveFailed], None],
        *,
        answer: Callable[[int, str], None],
        apart: Callable[[int, str], None],
    ) -> None:
        """`answer` hears of each failure, of which step and why; `tell` of each new cause."""
        self._ranks, self._saves, self._tell, self._answer, self._apart = ranks, saves, tell, answer, apart
        self._told: set[str] = set()

    @property
    def is_alone(self) -> bool:
        """Whether there is no other rank to hear from."""
        return self._ranks.is_alone or bool(self._ranks.problem)

    def begin(self, step: int) -> str:
        """Why the checkpoint of `step` is not saved; empty when it is to be saved now."""
        problem = self._heard(step, self.make_ready(step))
        if problem:
            self.failed(step, problem)
        return problem

    def announce(self, step: int) -> str:
        """`begin` where the other ranks cannot be asked: then only a training of one process withholds a save."""
        if self._ranks.is_alone:
            return self.begin(step)
        self._saves.coming(step)
        return ""

    def make_ready(self, step: int) -> str:
        """Why this rank does not let the checkpoint of `step` begin; where it does, what lies there is moved out of its way."""
        problem = self._saves.lacks_room()
        if problem:
            return f"it was not begun: {problem}"
        self._saves.coming(step)
        crash.reach("save.began")
        return ""

    def end(self, step: int, own: str) -> str:
        """What kept the checkpoint of `step` from being saved, on any rank; empty when nothing did. `own`: on this rank."""
        crash.reach("save.written")
        problem = self._gathered(step, own)
        if problem:
            self.failed(step, problem)
        return problem

    def ranks_wait(self) -> None:
        """From now on no rank writes before rank 0 has made place."""
        self._saves.moves_old = True

    def came_through(self) -> None:
        """A checkpoint was saved."""
        self._told.clear()

    def give_up(self) -> None:
        """An error that is the training's own goes through: the other ranks must not wait for this one."""
        self._ranks.leave("a rank did not come through a save")

    def failed(self, step: int, problem: str) -> None:
        """The save has come to nothing. Each rank hears of it by itself."""
        self._saves.failed()
        self._answer(step, problem)
        cause = re.sub(r"[\d.]+ ?[kMGT]?B?", "#", problem)
        if self._ranks.leads and cause not in self._told:
            self._told.add(cause)
            Voice().say("save", f"no checkpoint of step {step}, older ones are kept, the training goes on: {problem}")
            self._tell(SaveFailed(step, time.time(), problem))

    def _heard(self, step: int, own: str) -> str:
        """What rank 0 says."""
        if self.is_alone:
            return own
        try:
            return self._ranks.share(own.encode() if self._ranks.leads else None).decode()
        except Apart as parted:
            self._apart(step, str(parted))
            return own

    def _gathered(self, step: int, own: str) -> str:
        if self.is_alone:
            return own
        try:
            return joined(self._ranks.gather(own.encode()))
        except Apart as parted:
            self._apart(step, str(parted))
            return own
