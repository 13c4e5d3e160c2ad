"""Files as they are to outlive a power cut."""

import os
from pathlib import Path


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
