"""Whether a save will fit, and which errors of a save are the disk's.

A save that meets a full disk half way costs its own files and the time; the training goes on all the same. So it is asked first,
and what no question can foretell is recognised when it happens. Project quotas show in the free space; a quota of the user shows
only when a write fails.
"""

import errno
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

ROOM_FACTOR = 1.2
"""So many times the size of the last checkpoint must be free."""

_FAULTS = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EIO", "EFBIG", "EROFS", "ESTALE", "EREMOTEIO") if hasattr(errno, name)
)
"""Not among them: a folder that may not be written, or is gone, or too many open files. Those are mistakes to be seen at once."""
_RUST = re.compile(r"\(os error (\d+)\)")
_TORCH = ("inline_container.cc", "PytorchStreamWriter", "iostream error")
_WRITE_FAILED = "the disk did not take all that was written"


def lacks_room(folder: Path, last_bytes: int, largest_file: int = 0) -> str:
    """Why a checkpoint as large as the last one does not fit into a folder; empty when it does, or nobody can tell."""
    needed = int(last_bytes * ROOM_FACTOR)
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < needed:
            return f"{in_words(free)} are free, and a checkpoint needs {in_words(needed)}"
    with suppress(OSError, ImportError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if 0 <= limit < largest_file:
            return f"a file may have {in_words(limit)} here, and the largest of a checkpoint has {in_words(largest_file)}"
    return ""


def disk_fault(error: BaseException) -> str:
    """What of the disk stopped a save, always in the same words for the same trouble; empty for any other error.

    torch's own writer loses the number of an error, and what is written in Rust keeps it only in its text (seen on a full
    tmpfs with torch 2.13, safetensors 0.6 and tokenizers 0.22).
    """
    if isinstance(error, OSError):
        return _in_words(error.errno)
    if type(error).__name__ == "SafetensorError" or type(error) is Exception:
        found = _RUST.search(str(error))
        return _in_words(int(found[1])) if found else ""
    if type(error) is RuntimeError and any(mark in str(error) for mark in _TORCH):
        return next((words for words in map(disk_fault, _before(error)) if words), _WRITE_FAILED)
    return ""


def in_words(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _in_words(number: int | None) -> str:
    if number not in _FAULTS or number is None:
        return ""
    return os.strerror(number).lower()


def _before(error: BaseException) -> list[OSError]:
    """The errors of the system on the way to this one."""
    found: list[OSError] = []
    seen = error.__cause__ or error.__context__
    while seen is not None and len(found) < 10:
        if isinstance(seen, OSError):
            found.append(seen)
        seen = seen.__cause__ or seen.__context__
    return found
