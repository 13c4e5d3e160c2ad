"""Crash labels: the named points on a record's way at which a test lets the process die.

    LOSSGUARD_CRASH_AT=segment.written       SIGKILL of this very process when it gets there
    LOSSGUARD_CRASH_AT=segment.written:3     the third time
    LOSSGUARD_CRASH_LOG=FILE                 a line for each label that is reached: label, count, monotonic nanoseconds, pid

Both sides have them, so they live where both may look. Neither variable set, `reach` is one comparison. It is called by the
threads that write, send and store; never by `log()`, and never while a lock is held that another process waits for.

`LABELS` is the whole list, and a test holds it against the source.
"""

import itertools
import os
import signal
import time
from collections import defaultdict
from pathlib import Path

LABELS = {
    # the trainer's files
    "file.draft_written": "a file that replaces another is written beside it, and not on the disk yet",
    "file.draft_synced": "it is finished (on the disk, where that was asked for), under its draft's name",
    "file.renamed": "it has the name",
    "journal.before_write": "the journal of commands has news that is not written down",
    "journal.written": "it is written down, and not acted on",
    "stop.intended": "a stop is in the journal, and nothing was done about it",
    "stop.saved": "its checkpoint is written by the trainer, and not inspected",
    "stop.answered": "its end is said, and not in the journal",
    "rollback.intended": "a rollback is in the journal; data and training are as they were",
    "rollback.planned": "what becomes of the data is noted down",
    "rollback.ready": "all is ready to leave the loop; other ranks were not asked",
    "rollback.half_loaded": "the weights of its target are loaded, and the optimizer is not",
    "rollback.loaded": "the checkpoint is loaded, and its segment not opened",
    "rollback.opened": "its segment is in the journal, and not told",
    "rollback.first_step_done": "the first step of its segment is done",
    "rollback.answered": "its end is said, and not in the journal",
    "identity.before_link": "the run's id is on the disk and not in its place",
    "identity.linked": "the run's id is in its place; its draft is still there",
    "spool.folder_made": "the folder of a new spool is there, empty",
    "spool.locked": "its lock is held; it has no head yet",
    "spool.head_written": "its head is there; it has no segment file yet",
    "segment.created": "a segment file is there, empty",
    "segment.before_write": "frames are made and not written",
    "segment.written": "they are written and not noted",
    "segment.before_cut_back": "a write broke off half way; what it left is still there",
    "segment.cut_back": "what it left is cut off again",
    "segment.closed": "a full segment file is closed and waits to be synced",
    "sync.before": "a segment file is about to be synced",
    "sync.file_synced": "its content is on the disk, its name perhaps not",
    "sync.folder_synced": "its name is on the disk too",
    "tail.before_cut": "a spool of a dead process has a torn tail",
    "tail.cut": "the torn tail is cut",
    "damage.before_keep": "damaged bytes are found and not kept aside yet",
    "damage.kept": "damaged bytes are kept aside",
    "thin.before": "the oldest segment file is about to give up its points",
    "thin.done": "it is replaced by one without them",
    "refused.before_keep": "the server refused a record, which is not kept aside yet",
    "refused.kept": "it is kept aside; nothing was sent in its place yet",
    "tend.before_unlink": "a segment file is wholly acknowledged",
    "tend.unlinked": "it is deleted",
    "end.before_unlink": "the server has everything; all files of the spool are there",
    "end.segments_unlinked": "its segment files are deleted",
    "end.head_unlinked": "its head is deleted, or has another name where something was kept aside",
    "end.lock_unlinked": "its lock is deleted, too",
    "end.folder_removed": "the folder is gone, where nothing was kept aside",
    # a checkpoint's commit mark
    "manifest.withdrawn": "a checkpoint that is saved anew has lost its manifest; nothing of it is written yet",
    "manifest.data_synced": "a checkpoint is inspected, and its files are on the disk; it has no manifest",
    "manifest.drafted": "the manifest is on the disk, under its draft's name",
    "manifest.renamed": "it has its name, which is perhaps not on the disk",
    "manifest.folder_synced": "its name is on the disk too; nobody was told of the checkpoint",
    "manifest.noted": "it is noted that the server is told of the checkpoint, which it is not yet",
    # a save
    "save.began": "there is room for a checkpoint, what lay in its place is moved away, and nothing of it is written yet",
    "save.old_set_aside": "an older checkpoint of the same step has left its place, which is not on the disk yet",
    "save.old_put_back": "a save came to nothing, and the older checkpoint is in its place again",
    "save.written": "a trainer has written all of a checkpoint, or what the disk took of it",
    "save.draft_made": "the folder of a loop's checkpoint is there under its draft's name, empty",
    "save.file_written": "one of its files is written, and not on the disk yet",
    "save.file_synced": "that file is on the disk, its name perhaps not",
    "save.draft_synced": "all of its files are in it, and their names on the disk",
    "save.renamed": "it has its name",
    "save.folder_synced": "its name is on the disk too; a restart goes on from an older one",
    # a checkpoint that is removed
    "rotate.before_rename": "a checkpoint is about to be moved into the trash",
    "rotate.renamed": "it is there, which is not on the disk yet",
    "rotate.folder_synced": "it is on the disk; all files are still in it",
    "rotate.manifest_unlinked": "its manifest is deleted, nothing else",
    "rotate.unlinked": "it is gone",
    # the trainer's requests
    "announce.before_send": "a run start is about to be sent",
    "announce.answered": "its answer is read and not acted on",
    "batch.before_send": "a batch is cut and about to be sent",
    "request.written": "the bytes of a request have left; no answer yet",
    "batch.answered": "the answer to a batch is read and not acted on",
    "ack.before": "the server has more; that is not noted yet",
    "ack.done": "it is noted",
    # the server
    "server.start_received": "the body of a run start is read",
    "server.start_before_store": "a run start is about to be stored",
    "server.start_stored": "it is stored and not committed",
    "server.batch_received": "the body of a batch is read",
    "server.batch_before_store": "a batch is about to be stored",
    "server.points_stored": "some of its points are stored, the rest is not",
    "server.seal_deleted": "points are on their way from batches to a chunk: deleted there, not yet here",
    "server.sealed": "they have arrived",
    "server.batch_stored": "the whole batch is stored and not committed",
    "server.before_commit": "a group of writes is about to be committed",
    "server.committed": "it is committed; nobody knows yet",
    "server.before_reply": "a reply is about to be written",
    "server.reply_sent": "it has left",
}


