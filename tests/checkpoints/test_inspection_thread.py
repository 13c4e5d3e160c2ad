"""The inspector's thread: data on the disk before the mark, an eye on what was saved before, and what a restart tells."""

import errno
import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inspection_kit import STEP, flip, of_loop

from trainer_agent.checkpoints import vigil as vigil_module
from trainer_agent.checkpoints.directories import Catalogue
from trainer_agent.checkpoints.inspection import MANIFEST, Save
from trainer_agent.checkpoints.inspector import Inspector
from trainer_agent.checkpoints.told import Entry, place, read, write
from trainer_agent.checkpoints.vigil import FOREIGN, GONE, UNFINISHED, Vigil
from trainer_agent.scanning.one_pass import Cancelled
from trainer_agent.wire import crash
from trainer_agent.wire.messages import CheckpointSaved
from trainer_agent.wire.vocabulary import CheckpointState

torch.set_num_threads(1)
COMPLETE, CORRUPT, DELETED = CheckpointState.COMPLETE, CheckpointState.CORRUPT, CheckpointState.DELETED


@pytest.fixture(scope="session")
def original(tmp_path_factory) -> Path:
    return of_loop(tmp_path_factory.mktemp("original"))


class Life:
    """One process of a run, as the training thread sees it: what it saves, and what was told."""

    def __init__(self, root: Path, original: Path) -> None:
        self.root, self._original, self.told = root, original, []
        self.inspector = Inspector(self.told.append, root, "run")

    def save(self, step: int) -> Path:
        folder = self.root / f"checkpoint-{step}"
        self.inspector.withdraw(folder)
        shutil.copytree(self._original, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        self.inspector.submit(Save("run", folder, 1, step, 1000.0 + step))
        assert self.inspector.wait(60)
        return folder

    def look(self) -> None:
        self.inspector.look()
        assert self.inspector.wait(60)

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.told) < count:
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def settle(self) -> None:
        """Until all that was due is read again, too."""
        deadline = time.monotonic() + 60
        while self.inspector._vigil.is_due or not self.inspector.wait(1):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def said(self) -> list[tuple]:
        return [(facts.checkpoint_id, facts.state, facts.problem) for facts in self.told]

    def end(self) -> None:
        thread = self.inspector._thread
        self.inspector.close()
        if thread is not None:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def live(tmp_path, original):
    lives = []

    def begin(*, again: bool = False) -> Life:
        if lives:
            lives[-1].end()
        lives.append(Life(tmp_path, original))
        if again:
            lives[-1].inspector.take_up()
            assert lives[-1].inspector.wait(60)
        return lives[-1]

    yield begin
    lives[-1].end()


# --- the mark


