"""A disk that is full: the training goes on, older checkpoints stay, it is told, and other errors are nobody else's."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from retention_kit import At, Book, Inspected, Rows, Training, checkpoints, loop_tape, names, small_disk, tape, trainer
from transformers import Trainer, TrainerCallback

from trainer_agent.checkpoints import disk_space
from trainer_agent.checkpoints.disk_space import disk_fault, lacks_room
from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.wire.messages import SaveFailed
from trainer_agent.wire.vocabulary import CheckpointState, CommandState

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taped(monkeypatch, tmp_path):
    return tape(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def size(tmp_path_factory) -> int:
    """What one checkpoint of the tiny model takes on a disk, in bytes."""
    folder = tmp_path_factory.mktemp("size")
    trainer(folder, max_steps=1, save_steps=1).train()
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in (folder / "checkpoint-1").rglob("*"))


def failures(taped) -> list[SaveFailed]:
    return taped.of(SaveFailed)


def test_ten_saves_in_the_room_for_one_and_a_half(taped, tmp_path, size, figure, capsys):
    book = Book()
    with small_disk(tmp_path / "disk", int(1.5 * size)) as disk:
        limited = At(3, lambda **_: None if disk.is_mounted else disk.fill(0, 30_000))
        guarded_train(trainer(disk.folder, book, Inspected(taped), limited, max_steps=20, save_steps=2, save_total_limit=1))
        figure("F51", "sound checkpoints after ten saves in the room for 1.5, of 1", len(checkpoints(disk.folder)), at_least=1)
        assert names(disk.folder) == {"checkpoint-2"}
        assert taped.checkpoints[0].state is CheckpointState.COMPLETE
    figure("F51", "training steps lost by them", 20 - len(book.steps), at_most=0)
    figure("F51", "times one cause was told", len(failures(taped)), at_least=1, at_most=1)
    assert "it was not begun: " in failures(taped)[0].reason
    assert capsys.readouterr().err.count("no checkpoint of step") == 1


@pytest.mark.parametrize("share", [0.02, 0.4, 0.97])
def test_a_disk_that_is_full_in_the_middle_of_a_save_leaves_nothing_of_it(taped, tmp_path, size, share, figure, capsys):
    """The first save does not know its size, so it meets the end of the disk, in its first file or its last."""
    book = Book()
    with small_disk(tmp_path / "disk", 4 * size) as disk:
        disk.fill(int(share * size), 30_000 if share < 0.5 else 60_000)
        guarded_train(trainer(disk.folder, book, At(7, lambda **_: disk.empty()), max_steps=10, save_steps=2))
        assert names(disk.folder) == {"checkpoint-8", "checkpoint-10"}
        assert checkpoints(disk.folder) == [8, 10]
    figure("F51", "training steps lost to a disk full in the middle of a save", 10 - len(book.steps), at_most=0)
    assert [each.step for each in failures(taped)] == [2]
    assert failures(taped)[0].reason in {
        "no space left on device",
        "file too large",
        "the disk did not take all that was written",
    }
    assert "older ones are kept, the training goes on:" in capsys.readouterr().err
    assert [each.step for each in taped.checkpoints] == [8, 10]


class Told(TrainerCallback):
    """A callback that wants the checkpoint it is told of, as one that uploads it does."""

    def __init__(self, folder):
        self.folder, self.steps = folder, []

    def on_save(self, args, state, control, **kwargs):
        assert (self.folder / f"checkpoint-{state.global_step}" / "trainer_state.json").exists()
        self.steps.append(state.global_step)


class Failing(Trainer):
    """Its saves at some steps raise."""

    at: dict = {}  # noqa: RUF012  set by the tests

    def _save_optimizer_and_scheduler(self, output_dir):
        if self.state.global_step in self.at:
            raise self.at[self.state.global_step]
        super()._save_optimizer_and_scheduler(output_dir)


def test_callbacks_hear_of_checkpoints_that_are_there(taped, tmp_path):
    told = Told(tmp_path)
    made = trainer(tmp_path, told, kind=Failing, max_steps=6, save_steps=2)
    made.at = {4: OSError(errno.EIO, "Input/output error")}
    guarded_train(made)
    assert told.steps == [2, 6]
    assert [each.reason for each in failures(taped)] == ["input/output error"]
    assert "_save_checkpoint" not in vars(made)
    assert "on_save" not in vars(made.callback_handler)


class MineError(RuntimeError):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        MineError("PytorchStreamWriter failed"),
        RuntimeError("CUDA error: out of memory"),
        PermissionError(errno.EACCES, "Permission denied", "/somewhere"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        OSError(errno.EMFILE, "Too many open files"),
        OSError("mine"),
        KeyError("mine"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_error_of_a_save_goes_on_its_way_unchanged(taped, tmp_path, error):
    made = trainer(tmp_path, kind=Failing, max_steps=6, save_steps=2)
    made.at = {4: error}
    with pytest.raises(type(error)) as raised:
        guarded_train(made)
    assert raised.value is error
    assert raised.value.__cause__ is None
    assert not failures(taped)
    assert "_save_checkpoint" not in vars(made)


def test_the_disks_errors_are_known_by_their_number_or_by_where_they_come_from(tmp_path):
    with small_disk(tmp_path / "disk", 16_384) as disk:
        disk.fill(0, 1000)
        for write in (
            lambda: torch.save(torch.zeros(9999), disk.folder / "a"),
            lambda: (disk.folder / "b").write_bytes(b"x" * 9999),
            lambda: save_into(disk.folder / "c"),
        ):
            with pytest.raises((OSError, RuntimeError)) as raised:
                write()
            assert disk_fault(raised.value)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS, errno.ESTALE):
        assert disk_fault(OSError(number, "x")) == os.strerror(number).lower()
    assert disk_fault(Exception("I/O error: No space left on device (os error 28)")) == "no space left on device"
    assert not disk_fault(Exception("os error 28"))
    assert not disk_fault(Exception("refused (os error 111)"))


def save_into(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        torch.save(torch.zeros(9999), file)


def test_a_best_that_could_not_be_saved_is_not_the_best(taped, tmp_path):
    class Judged(Failing):
        def evaluate(self, *args, **kwargs):
            metrics = {"eval_loss": {2: 3.0, 4: 1.0, 6: 2.0, 8: 4.0}[self.state.global_step]}
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    made = trainer(
        tmp_path,
        kind=Judged,
        eval_dataset=Rows(8),
        max_steps=8,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
    )
    made.at = {4: OSError(errno.ENOSPC, "No space left on device")}
    guarded_train(made)
    assert made.state.best_model_checkpoint == str(tmp_path / "checkpoint-6")
    assert made.state.best_metric == 2.0


def test_a_save_again_that_fails_leaves_the_older_checkpoint_of_its_step_as_it_was(taped, tmp_path):
    made = trainer(tmp_path, At(7, lambda **_: taped.rollback(2)), kind=Failing, max_steps=6, save_steps=2)
    made.args.max_steps = 8

    def fail(**_):
        made.at = {4: OSError(errno.ENOSPC, "No space left on device")}

    made.add_callback(At(7, fail))
    guarded_train(made)
    facts = {each.step: each for each in taped.checkpoints if each.state is CheckpointState.COMPLETE}
    assert checkpoints(tmp_path) == [2, 4, 6, 8]
    assert facts[4].segment == 1
    assert facts[6].segment == facts[8].segment == 2
    assert not list(tmp_path.glob(".lossguard-old-*"))


def test_a_stop_whose_save_fails_stops_all_the_same_and_says_why(taped, tmp_path):
    made = trainer(tmp_path, At(4, taped.stop), kind=Failing, max_steps=9)
    made.at = {4: OSError(errno.ENOSPC, "No space left on device")}
    guarded_train(made)
    assert made.state.global_step == 4
    assert taped.reports[-1].state is CommandState.SUCCEEDED
    assert "no space left on device" in taped.reports[-1].reason


def test_the_callback_alone_withholds_a_save_that_will_not_fit(taped, tmp_path, monkeypatch):
    made = trainer(tmp_path, LossGuardCallback(), Inspected(taped), max_steps=6, save_steps=2)
    usage = shutil.disk_usage(tmp_path)
    made.add_callback(At(3, lambda **_: monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda _: usage._replace(free=9))))
    made.train()
    assert checkpoints(tmp_path) == [2]
    assert [each.step for each in failures(taped)] == [4]


def test_a_limit_on_the_size_of_files_is_asked_too():
    code = """
        import resource
        from pathlib import Path
        from trainer_agent.checkpoints.disk_space import lacks_room
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        assert not lacks_room(Path("."), 1, 1000)
        print(lacks_room(Path("."), 1, 1001))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "a file may have 1 kB here, and the largest of a checkpoint has 1 kB\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_folder_that_cannot_be_asked_withholds_nothing(tmp_path):
    assert not lacks_room(tmp_path / "missing", 10**18)
    assert "are free, and a checkpoint needs" in lacks_room(tmp_path, 10**18)


def test_a_loop_on_a_full_disk_goes_on_and_tells_each_cause_once(monkeypatch, tmp_path, capsys):
    taped = loop_tape(monkeypatch, tmp_path)
    training = Training()
    with small_disk(tmp_path / "disk", 400_000) as disk:
        with training.watch(disk.folder, save_every=2, keep=1) as run:
            for step in run.steps(12):
                if step == 3:
                    disk.fill(8192, 2048)
                if step == 9:
                    disk.empty()
                loss, norm = training.update(training.draw())
                run.step_ended(loss=loss, grad_norm=norm)
        assert checkpoints(disk.folder) == [2, 10, 12]
        assert names(disk.folder) == {"checkpoint-2", "checkpoint-10", "checkpoint-12"}
    told = [each.reason for each in failures(taped)]
    assert failures(taped)[0].step == 4
    assert len(told) <= 2, "once as it met the end of the disk, and once as it was not begun"
    assert len({each.startswith("it was not begun") for each in told}) == len(told)
    assert capsys.readouterr().err.count("no checkpoint of step") == len(told)
