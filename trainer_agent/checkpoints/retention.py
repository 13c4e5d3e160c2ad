"""Which checkpoints may be removed. Pure: plain values in, ids out; reads no file, no clock and no name.

    the newest `keep`                                              stay, whatever they are worth
    protected ones: pinned, best, target of a command, parent      stay
    three good ones over more than twice the longest lead          stay: the newest, the newest that lies far enough back, and
                                                                   the oldest between the two, which is the next to lie far back
    every other one                                                goes, once a newer one that is worth as much stays

Good is the highest worth that there is, if it is not bad: where a run cannot have sound checkpoints, as with save_only_model, its
finite weights are what must not get lost. The lead of a divergence is how many steps before the run was left its first sign was
found to be; what was saved in that time is judged unsound afterwards, so some must be older.

Age is (segment, step). After a rollback step 300 of the new segment is newer than step 500 of the old one, and what lies on an
abandoned stretch is older than all that does not; it fills up the three where there is nothing better.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

UNKNOWN_LEAD = 25
"""Steps, where no divergence was observed yet: an explosion comes up to so many steps after the bad data."""
AT_LEAST = 3
"""Good ones that stay."""


class Worth(IntEnum):
    """What a checkpoint is worth, by the stricter of its facts and the server's last verdict."""

    BAD = 0
    """Corrupt, not finite, saved while the run was sick, or judged unsound."""
    BARE = 1
    """Whole and finite, but it would not bring everything back."""
    SOUND = 2


@dataclass(frozen=True, slots=True)
class Held:
    """One checkpoint of this run that has been inspected."""

    checkpoint_id: str
    segment: int
    step: int
    worth: Worth


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a segment began: what older segments hold of later steps is abandoned."""

    segment: int
    from_step: int


def to_remove(
    known: Iterable[Held],
    keep: int | None,
    protected: Collection[str] = (),
    lead: int | None = None,
    turns: Iterable[Turn] = (),
) -> tuple[str, ...]:
    """The ids of those that may go now, oldest first.

    Args:
        known: this run's inspected checkpoints, in any order, each id once.
        keep: how many the user wants kept; None or less than 1: all.
        protected: ids that stay.
        lead: the longest observed, in steps; None where none was observed.
        turns: beginnings of segments, as far as they are known; the checkpoints tell of some by themselves.
    """
    if keep is None or keep < 1:
        return ()
    effective, abandoned = by_age(known, turns)
    held = abandoned + effective
    staying = {each.checkpoint_id for each in held[-keep:]} | set(protected) | _good_ones(effective, abandoned, lead)
    return tuple(
        each.checkpoint_id
        for place, each in enumerate(held)
        if each.checkpoint_id not in staying
        and any(newer.checkpoint_id in staying and newer.worth >= each.worth for newer in held[place + 1 :])
    )


def by_age(known: Iterable[Held], turns: Iterable[Turn] = ()) -> tuple[list[Held], list[Held]]:
    """Those on the effective curve, and those on abandoned stretches; both oldest first."""
    held = sorted(known, key=lambda each: (each.segment, each.step))
    all_turns = {*turns, *(Turn(each.segment, each.step - 1) for each in held)}
    effective = [each for each in held if not is_abandoned(each, all_turns)]
    return effective, [each for each in held if is_abandoned(each, all_turns)]


def is_abandoned(held: Held, turns: Iterable[Turn]) -> bool:
    """Whether a later segment began before this checkpoint's step."""
    return any(turn.segment > held.segment and turn.from_step < held.step for turn in turns)


def _good_ones(effective: Sequence[Held], abandoned: Sequence[Held], lead: int | None) -> set[str]:
    best = max((each.worth for each in (*effective, *abandoned)), default=Worth.BAD)
    if best is Worth.BAD:
        return set()
    good = [each for each in effective if each.worth is best]
    older = [each for each in abandoned if each.worth is best]
    chosen = _spread(good, 2 * (UNKNOWN_LEAD if lead is None else lead))
    spare = [each for each in reversed(older + good) if each not in chosen]
    return {each.checkpoint_id for each in chosen + spare[: max(0, AT_LEAST - len(chosen))]}


def _spread(good: Sequence[Held], steps: int) -> list[Held]:
    """The newest, the newest more than `steps` older (else the oldest), and the oldest between them."""
    if not good:
        return []
    newest = good[-1]
    far = max((place for place, each in enumerate(good) if newest.step - each.step > steps), default=0)
    return list(dict.fromkeys((good[far], good[min(far + 1, len(good) - 1)], newest)))