def test_the_mark_comes_to_the_disk_after_all_that_it_speaks_of(live, tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace

    def seen_fsync(handle):
        events.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink())))
        fsync(handle)

    def seen_replace(self, target):
        events.append(("name", str(target)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    folder = live().save(STEP)
    at = events.index(("name", str(folder / MANIFEST)))
    before, after = {path for kind, path in events[:at] if kind == "sync"}, {path for kind, path in events[at:] if kind == "sync"}
    files = {str(path) for path in folder.iterdir() if path.name != MANIFEST}
    assert before >= files | {str(folder)}
    assert any(MANIFEST in path for path in before - files)
    assert after >= {str(folder), str(tmp_path)}


def test_a_file_that_the_disk_does_not_take_makes_the_checkpoint_corrupt(live, monkeypatch):
    fsync = os.fsync

    def broken(handle):
        if str(Path(f"/proc/self/fd/{handle}").readlink()).endswith("optimizer.pt"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", broken)
    life = live()
    life.save(STEP)
    assert life.told[0].state is CORRUPT
    assert life.told[0].problem.startswith("optimizer.pt does not get to the disk")


def test_every_write_of_the_mark_has_its_label_in_its_order(live, tmp_path):
    crash.arm(log=tmp_path / "log")
    try:
        life = live()
        life.save(STEP)
        life.save(STEP)
    finally:
        crash.arm()
    reached = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    marks = [label for label in reached if label.startswith("manifest.")]
    once = ["manifest.data_synced", "manifest.drafted", "manifest.renamed", "manifest.folder_synced", "manifest.noted"]
    assert marks == ["manifest.withdrawn", *once, "manifest.withdrawn", *once]


def test_the_manifest_holds_what_the_run_knew_at_the_save(tmp_path, original):
    folder = tmp_path / f"checkpoint-{STEP}"
    shutil.copytree(original, folder)
    done: list[CheckpointSaved] = []
    inspector = Inspector(done.append)
    signals = {"train/loss": float("nan"), "amp/loss_scale": 1024.0}
    inspector.submit(Save("run", folder, 3, STEP, 5.0, world_size=1, signals=signals, vocabulary="64 tokens, abc"))
    assert inspector.wait(60)
    inspector.close()
    told = json.loads((folder / MANIFEST).read_text())["checkpoint"]
    assert told["signals"] == {"train/loss": "NaN", "amp/loss_scale": 1024.0}
    assert (told["vocabulary"], told["world_size"], told["segment"]) == ("64 tokens, abc", 1, 3)
    assert told["versions"].keys() >= {"python", "torch", "lossguard"}
    assert {file["path"] for file in told["files"]} == {path.name for path in original.iterdir()}


# --- an eye on the others


def test_what_changes_after_it_was_saved_is_found_at_the_next_save_and_told_once_and_its_manifest_stays(live):
    life = live()
    folder = life.save(2)
    manifest = (folder / MANIFEST).read_bytes()
    flip(folder / "optimizer.pt")
    life.save(4)
    life.look()
    life.until(3)
    life.save(6)
    life.look()
    life.settle()
    assert life.said[2] == ("checkpoint-2", CORRUPT, "optimizer.pt has changed since it was saved")
    assert [name for name, *_ in life.said] == ["checkpoint-2", "checkpoint-4", "checkpoint-2", "checkpoint-6"]
    assert (folder / MANIFEST).read_bytes() == manifest
    assert [facts.state for facts in life.inspector.take_done()] == [COMPLETE, COMPLETE, CORRUPT, COMPLETE]


def test_a_change_that_its_stat_hides_is_found_when_its_turn_comes(live):
    """The one that was not read longest is read again after each save."""
    life = live()
    folders = [life.save(step) for step in (2, 4, 6)]
    path = folders[1] / "pytorch_model.bin"
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for step in (8, 10, 12):
        life.save(step)
        life.look()
        life.settle()
    assert ("checkpoint-4", CORRUPT, "pytorch_model.bin has changed since it was saved") in life.said


def test_a_checkpoint_that_vanishes_is_told_as_deleted_once(live):
    life = live()
    shutil.rmtree(life.save(2))
    life.save(4)
    for _ in range(3):
        life.look()
    assert life.said[2:] == [("checkpoint-2", DELETED, GONE)]


def test_what_the_run_itself_removes_or_puts_back_is_not_told_as_gone(live):
    life = live()
    folder = life.save(2)
    life.save(4)
    life.inspector.let_go("checkpoint-2")
    folder.rename(folder.with_name("aside"))
    life.look()
    folder.with_name("aside").rename(folder)
    life.inspector.keep("checkpoint-2")
    life.look()
    life.inspector.let_go("checkpoint-2")
    gone = life.told[0]
    shutil.rmtree(folder)
    life.inspector.forget(gone)
    life.inspector.keep("checkpoint-2")
    life.look()
    assert [name for name, *_ in life.said] == ["checkpoint-2", "checkpoint-4"]
    assert list(read(life.root, "run")) == ["checkpoint-4"]


def test_reading_again_gives_way_to_a_save_and_is_made_up_for(live, monkeypatch):
    """The first look lasts until a save has come in between."""
    reading, changed_file = threading.Event(), vigil_module.changed_file
    given_up = []

    def slow(facts, directory, give_up):
        reading.set()
        deadline = time.monotonic() + 60
        while not given_up:
            assert time.monotonic() < deadline
            if give_up():
                given_up.append(facts.checkpoint_id)
                raise Cancelled
            time.sleep(0.01)
        return changed_file(facts, directory, give_up)

    monkeypatch.setattr(vigil_module, "changed_file", slow)
    life = live()
    life.save(2)
    life.look()
    assert reading.wait(60)
    life.save(4)
    life.settle()
    assert given_up == ["checkpoint-2"]
    assert life.inspector._vigil._entries["checkpoint-2"].verified_at > 0


# --- between two processes


def test_what_vanished_between_two_processes_is_told_as_deleted_at_the_next_start(live):
    life = live()
    life.save(2)
    shutil.rmtree(life.save(4))
    again = live(again=True)
    assert sorted(again.said) == [("checkpoint-2", COMPLETE, ""), ("checkpoint-4", DELETED, GONE)]
    assert [facts.step for facts in again.told if facts.state is DELETED] == [4]
    third = live(again=True)
    assert sorted(third.said) == sorted(again.said), "who heard the one before?"
    third.save(4)
    assert [name for name, *_ in live(again=True).said] == ["checkpoint-2", "checkpoint-4"]


def test_why_one_was_removed_is_told_by_later_processes_too(live):
    life = live()
    shutil.rmtree(life.save(4))
    life.inspector.forget(replace(life.told[-1], state=DELETED, problem="removed"))
    life.settle()
    for _ in range(2):
        assert live(again=True).said == [("checkpoint-4", DELETED, "removed")]


def test_what_was_being_saved_anew_when_the_process_ended_is_told_as_corrupt(live):
    life = live()
    folder = life.save(2)
    life.inspector.withdraw(folder)
    assert live(again=True).said == [("checkpoint-2", CORRUPT, UNFINISHED)]
    life = live()
    folder = life.save(2)
    (folder / MANIFEST).write_text("{")
    assert live(again=True).said == [("checkpoint-2", CORRUPT, FOREIGN)]


def test_what_changed_between_two_processes_is_found_and_remembered(live):
    life = live()
    folder = life.save(2)
    flip(folder / "scheduler.pt")
    again = live(again=True)
    again.until(2)
    assert again.said == [
        ("checkpoint-2", COMPLETE, ""),
        ("checkpoint-2", CORRUPT, "scheduler.pt has changed since it was saved"),
    ]
    again.settle()
    assert live(again=True).said == [("checkpoint-2", CORRUPT, "scheduler.pt has changed since it was saved")]
    catalogue = Catalogue(life.root, "run")
    catalogue.load()
    assert catalogue.facts("checkpoint-2").state is CORRUPT
    third = live()
    third.save(2)  # anew, so what was found of the old one says nothing of it
    assert live(again=True).said == [("checkpoint-2", COMPLETE, "")]


@pytest.mark.parametrize(
    "content", [b"", b"[" * 100_000, b'{"run_id": "run", "checkpoints": {"a": 3}}', b'{"run_id": "run"}', b"\xff"]
)
def test_a_list_that_cannot_be_read_is_an_empty_one(tmp_path, content):
    place(tmp_path).parent.mkdir()
    place(tmp_path).write_bytes(content)
    assert read(tmp_path, "run") == {}


def test_the_list_of_another_run_says_nothing(tmp_path):
    entry = Entry(1, 2, 3.0, 4.0, {"a": (5, 6)}, "bad")
    write(tmp_path, "run", {"checkpoint-2": entry}, {})
    assert read(tmp_path, "run") == {"checkpoint-2": entry}
    assert read(tmp_path, "other") == {}
    vigil = Vigil(tmp_path, "other", pytest.fail, lambda _: False)
    vigil.take_up()
    vigil.look()


def test_an_earlier_process_is_no_work_of_this_save(live, tmp_path, original):
    """Through the inspector: an optimizer's state that lay there is not taken for this save's."""
    folder = tmp_path / f"checkpoint-{STEP}"
    shutil.copytree(original, folder)
    old = time.time() - 1000
    for path in folder.iterdir():
        os.utime(path, (old, old))
    life = live()
    life.inspector.withdraw(folder)
    for path in folder.iterdir():
        if path.name != "optimizer.pt":
            path.write_bytes(path.read_bytes())
    life.inspector.submit(Save("run", folder, 1, STEP, 1.0))
    assert life.inspector.wait(60)
    assert life.told[0].state is COMPLETE
    assert "optimizer" not in life.told[0].parts
    assert life.told[0].problem.startswith("optimizer.pt was there before")
