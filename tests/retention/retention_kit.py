"""What the tests of saving and removing share: trainings as elsewhere, and a file system that is really full."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("agent", "loops")]

from loops_kit import Training  # noqa: E402, F401
from loops_kit import tape as loop_tape  # noqa: E402, F401
from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, until  # noqa: E402, F401
from transformers import TrainerCallback  # noqa: E402

from trainer_agent.checkpoints import read_manifest  # noqa: E402
from trainer_agent.inspection import MANIFEST  # noqa: E402


def names(folder: Path) -> set[str]:
    """The directories in it, but for our own."""
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != ".lossguard"}


def checkpoints(folder: Path) -> list[int]:
    """The steps of its checkpoints that have a manifest, lowest first."""
    return sorted(int(path.parent.name.removeprefix("checkpoint-")) for path in folder.glob(f"checkpoint-*/{MANIFEST}"))


def content(folder: Path) -> dict[str, bytes]:
    """All files under it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_of(run_id: str, directory: Path) -> bool:
    return read_manifest(directory, run_id) is not None


class Inspected(TrainerCallback):
    """The limit that the Trainer sees at each of its saves; waits until what was saved is inspected, as at a real pace."""

    def __init__(self, taped: Tape | None = None) -> None:
        self.limits, self.saved, self.taped = [], 0, taped

    def on_save(self, args, state, control, **kwargs):
        self.limits.append(args.save_total_limit)
        self.saved = state.global_step

    def on_step_begin(self, args, state, control, **kwargs):
        if self.taped is not None and self.saved:
            until(lambda: self.saved in [each.step for each in self.taped.checkpoints], 60)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own of this size, a tmpfs, for checkpoints alone: the records of a run there lie elsewhere."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        records = folder.with_name(f"{folder.name}-records")
        records.mkdir()
        (folder / ".lossguard").symlink_to(records)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
