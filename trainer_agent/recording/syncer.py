"""Syncer: brings written files and their names onto the disk, so that they outlive a power cut.

On a thread of its own: a disk may take seconds for it, and meanwhile the writer goes on, so that a process that is killed loses
no more than otherwise. A disk that refuses changes nothing else; a file that has been deleted meanwhile needs nothing.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from trainer_agent.wire import crash


class Syncer:
    """Takes paths and syncs them in their order. The thread starts with the first."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_busy = self._is_over = False

    def ask(self, path: Path, folders: int = 1) -> None:
        """Has `path` and the names on the way to it synced: so many folders up. Returns at once. Thread: writer."""
        with self._changed:
            self._paths += [path, *list(path.parents)[:folders]]
            self._changed.notify_all()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="lossguard-sync", daemon=True)
            with suppress(RuntimeError):  # no thread to be had: what was written is in the page cache as before
                thread.start()
                self._thread = thread

    def finish(self, seconds: float) -> bool:
        """Ends the thread once all is synced, or after so many seconds; whether all is."""
        with self._changed:
            if self._thread is not None:
                self._changed.wait_for(lambda: not self._paths and not self._is_busy, seconds)
            self._is_over = True
            self._changed.notify_all()
            return not self._paths and not self._is_busy

    def _run(self) -> None:
        while (path := self._next()) is not None:
            with suppress(OSError):
                _sync(path)
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()

    def _next(self) -> Path | None:
        with self._changed:
            self._changed.wait_for(lambda: self._paths or self._is_over)
            if self._is_over:
                return None
            self._is_busy = True
            return self._paths.pop(0)


def _sync(path: Path) -> None:
    is_folder = path.is_dir()
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        if not is_folder:
            crash.reach("sync.before")
        os.fsync(handle)
    finally:
        os.close(handle)
    crash.reach("sync.folder_synced" if is_folder else "sync.file_synced")