class _Plan:
    """Where to die, and where to write down what was reached."""

    def __init__(self, at: str, log: str) -> None:
        self._label, _, count = at.partition(":")
        self._count = int(count or 1)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else None
        self._counters: defaultdict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))

    def reach(self, label: str) -> None:
        count = next(self._counters[label])
        if self._log is not None:
            os.write(self._log, f"{label} {count} {time.monotonic_ns()} {os.getpid()}\n".encode())
        if label == self._label and count == self._count:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


_plan: _Plan | None = None


def arm(at: str = "", log: Path | str = "") -> None:
    """From now on the process dies at `at` ("label" or "label:n"), and writes what it reaches to `log`. Both empty: neither.

    Raises:
        ValueError: there is no such label, or n is no number.
        OSError: the log cannot be opened.
    """
    global _plan  # noqa: PLW0603  one process, one plan
    if at and at.partition(":")[0] not in LABELS:
        raise ValueError(f"there is no crash label {at!r}")
    _plan = _Plan(at, str(log)) if at or log else None


def reach(label: str) -> None:
    """Tells that the process is at `label`. Thread: any but the training thread."""
    if _plan is not None:
        _plan.reach(label)


if "LOSSGUARD_CRASH_AT" in os.environ or "LOSSGUARD_CRASH_LOG" in os.environ:
    arm(os.environ.get("LOSSGUARD_CRASH_AT", ""), os.environ.get("LOSSGUARD_CRASH_LOG", ""))
