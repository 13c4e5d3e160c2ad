"""How the ranks of a training come to one decision at a step boundary.

    vote: has anyone news?  --no-->  go on                       every boundary, one small all-reduce
            | yes
    gather what is dead  ->  rank 0 decides  ->  share the decision  ->  gather who cannot do it  --nobody-->  all act
                                   ^                                              | somebody, as seeing no such checkpoint
                                   +----------- the command has failed -----------+
                                   +----------- it was a set or a pause: rank 0 decides on, the others wait

Rank 0 alone takes commands and speaks of them. A death on any rank is everyone's, with its rank named. Where the ranks are apart
(see `ranks`) nothing is done to the training any more: it is watched, and a command is rejected with the reason.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from trainer_agent.checkpoints.rollback import Offer, Target
from trainer_agent.guest.interrupts import let_pass
from trainer_agent.identity import Identity
from trainer_agent.measuring.guard import Death, DeathCause
from trainer_agent.ranks import Apart, Ranks

from .control import Control
from .decisions import LEAVES, Act, Decision
from .journal import Overrides


@dataclass(frozen=True, slots=True)
class Ways:
    """What an agreement asks of its session."""

    see: Callable[[Offer], Target]
    """What rank 0 offers as it lies before this rank; raises where it does not."""
    undo: Callable[[Target], None]
    """Takes back what rank 0 did to get ready for a target that another rank cannot see."""
    apart: Callable[[int, str], None]
    """Told once, on every rank, when the ranks can no longer agree: at which step, and why."""
    settle: Callable[[Decision], None] = lambda _: None
    """Does on a rank beside rank 0 what was decided and does not leave the boundary."""


class Agreement:
    """One decision for all ranks; where the training has one process, its control's and nothing more. Thread: training."""

    def __init__(self, ranks: Ranks, control: Control, ways: Ways, every: int = 1) -> None:
        self.sick_rank: int | None = None
        """A rank whose numbers were bad at the last boundary."""
        self._ranks, self._control, self._ways, self._every = ranks, control, ways, every
        self._has_told_apart = False

    def at_boundary(self, step: int, death: Death | None, *, sick: bool) -> Decision:
        """What all ranks do after `step`. `death`: one to be acted on. `sick`: this rank's numbers are no longer good."""
        if self._ranks.is_alone:
            return self._control.at_boundary(step, death)
        if step % self._every and not self._ranks.problem:
            return Decision()
        command = self._control.take() if self._ranks.leads else None
        news = command is not None or death is not None or self._control.is_paused
        try:
            vote = self._ranks.vote(step, news=news, sick=sick)
            self.sick_rank = vote.sick_rank
            if not vote.news:
                return Decision()
            deaths = self._ranks.gather(_death_to_bytes(death))
            return self._lead(step, first_of(deaths)) if self._ranks.leads else self._follow()
        except Apart as parted:
            self.part(step, str(parted))
            return Decision()

    def anyone(self, step: int, *, wants: bool) -> bool:
        """Whether any rank wants something; False where the ranks are apart."""
        try:
            return self._ranks.vote(step, news=wants).news
        except Apart as parted:
            self.part(step, str(parted))
            return False

    def next_segment(self, identity: Identity, step: int) -> int:
        """Opens the next segment of the run; its number is rank 0's word, as the folder is its own."""
        if self._ranks.is_alone:
            return identity.next_segment()
        number = identity.next_segment() if self._ranks.leads else identity.last_segment + 1
        try:
            return identity.reserve_segment(int(self._ranks.share(b"%d" % number)))
        except Apart as parted:
            self.part(step, str(parted))
            return identity.reserve_segment(number)

    def come_together(self, step: int) -> None:
        """Returns when every rank is here; at once where the ranks are apart."""
        with suppress(Apart):
            self._ranks.vote(step, news=False)

    def everyones(self, problem: str) -> str:
        """The problems of all ranks in a line; that of this one where the ranks are apart."""
        try:
            return joined(self._ranks.gather(problem.encode()))
        except Apart:
            return problem

    def part(self, step: int, problem: str) -> None:
        """The ranks are apart from now on: the others notice, what is under way is given up, and it is told once."""
        self._ranks.leave(problem)
        self._control.is_paused = False
        self._control.give_up(step, f"the ranks cannot be told together: {problem}")
        if not self._has_told_apart:
            self._has_told_apart = True
            self._ways.apart(step, problem)

    def _lead(self, step: int, death: Death | None) -> Decision:
        """Decides, until every rank can do what was decided."""
        command = self._control.in_hand
        while True:
            decision = self._control.decide_now(command, death, step)
            self._ranks.share(_to_bytes(decision))
            problems = "" if decision.act is Act.GO_ON else joined(self._ranks.gather(b""))
            if not problems:
                self._control.settle(decision, step)
                if decision.act in LEAVES:
                    return decision
            else:
                if decision.target is not None:
                    self._ways.undo(decision.target)
                self._control.give_up(step, problems)
            command = None

    def _follow(self) -> Decision:
        while True:
            decision, problem = self._understood(self._ranks.share())
            if decision.act is Act.GO_ON or not joined(self._ranks.gather(problem.encode())):
                self._ways.settle(decision)
                if decision.act in LEAVES:
                    return decision

    def _understood(self, said: bytes) -> tuple[Decision, str]:
        """The decision for this rank, without the command, which is rank 0's to answer; and why it cannot be done here."""
        told = json.loads(said)
        overrides = None if told["overrides"] is None else Overrides(**told["overrides"])
        how = {name: told[name] for name in ("saves", "again", "has_waited")}
        decision = Decision(Act(told["act"]), told["reason"], overrides=overrides, **how)
        if told["offer"] is None:
            return decision, ""
        try:
            return replace(decision, target=self._ways.see(Offer.from_json(told["offer"]))), ""
        except Exception as problem:  # whatever it is, no rank goes back without the others
            let_pass(problem)
            return decision, str(problem) or type(problem).__name__


def joined(problems: Sequence[bytes]) -> str:
    """`rank 1: ...; rank 3: ...` of the ranks that have a problem; of the only rank without its number."""
    said = [(rank, text.decode(errors="replace")) for rank, text in enumerate(problems) if text]
    return "; ".join(text if len(problems) == 1 else f"rank {rank}: {text}" for rank, text in said)[:2000]


def first_of(deaths: Sequence[bytes]) -> Death | None:
    """The earliest death of all ranks, with its ranks named."""
    found = [(rank, _death_from_bytes(told)) for rank, told in enumerate(deaths) if told]
    if not found:
        return None
    _, first = min(found, key=lambda each: each[1].step)
    ranks = [rank for rank, death in found if death.step == first.step]
    where = "on all ranks" if len(ranks) == len(deaths) else f"on rank {' and '.join(map(str, ranks))}"
    return replace(first, reason=f"{where}: {first.reason}")


def _death_to_bytes(death: Death | None) -> bytes:
    return b"" if death is None else json.dumps([death.step, death.cause, death.reason]).encode()


def _death_from_bytes(told: bytes) -> Death:
    step, cause, reason = json.loads(told)
    return Death(step, DeathCause(cause), reason)


def _to_bytes(decision: Decision) -> bytes:
    offer = None if decision.target is None else Offer.of(decision.target).to_json()
    overrides = None if decision.overrides is None else asdict(decision.overrides)
    how = {"saves": decision.saves, "again": decision.again, "has_waited": decision.has_waited}
    return json.dumps({"act": decision.act, "reason": decision.reason, "offer": offer, "overrides": overrides, **how}).encode()
