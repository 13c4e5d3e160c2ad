"""Files that are to be whole at every moment, and to outlive a power cut."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from trainer_agent.wire import crash


def replace_file(path: Path, content: bytes, mode: int = 0o644, *, is_synced: bool = True) -> None:
    """Puts a file in place whole or not at all; after a power cut too, unless `is_synced` is False.

    Raises:
        OSError
    """
    draft = write_draft(path, content, mode, is_synced=is_synced)
    try:
        draft.replace(path)
        crash.reach("file.renamed")
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def write_draft(path: Path, content: bytes, mode: int = 0o644, *, is_synced: bool = True) -> Path:
    """A finished file beside `path`, on the disk and ready to be renamed to it.

    Raises:
        OSError
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            crash.reach("file.draft_written")
            if is_synced:
                os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        crash.reach("file.draft_synced")
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
    return Path(temporary)


def sync(path: Path) -> None:
    """Has what was written to a file, or the names in a folder, on the disk. Waits for it.

    Raises:
        OSError
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
