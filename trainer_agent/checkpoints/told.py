"""Which checkpoints of a run the server was told of, and what is known of their files: `.lossguard/checkpoints.json`.

A checkpoint that vanishes, or changes, while no process runs is found by the next one only because it stands here. Written before
the server is told, so that nothing is told and not known; that one is gone is written after it. Replaced whole. It holds what a
manifest, which is never rewritten, cannot: that its files are no longer what it says. Those that are gone stay here for a while,
and each process tells it again: what the one before had to say may not have come to the disk when this had. A file that cannot
be read is an empty list, and one of another run, too.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trainer_agent.guest.on_disk import replace_file
from trainer_agent.wire import crash
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

FILE_NAME = "checkpoints.json"
MOST_GONE = 64
"""Of those that are gone, the newest: far more than a process removes between two words that come to the disk."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint."""

    segment: int
    step: int
    time: float
    verified_at: float = 0.0
    """When all of its files were last read and found right, seconds since the epoch."""
    stats: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Size and time of change in nanoseconds of each file then."""
    problem: str = ""
    """What was found to be no longer as its manifest says; empty while everything is."""

    def is_of(self, facts: CheckpointSaved) -> bool:
        """Whether it speaks of this checkpoint, and not of another one that had its name."""
        return (self.segment, self.step, self.time) == (facts.segment, facts.step, facts.time)


def place(output_dir: Path) -> Path:
    """Where the list lies."""
    return output_dir / ".lossguard" / FILE_NAME


def read(output_dir: Path, run_id: str, of: str = "checkpoints") -> dict[str, Entry]:
    """The list, by checkpoint id; or of those that are `gone`, with the reason as their problem."""
    try:
        content = json.loads(place(output_dir).read_bytes())
        return {str(name): _entry(told) for name, told in content.get(of, {}).items()} if content["run_id"] == run_id else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entry(told: Mapping[str, object]) -> Entry:
    entry = Entry(**told)  # type: ignore[arg-type]  # what does not fit raises
    sizes = {name: (int(size), int(changed)) for name, (size, changed) in entry.stats.items()}
    return Entry(int(entry.segment), int(entry.step), float(entry.time), float(entry.verified_at), sizes, str(entry.problem))


def write(output_dir: Path, run_id: str, entries: Mapping[str, Entry], gone: Mapping[str, Entry]) -> None:
    """Replaces the list. A disk that does not take it costs a restart its memory of them, and nothing else."""
    content: dict[str, object] = {"run_id": run_id, "checkpoints": {name: asdict(entry) for name, entry in entries.items()}}
    content["gone"] = {name: asdict(entry) for name, entry in list(gone.items())[-MOST_GONE:]}
    with suppress(OSError):
        place(output_dir).parent.mkdir(parents=True, exist_ok=True)
        replace_file(place(output_dir), json.dumps(content, allow_nan=False).encode())
        crash.reach("manifest.noted")


def condemned(facts: CheckpointSaved, entry: Entry | None) -> CheckpointSaved:
    """The facts of a manifest with what was found of its files since."""
    if entry is None or not entry.problem or not entry.is_of(facts):
        return facts
    return replace(facts, state=CheckpointState.CORRUPT, problem=entry.problem)
