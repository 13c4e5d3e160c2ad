"""What a run has begun and not ended, and where it stands: `<output_dir>/.lossguard/journal.json`, read first at each start.

    idle  -> begun    the intent, on the disk before anything is done             begun -> idle    its result
    begun -> begun    the same command again: its intent stays as it was first

                      segments opened, overrides in force and the server's last verdicts are kept whatever is under way

`step` is pure. `Journal` replaces the file whole, on the disk before it comes back. A file that cannot be read is set aside and
said, and the run goes on with an empty journal. A command whose intent cannot be written is not begun, but for a stop.
"""

import json
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainer_agent.guest.on_disk import replace_file
from trainer_agent.guest.voice import Voice
from trainer_agent.wire import codec, crash
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Verdict
from trainer_agent.wire.vocabulary import CommandKind, CommandState

FILE_NAME = "journal.json"
EARLY_FILE_NAME = "resume.json"
MOST_POINTS = 1024
MOST_VERDICTS = 1024


@dataclass(frozen=True, slots=True)
class Intent:
    """A command that is being done. The limits are of this machine's clock, by which a restart judges what is too late."""

    command: Command
    step: int
    """Steps that were done when it was begun."""
    begun_at: float
    until: float
    changes: str = ""
    """What a rollback adds to the plan of the data, as that writes it; empty for nothing."""
    changes_before: int = 0
    """How many changes the plan had before."""

    def is_in_time(self, now: float) -> bool:
        """Whether it may still be done; a clock that was set back says nothing, so then it may not."""
        return self.begun_at - 1.0 <= now < self.until


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the last command. Told again by every later process, because each may die before it was sent."""

    command_id: str
    state: CommandState
    step: int | None
    reason: str = ""
    checkpoint_id: str | None = None
    weights_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A segment began after `from_step`. Checkpoints of earlier segments with higher steps are of an abandoned stretch."""

    segment: int
    from_step: int
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a command has changed of the training, until another command does. None: as the script has it."""

    learning_rate_factor: float | None = None
    max_grad_norm: float | None = None


NOTHING_OVERRIDDEN = Overrides()


@dataclass(frozen=True, slots=True)
class JournalState:
    """All of it, as it lies in the file."""

    run_id: str = ""
    intent: Intent | None = None
    result: Result | None = None
    points: tuple[Point, ...] = ()
    overrides: Overrides = NOTHING_OVERRIDDEN
    longest_lead: int = 0
    """Steps from the first sign of trouble to the step a rollback left at, the most there were so far."""
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """A command is about to be done."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Ended:
    """A command came to its end; `overrides` hold from now on, where it changed any."""

    result: Result
    overrides: Overrides | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment begins. `lead`: the one a rollback has shown."""

    point: Point
    overrides: Overrides | None = None
    lead: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """The server's verdicts, all that are known."""

    verdicts: tuple[Verdict, ...]


Input = Begun | Ended | Opened | Judged


def step(state: JournalState, given: Input) -> JournalState:
    """What one input makes of the journal; the same state where nothing is new."""
    if isinstance(given, Begun):
        again = state.intent is not None and state.intent.command.command_id == given.intent.command.command_id
        return state if again else replace(state, intent=given.intent)
    if isinstance(given, Ended):
        is_own = state.intent is not None and state.intent.command.command_id == given.result.command_id
        overrides = state.overrides if given.overrides is None else given.overrides
        return replace(state, intent=None if is_own else state.intent, result=given.result, overrides=overrides)
    if isinstance(given, Opened):
        return _opened(state, given)
    return replace(state, verdicts=given.verdicts[-MOST_VERDICTS:])


def _opened(state: JournalState, given: Opened) -> JournalState:
    earlier = tuple(point for point in state.points if point.segment != given.point.segment)
    points = tuple(sorted((*earlier, given.point), key=lambda point: point.segment))[-MOST_POINTS:]
    overrides = state.overrides if given.overrides is None else given.overrides
    return replace(state, points=points, overrides=overrides, longest_lead=max(state.longest_lead, given.lead))


def is_abandoned(state: JournalState, segment: int, at_step: int) -> bool:
    """Whether a later segment began before a step of this one, so that the run did not go on from it."""
    return any(point.segment > segment and point.from_step < at_step for point in state.points)


