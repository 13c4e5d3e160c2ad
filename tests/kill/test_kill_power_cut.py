"""A power cut, simulated: what was not synced is gone, all of it.

`Disk` stands between the spool and the real folder. At each `fsync` of a file it keeps that file's bytes; at each `fsync` of a
folder it keeps which names stood in it and for which files. `cut` builds the folder that these say: a name that was never synced
is gone, a file that was never synced is empty. A real disk keeps more than that (the kernel writes by itself), and may keep
parts in any order; sectors that are torn are the affair of `test_spool_damage`.
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

from trainer_agent.recording import spool as spool_module
from trainer_agent.recording.entries import Points, last_seq
from trainer_agent.recording.spool import Spool
from trainer_agent.recording.syncer import Syncer
from trainer_agent.wire.messages import Dropped, Numbered, RunStart

START = RunStart("run", "inc", "p", "n")


class Disk:
    """What would be there after a power cut."""

    def __init__(self, monkeypatch) -> None:
        self.files: dict[int, bytes] = {}
        self.folders: dict[str, dict[str, int]] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        place = Path(f"/proc/self/fd/{handle}").readlink()
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            self.folders[str(place)] = {entry.name: entry.inode() for entry in os.scandir(place)}
        else:
            self.files[found.st_ino] = place.read_bytes()

    def cut(self, folder: Path, to: Path) -> None:
        """Makes `to` what is left of `folder`."""
        to.mkdir(parents=True)
        for name, inode in self.folders.get(str(folder), {}).items():
            (to / name).write_bytes(self.files.get(inode, b""))


def write(spool: Spool, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        spool.write([Points(seq, 1.0, 1, seq, ("train/loss",), (1.0 / seq,))])


def settle(spool: Spool) -> None:
    """Until the disk has what it was asked for."""
    with spool._syncer._changed:
        assert spool._syncer._changed.wait_for(lambda: not spool._syncer._paths and not spool._syncer._is_busy, 30)


def cut_power(tmp_path: Path, disk: Disk) -> set[int]:
    """Writes ten files' worth, has the power cut, and gives the numbers that were lost and lay before the newest file."""
    folder = tmp_path / "out" / ".lossguard" / "spool" / "inc"
    spool = Spool(folder, START, segment_bytes=700)
    write(spool, 1, 1)
    settle(spool)  # what the head's sync brings along besides
    write(spool, 2, 120)
    settle(spool)
    newest = int(max(folder.glob("*.seg")).stem)
    assert len(list(folder.glob("*.seg"))) >= 8
    disk.cut(folder, tmp_path / "after" / "inc")
    spool.abandon()
    adopted = Spool.adopt(tmp_path / "after" / "inc")
    kept = {
        number
        for entry in adopted.entries(1)
        if not (isinstance(entry, Numbered) and isinstance(entry.record, Dropped))
        for number in range(entry.seq, last_seq(entry) + 1)
    }
    adopted.abandon()
    return set(range(1, newest)) - kept


def test_a_power_cut_costs_at_most_the_newest_segment_file(tmp_path, monkeypatch):
    assert cut_power(tmp_path, Disk(monkeypatch)) == set()


def test_a_spool_that_does_not_sync_its_full_files_is_caught(tmp_path, monkeypatch):
    ask = Syncer.ask
    monkeypatch.setattr(Syncer, "ask", lambda self, path, folders=1: ask(self, path, folders) if path.suffix != ".seg" else None)
    assert len(cut_power(tmp_path, Disk(monkeypatch))) > 50


def test_a_spool_that_syncs_its_files_and_not_their_names_is_caught(tmp_path, monkeypatch):
    ask = Syncer.ask
    monkeypatch.setattr(Syncer, "ask", lambda self, path, folders=1: ask(self, path, 0 if path.suffix == ".seg" else folders))
    assert len(cut_power(tmp_path, Disk(monkeypatch))) > 50


def test_what_is_left_at_the_end_is_synced_and_all_folders_above_it_are(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    folder = tmp_path / "out" / ".lossguard" / "spool" / "inc"
    spool = Spool(folder, START)
    write(spool, 1, 50)
    spool.close()
    for place in (folder, *list(folder.parents)[:3]):
        assert str(place) in disk.folders
    disk.cut(folder, tmp_path / "after" / "inc")
    adopted = Spool.adopt(tmp_path / "after" / "inc")
    assert adopted.last_seq == 50
    adopted.close()


def test_a_disk_that_never_answers_a_sync_holds_up_neither_the_writes_nor_the_end(tmp_path, monkeypatch):
    import threading
    import time

    answer = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: answer.wait(60))
    monkeypatch.setattr(spool_module, "SYNC_SECONDS", 0.2)
    folder = tmp_path / "out" / "inc"
    spool = Spool(folder, START, segment_bytes=700)
    began = time.monotonic()
    write(spool, 1, 120)
    assert len(list(folder.glob("*.seg"))) >= 8
    spool.close()
    assert time.monotonic() - began < 20.0
    answer.set()
    shutil.rmtree(folder)


@pytest.mark.parametrize("count", [1, 3])
def test_a_sync_that_fails_is_not_a_trouble_for_the_writes(tmp_path, monkeypatch, count):
    def refuse(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    spool = Spool(tmp_path / "inc", START, segment_bytes=100)
    write(spool, 1, 20 * count)
    assert spool.trouble == ""
    spool.close()
    assert Spool.adopt(tmp_path / "inc").last_seq == 20 * count
