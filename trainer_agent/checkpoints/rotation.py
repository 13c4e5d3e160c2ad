"""Removes the checkpoints of one run that are no longer needed, in the place of the trainer's own rotation.

Which ones is said by `retention`; how they go, by `trash`. Here the two meet the catalogue, the server's verdicts and pins, and
what the run itself holds on to.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainer_agent.wire.messages import CheckpointSaved, Verdict
from trainer_agent.wire.vocabulary import CheckpointState

from .directories import Catalogue
from .retention import Held, Turn, Worth, to_remove
from .rollback import UNFIT, unfit
from .trash import Trash


@dataclass(frozen=True, slots=True)
class Outlook:
    """What of the run decides over its checkpoints."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """The last ones known of the server, with its pins."""
    needs_scaler: bool = False
    turns: tuple[Turn, ...] = ()
    lead: int | None = None
    targets: frozenset[str] = frozenset()
    """Checkpoints that a command under way goes back to."""


def worth_of(facts: CheckpointSaved, verdict: Verdict | None, *, needs_scaler: bool) -> Worth:
    """What a checkpoint is worth, by the stricter of its facts and the verdict."""
    if not unfit(facts, verdict, needs_scaler=needs_scaler):
        return Worth.SOUND
    is_judged = verdict is not None and verdict.state in UNFIT
    is_whole = facts.state is CheckpointState.COMPLETE and not (facts.nonfinite_weights or facts.nonfinite_optimizer)
    return Worth.BARE if is_whole and not is_judged and not facts.sick_because else Worth.BAD


class Rotation:
    """Thread: training. What is removed is renamed and unlinked, and told of, in a thread of the trash."""

    def __init__(
        self,
        root: Path,
        run_id: str,
        catalogue: Catalogue,
        tell: Callable[[CheckpointSaved], None],
        outlook: Callable[[], Outlook],
    ) -> None:
        self.trash = Trash(root, run_id, lambda facts: tell(_removed(facts, self.keep)))
        self.keep: int | None = None
        """How many the user wants kept; None: all."""
        self.best: frozenset[str] = frozenset()
        """Ids of the trainer's best checkpoint, which it loads at its end, and of the one about to become it."""
        self.parent: str | None = None
        """The id of the checkpoint that the segment under way began from."""
        self._catalogue, self._outlook = catalogue, outlook

    def thin_out(self) -> None:
        """Removes what may go now."""
        if self.keep is None:
            return
        outlook = self._outlook()
        pinned = {each.checkpoint_id for each in outlook.verdicts.values() if each.pinned}
        protected = {*pinned, *outlook.targets, *self.best, *filter(None, (self.parent,))}
        held = [self._held(facts, outlook) for facts in self._catalogue.known()]
        for checkpoint_id in to_remove(held, self.keep, protected, outlook.lead, outlook.turns):
            facts = self._catalogue.forget(checkpoint_id)
            if facts is not None:
                self.trash.remove(facts)

    def is_better(self, old: CheckpointSaved, new: CheckpointSaved) -> bool:
        """Whether an old checkpoint must stay in the place of the new one of its step: it is sound, and no other is."""
        outlook = self._outlook()
        others = (self._held(facts, outlook).worth for facts in self._catalogue.known() if facts is not new)
        worths = self._held(old, outlook).worth, self._held(new, outlook).worth
        return worths[0] is Worth.SOUND and worths[1] is not Worth.SOUND and Worth.SOUND not in others

    def _held(self, facts: CheckpointSaved, outlook: Outlook) -> Held:
        verdict = outlook.verdicts.get(facts.checkpoint_id)
        return Held(facts.checkpoint_id, facts.segment, facts.step, worth_of(facts, verdict, needs_scaler=outlook.needs_scaler))


def _removed(facts: CheckpointSaved, keep: int | None) -> CheckpointSaved:
    reason = f"removed, because {keep} are kept and newer ones are as good"
    return replace(facts, state=CheckpointState.DELETED, time=time.time(), files=(), problem=reason)
