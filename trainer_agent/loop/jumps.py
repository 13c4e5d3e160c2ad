"""What a script that draws its own batches passes over: at which step the random state is moved on, and to which state.

A skip in such a loop replays up to the window, and then goes on with what an undisturbed run would have drawn after it. The
jumps belong to the run and lie in `<output_dir>/.lossguard/jumps.pth`, replaced whole, so that a restart keeps them; each rank
has its own.
"""

import io
from pathlib import Path
from typing import Any

import torch

from trainer_agent.guest.interrupts import let_pass
from trainer_agent.guest.on_disk import replace_file

FILE_NAME = "jumps.pth"

State = dict[str, Any]


class Jumps:
    """Not for several threads."""

    def __init__(self, path: Path, jumps: dict[int, State] | None = None) -> None:
        self._path = path
        self._jumps = jumps or {}

    @classmethod
    def empty(cls, directory: Path, rank: int = 0) -> "Jumps":
        """None; whatever lies in the folder is replaced by the first one."""
        return cls(_path(directory, rank))

    @classmethod
    def open(cls, directory: Path, rank: int = 0) -> "Jumps":
        """The jumps of this `.lossguard` folder, none where there is no file.

        Raises:
            ValueError: the file is there and cannot be read; going on without it would draw the bad batches again.
        """
        path = _path(directory, rank)
        try:
            return cls(path, torch.load(path, weights_only=True))
        except FileNotFoundError:
            return cls(path)
        except Exception as error:
            let_pass(error)
            raise ValueError(f"{path} cannot be read ({error}); mend or remove it") from None

    def add(self, step: int, state: State) -> None:
        """When `step` is done, draws go on from `state`. Later jumps were of draws that do not come again. On disk first.

        Raises:
            OSError
        """
        jumps = {at: kept for at, kept in self._jumps.items() if at < step} | {step: state}
        self._write(jumps)
        self._jumps = jumps

    def after(self, step: int) -> State | None:
        """The random state to go on with when `step` is done; None to leave it as it is."""
        return self._jumps.get(step)

    def clear(self) -> None:
        """Forgets all: a new run began in this folder."""
        if self._jumps:
            self._write({})
            self._jumps = {}

    def _write(self, jumps: dict[int, State]) -> None:
        content = io.BytesIO()
        torch.save(jumps, content)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, content.getvalue())


def _path(directory: Path, rank: int) -> Path:
    return directory / (f"{rank}-{FILE_NAME}" if rank else FILE_NAME)