class Journal:
    """The file and what is in it. Thread: any; `note` writes, so the training calls it only where a command is done."""

    def __init__(self, path: Path | None, state: JournalState) -> None:
        self.state = state
        self._path, self._lock = path, threading.Lock()

    @classmethod
    def open(cls, directory: Path, run_id: str, last_segment: int = 0) -> "Journal":
        """The journal of this `.lossguard` folder; an empty one where there is none, or one of another run. Never raises.

        Args:
            last_segment: the highest that was opened so far, for folders of versions that kept no journal.
        """
        path = directory / FILE_NAME
        found = _read(path)
        if found is not None and found.run_id == run_id:
            return cls(path, found)
        early = _early(directory / EARLY_FILE_NAME, last_segment) if found is None and last_segment else ()
        return cls(path, JournalState(run_id, points=early))

    @classmethod
    def of_rank_0(cls, told: bytes) -> "Journal":
        """As rank 0 has told it; the file is rank 0's, and never written here."""
        return cls(None, codec.decode(JournalState, told))

    def to_bytes(self) -> bytes:
        """For the other ranks of the training."""
        return codec.encode(self.state)

    def note(self, given: Input) -> None:
        """Takes an input, on the disk before in memory.

        Raises:
            OSError: it cannot be written, and is not taken.
        """
        with self._lock:
            following = step(self.state, given)
            if following != self.state:
                self._write(following)
                self.state = following

    def note_anyway(self, given: Input) -> None:
        """Takes an input in memory at least. Never raises."""
        try:
            self.note(given)
        except OSError as error:
            with self._lock:
                self.state = step(self.state, given)
            said = error.strerror or error
            Voice().once("journal", f"{self._path} cannot be written ({said}); a restart will not know what was done last")

    def verdicts(self) -> Mapping[str, Verdict]:
        """The last ones known, by checkpoint id."""
        return {verdict.checkpoint_id: verdict for verdict in self.state.verdicts}

    def _write(self, state: JournalState) -> None:
        if self._path is None:
            return
        crash.reach("journal.before_write")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps(codec.to_json(state), allow_nan=False).encode())
        crash.reach("journal.written")


def is_stop(intent: Intent | None) -> bool:
    """Whether a stop was begun and not ended."""
    return intent is not None and intent.command.kind is CommandKind.STOP


def _read(path: Path) -> JournalState | None:
    try:
        content = path.read_bytes()
        return _sensible(codec.decode(JournalState, content))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _set_aside(path, error)
        return None


def _sensible(state: JournalState) -> JournalState:
    """The state, if it is one that this version may have written.

    Raises:
        ValueError: it is not; whoever obeyed it would train with a rate of NaN, or go back to nowhere.
    """
    overrides, intent = state.overrides, state.intent
    values = (overrides.learning_rate_factor, overrides.max_grad_norm)
    if any(value is not None and not 0 < value < math.inf for value in values):  # a NaN is neither
        raise ValueError("a factor or a norm is no finite number above 0")
    if intent is not None and (intent.command.kind is CommandKind.ROLLBACK) != (intent.command.rollback is not None):
        raise ValueError("a rollback says where to, and nothing else does")
    return state


def _early(path: Path, last_segment: int) -> tuple[Point, ...]:
    """Where the first version wanted a restart to go on: what lies beyond was left behind by a rollback."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        name = str(json.loads(path.read_bytes())["checkpoint"])
        return (Point(last_segment + 1, int(name.removeprefix("checkpoint-")), name),)
    return ()


def _set_aside(path: Path, error: Exception) -> None:
    aside = _free_name(path.with_name, f"{path.name}.unreadable")
    with suppress(OSError):
        path.rename(aside)
    why = type(error).__name__ if isinstance(error, ValueError) else getattr(error, "strerror", None) or error
    Voice().say("journal", f"{path} cannot be read ({why}) and is kept as {aside.name}; what was begun last is not known")


def _free_name(beside: Callable[[str], Path], name: str) -> Path:
    taken = (beside(f"{name}-{number}") for number in range(1, 1000))
    return next((path for path in taken if not path.exists()), beside(f"{name}-1000"))
