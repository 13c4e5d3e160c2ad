"""Where a training that starts again goes on: one answer for every integration.

    a rollback was begun and not ended   its target, though others are newer
    else                                 the newest checkpoint of the stretch the run went on with, if it is fit

Never simply the highest number: what a rollback left behind is passed over, and so is one that is not fit by the facts in its
manifest or by the last verdict known, whichever is stricter. One whose process died before it was inspected is inspected now.
The files of the one that is chosen are read and compared first; where they have changed, the next older one has its turn.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_agent.checkpoints.directories import commit, read_manifest
from trainer_agent.checkpoints.inspection import MANIFEST, Save, changed_file, inspect
from trainer_agent.checkpoints.rollback import unfit
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CommandKind

from .journal import Intent, Journal, JournalState, is_abandoned, is_stop

_NAME = re.compile(r"checkpoint-([0-9]{1,15})")


class NothingFit(ValueError):  # noqa: N818  reads as what it says
    """There are checkpoints, and none to go on from. The text says why of each."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that may be gone on from. `facts` is None where nobody has inspected it; it is of the last segment then."""

    directory: Path
    step: int
    segment: int
    facts: CheckpointSaved | None
    is_foreign: bool = False
    """Another run has inspected it, and its manifest stays as it is."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Where to go on, and what was passed over for it, a clause each. Both None: there is nothing, and the run begins anew."""

    directory: Path | None = None
    facts: CheckpointSaved | None = None
    ends: Intent | None = None
    """The rollback that comes to its end there."""
    passed_over: tuple[str, ...] = ()
    stops: bool = False
    """A stop was begun and is still in time: the training ends before its first step."""


def where_to_go_on(journal: Journal, output_dir: Path, *, needs_scaler: bool) -> GoOn:
    """The checkpoint of this run to go on from. Reads its files, so it takes seconds for a large one.

    Raises:
        NothingFit
    """
    state = journal.state
    known = journal.verdicts()

    def examine(candidate: Candidate) -> tuple[CheckpointSaved, str]:
        facts = candidate.facts or _inspected(candidate, state.run_id)
        fault = unfit(facts, known.get(facts.checkpoint_id), needs_scaler=needs_scaler)
        return facts, fault or changed_file(facts, candidate.directory)

    try:
        found = choose(state, _candidates(output_dir, state), examine)
    except NothingFit as none:
        raise NothingFit(f"no checkpoint in {output_dir} is fit to go on from ({none})") from None
    return replace(found, stops=stops_at_once(state))


def stops_at_once(state: JournalState) -> bool:
    """Whether a stop was begun, and not ended, and may still be done."""
    return is_stop(state.intent) and state.intent is not None and state.intent.is_in_time(time.time())


def as_told(journal: Journal, output_dir: Path, path: str | Path) -> GoOn | None:
    """Where the script itself goes on; None where that is anywhere but at the target of a rollback that broke off."""
    rollback = _rollback(journal.state)
    if rollback is None or Path(path).resolve() != (output_dir / _target(rollback)[0]).resolve():
        return None
    facts = read_manifest(Path(path).resolve(), journal.state.run_id)
    return None if facts is None else GoOn(Path(path).resolve(), facts, rollback)


def choose(
    state: JournalState, candidates: Iterable[Candidate], examine: Callable[[Candidate], tuple[CheckpointSaved, str]]
) -> GoOn:
    """The first that is fit, in the order of `in_order`.

    Raises:
        NothingFit
    """
    rollback = _rollback(state)
    found = list(candidates)
    faults: list[str] = []
    for candidate in in_order(state, found):
        facts, fault = examine(candidate)
        if not fault:
            ends = rollback if rollback is not None and candidate.directory.name == _target(rollback)[0] else None
            return GoOn(candidate.directory, facts, ends, tuple(faults))
        faults.append(f"{candidate.directory.name}: {fault}")
    faults = faults or [f"{each.directory.name}: a rollback has left it behind" for each in found]
    if faults:
        raise NothingFit("; ".join(faults[:3]))
    return GoOn()


def in_order(state: JournalState, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of the stretch that the run went on with, newest first; of a rollback that broke off, its target and older ones."""
    rollback = _rollback(state)
    kept = [each for each in candidates if not is_abandoned(state, each.segment, each.step)]
    if rollback is not None:
        name, at_step = _target(rollback)
        kept = [each for each in kept if each.directory.name == name or each.step < at_step]
    return sorted(kept, key=lambda each: (each.segment, each.step), reverse=True)


def _rollback(state: JournalState) -> Intent | None:
    intent = state.intent
    return intent if intent is not None and intent.command.kind is CommandKind.ROLLBACK else None


def _target(rollback: Intent) -> tuple[str, int]:
    payload = rollback.command.rollback
    assert payload is not None, "a rollback without a payload is not begun"
    return payload.checkpoint_id, payload.target_step


def _candidates(output_dir: Path, state: JournalState) -> list[Candidate]:
    last = max((point.segment for point in state.points), default=1)
    found = []
    for directory in output_dir.glob("checkpoint-*"):
        match = _NAME.fullmatch(directory.name)
        if match and directory.is_dir():
            facts = read_manifest(directory, state.run_id)
            is_foreign = facts is None and (directory / MANIFEST).exists()
            if not (is_foreign and state.points):
                found.append(Candidate(directory, int(match[1]), facts.segment if facts else last, facts, is_foreign))
    return found


def _inspected(candidate: Candidate, run_id: str) -> CheckpointSaved:
    save = Save(run_id, candidate.directory, candidate.segment, candidate.step, time.time())
    facts = inspect(save)
    return facts if candidate.is_foreign else commit(save, facts)
