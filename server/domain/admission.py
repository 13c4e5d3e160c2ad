"""What may be commanded in which state of the run, and beside which other command.

What may be made when (`lost` is as it was before: a lost run is paused if that was the last word of it):

    kind                                        running   paused   created, ended
    stop, rollback, save, set_...               yes       yes      no
    pause                                       yes       no       no
    resume                                      no        yes      no

and beside an active command of the run:

    new, active                                 queued or delivered        running
    the same kind and target                    is that command            is that command
    stop                                        supersedes it              is queued behind it
    any other                                   refused, naming it         refused, naming it
    any, where the active one was made for      supersedes it              as above
    a process that is gone

A stop that is queued behind another command is handed to nobody until that one has ended, whichever way; then it is addressed
to the process and the segment of that moment. So a click on stop is never lost to a rollback that is under way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainer_agent.wire.vocabulary import CommandKind, DataMode, RunState

from .commands import ON_THE_WAY, IssuedCommand
from .runs import ENDED as RUN_ENDED

MOST_SAMPLES = 10_000
MOST_DOCUMENTS = 200
"""That one rollback may name: it travels in the answer to each message until it is reported on, and that has a limit too."""
MAX_LEARNING_RATE_FACTOR = 100.0
MAX_GRAD_NORM = 1e9


class Refusal(StrEnum):
    """Why a command was not made. The values are read by people."""

    NOT_LIVE = "the run is not running, so nothing would obey"
    NOT_CAPABLE = "this integration cannot do that"
    ALREADY_PAUSED = "the run is paused already"
    NOT_PAUSED = "the run is not paused"
    ALREADY_ACTIVE = "another command is active on this run"
    CANNOT_DATA = "this run cannot do that with its data"
    UNKNOWN_CHECKPOINT = "this run has no such checkpoint"
    UNSOUND_CHECKPOINT = "the checkpoint is not sound"
    SUPERSEDED_CHECKPOINT = "the checkpoint lies on a stretch that a rollback has left behind"
    MOVED_ON = "the run has moved on since the page was drawn"
    NO_SOUND_CHECKPOINT = "there is no sound checkpoint older than the first sign"


@dataclass(frozen=True, slots=True)
class Request:
    """What decides whether a new command says the same as one that is there. None: whatever the server takes."""

    kind: CommandKind
    checkpoint_id: str | None = None
    data: DataMode | None = None
    exclude_samples: tuple[int, ...] = ()
    exclude_documents: tuple[str, ...] = ()
    learning_rate_factor: float | None = None
    max_grad_norm: float | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The run as the author of a command saw it; None: not told."""

    segment: int | None = None
    incarnation: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a run decides whether a command may be made now."""

    state: RunState
    segment: int
    capabilities: frozenset[CommandKind]
    active_command: IssuedCommand | None = None
    incarnation: str = ""
    was_paused: bool = False
    """Whether the last word of the process was that it is paused."""
    waiting_command: IssuedCommand | None = None
    """The stop that is queued behind the active command."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a command is made, and beside which.

    `same_as` is the command that already says it, `supersedes` one that it replaces, `behind` one that it waits for.
    """

    refusal: Refusal | None = None
    same_as: IssuedCommand | None = None
    supersedes: IssuedCommand | None = None
    behind: IssuedCommand | None = None


def admit(request: Request, standing: Standing, seen: Seen) -> Admission:
    """Decide on a new command by the two tables above."""
    if not is_live(standing.state):
        return Admission(Refusal.NOT_LIVE)
    if request.kind not in standing.capabilities:
        return Admission(Refusal.NOT_CAPABLE)
    for known in (standing.active_command, standing.waiting_command):
        if known is not None and not _is_void(known, standing) and says_the_same(request, known):
            return Admission(same_as=known)
    if has_moved_on(standing, seen):
        return Admission(Refusal.MOVED_ON)
    return _beside(request.kind, standing)


def is_live(state: RunState) -> bool:
    """Whether a trainer may still be there to obey. A lost one may: being lost is the server's belief."""
    return state not in RUN_ENDED and state is not RunState.CREATED


def has_moved_on(standing: Standing, seen: Seen) -> bool:
    """Whether the run has rolled back or started again since its page was drawn."""
    moved_segment = seen.segment not in (None, standing.segment)
    return moved_segment or seen.incarnation not in (None, standing.incarnation)


def _beside(kind: CommandKind, standing: Standing) -> Admission:
    active, waiting = standing.active_command, standing.waiting_command
    if waiting is not None:
        return Admission(Refusal.ALREADY_ACTIVE)
    if active is None or _is_void(active, standing):
        return Admission(_against_state(kind, standing), supersedes=active)
    if kind is not CommandKind.STOP:
        return Admission(Refusal.ALREADY_ACTIVE)
    return Admission(supersedes=active) if active.state in ON_THE_WAY else Admission(behind=active)


def _is_void(command: IssuedCommand, standing: Standing) -> bool:
    """Whether nobody will begin it any more: the process that it was made for is gone."""
    return command.state in ON_THE_WAY and command.behind is None and command.incarnation != standing.incarnation


def _against_state(kind: CommandKind, standing: Standing) -> Refusal | None:
    is_paused = standing.state is RunState.PAUSED or (standing.state is RunState.LOST and standing.was_paused)
    if kind is CommandKind.PAUSE and is_paused:
        return Refusal.ALREADY_PAUSED
    return Refusal.NOT_PAUSED if kind is CommandKind.RESUME and not is_paused else None


def says_the_same(request: Request, known: IssuedCommand) -> bool:
    """Whether a command does all that is asked for. What the request leaves open is the server's choice, and it has chosen."""
    if known.kind is not request.kind or request.value not in (None, known.value):
        return False
    rollback = known.rollback
    return rollback is None or all(
        asked in (None, ()) or asked == getattr(rollback, name)
        for name, asked in (
            ("checkpoint_id", request.checkpoint_id),
            ("data", request.data),
            ("exclude_samples", request.exclude_samples),
            ("exclude_documents", request.exclude_documents),
            ("learning_rate_factor", request.learning_rate_factor),
            ("max_grad_norm", request.max_grad_norm),
        )
    )


def default_data(modes: Sequence[DataMode], *, has_sign: bool, names_samples: bool = False) -> DataMode:
    """What a rollback does with the data where nobody says: leaves out what is named, else what fits and the run can do.

    `has_sign`: there is trouble that the data may have done, and so they are skipped; the data of a healthy run are replayed.
    """
    if names_samples:
        return DataMode.EXCLUDE
    fitting = (DataMode.SKIP, DataMode.REPLAY) if has_sign else (DataMode.REPLAY, DataMode.SKIP)
    usable = [mode for mode in fitting if mode in modes]
    return usable[0] if usable else DataMode.REPLAY
