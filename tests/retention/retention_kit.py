"""What the tests of saving and removing share: trainings as elsewhere, and a file system that is really full."""

import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("agent", "loops")]

from loops_kit import Training  # noqa: E402, F401
from loops_kit import tape as loop_tape  # noqa: E402, F401
from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, until  # noqa: E402, F401
from transformers import TrainerCallback  # noqa: E402

from trainer_agent.checkpoints.directories import read_manifest  # noqa: E402
from trainer_agent.checkpoints.inspection import MANIFEST  # noqa: E402


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


@dataclass
class Disk:
    """A file system that gets full: a tmpfs of its own, or, where none may be mounted, a limit on the size of files."""

    folder: Path
    is_mounted: bool

    def fill(self, free_bytes: int, largest_file: int) -> None:
        """Leaves so much free; with a limit, so much for each file."""
        if self.is_mounted:
            (self.folder / "rest").write_bytes(bytes(shutil.disk_usage(self.folder).free - free_bytes))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def empty(self) -> None:
        """All is free again."""
        (self.folder / "rest").unlink(missing_ok=True)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Disk]:
    """A file system of its own of this size, for checkpoints alone: the records of a run there lie elsewhere."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    is_mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    disk = Disk(folder, is_mounted)
    try:
        records = folder.with_name(f"{folder.name}-records")
        records.mkdir()
        (folder / ".lossguard").symlink_to(records)
        yield disk
    finally:
        disk.empty()
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
