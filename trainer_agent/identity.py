"""Which run a folder belongs to: `<output_dir>/.lossguard/run.json`, taken up again when training resumes there.

The file also remembers the highest segment opened, so that a restart opens the next one and a rollback that is done twice
opens one. It is replaced whole. When it cannot be written the run goes on with what is in memory, and says so once.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .guest.on_disk import replace_file
from .guest.voice import Voice
from .wire import crash
from .wire.codec import MAX_STEP

FILE_NAME = "run.json"
LOCK_SECONDS = 1.0
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+")


class Identity:
    """The run's id and its segments. Not for several threads."""

    def __init__(self, path: Path, run_id: str, last_segment: int, *, writes: bool = True) -> None:
        self._path = path
        self._writes = writes
        self.run_id = run_id
        self.last_segment = last_segment
        self.is_restart = last_segment > 0

    @classmethod
    def open(cls, directory: Path, run_id: str | None = None) -> "Identity":
        """The run of this `.lossguard` folder; a new one when there is none, or when `run_id` names another. Never raises."""
        path = directory / FILE_NAME
        wanted = _FORBIDDEN.sub("-", run_id)[:64].strip(".-") if run_id else ""
        was_there = path.exists()  # asked first: what is there only afterwards is another rank's, and not to be replaced
        found = _read(path)
        if found is not None and wanted in ("", found[0]):
            return cls(path, *found)
        identity = cls(path, wanted or uuid.uuid4().hex, 0)
        if found is None and not was_there:
            return identity._create()
        identity._save()
        return identity

    def to_bytes(self) -> bytes:
        """For the other ranks of the training."""
        return self._content()

    @classmethod
    def of_rank_0(cls, told: bytes, directory: Path) -> "Identity":
        """The run as rank 0 has told it; the file is rank 0's, and never written here."""
        content = json.loads(told)
        return cls(directory / FILE_NAME, content["run_id"], content["last_segment"], writes=False)

    def next_segment(self) -> int:
        """Opens the next segment: the highest so far plus one, on disk before it is given."""
        with _alone(self._path):
            if (found := _read(self._path)) is not None and found[0] == self.run_id:  # another process may have gone on with it
                self.last_segment = max(self.last_segment, found[1])
            return self.reserve_segment(self.last_segment + 1)

    def reserve_segment(self, segment: int) -> int:
        """Remembers a segment whose number was fixed elsewhere; the number."""
        if segment > self.last_segment:
            self.last_segment = segment
            self._save()
        return segment

    def _create(self) -> "Identity":
        """Puts the file there unless another rank was quicker, whose run this then is."""
        draft = self._path.with_name(f".{FILE_NAME}.{uuid.uuid4().hex}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(draft, self._content())
            crash.reach("identity.before_link")
            try:
                os.link(draft, self._path)
                crash.reach("identity.linked")
            finally:
                draft.unlink()
        except FileExistsError:
            found = _read(self._path)
            return Identity(self._path, *found) if found else self
        except OSError:  # file systems without hard links
            self._save()
        return self

    def _save(self) -> None:
        if not self._writes:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, self._content())
        except OSError as error:
            Voice().say("identity", f"{self._path} cannot be written ({error.strerror}); a restart will look like a new run")

    def _content(self) -> bytes:
        return json.dumps({"run_id": self.run_id, "last_segment": self.last_segment}).encode()


def new_run_id(directory: Path, *, resuming: bool) -> str | None:
    """An id of its own for a training that starts from scratch where another run lies; None to take up what is there."""
    return uuid.uuid4().hex if not resuming and (directory / FILE_NAME).exists() else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps other processes from the file, where the file system can do that; waits a second for them at most."""
    handle = None
    with suppress(OSError, ImportError):
        import fcntl

        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(0.005)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _read(path: Path) -> tuple[str, int] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        run_id, segment = content["run_id"], content["last_segment"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        Voice().say("identity", f"{path} cannot be read ({type(error).__name__}); this becomes a new run")
        return None
    if isinstance(run_id, str) and run_id and not _FORBIDDEN.search(run_id) and type(segment) is int and 0 <= segment < MAX_STEP:
        return run_id, segment
    Voice().say("identity", f"{path} does not hold a run; this becomes a new run")
    return None
