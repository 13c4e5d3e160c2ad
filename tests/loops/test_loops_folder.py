import json
import os
import shutil
import signal
import warnings
from pathlib import Path

import pytest
import torch
from loops_kit import Tape, Training, loader, tape, until

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.loop.folder import Folder
from trainer_agent.wire.vocabulary import CheckpointState, CommandState, DataMode, SegmentCause


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def values(training: Training) -> list[float]:
    return [value for _, value in training.losses]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != ".lossguard"}


@pytest.mark.parametrize("kind", ["draws", "batches"])
def test_a_resumed_training_equals_an_unbroken_one_to_the_last_bit(taped, tmp_path, kind):
    """Two processes in turn over one folder; the script draws random numbers of its own before its loop."""

    def run_on(training, run, steps):
        torch.rand(3)
        if kind == "draws":
            return training.draws(run.steps(steps), run)
        return training.over(run.batches(loader(), max_steps=steps), run)

    unbroken = Training()
    with unbroken.watch(tmp_path / "unbroken", save_every=7) as run:
        run_on(unbroken, run, 20)
    first = Training()
    with first.watch(tmp_path / "broken", save_every=7) as run:
        run_on(first, run, 14)
    second = Training(seed=9)
    with second.watch(tmp_path / "broken", save_every=7, resume=True) as run:
        assert run.step == 14
        run_on(second, run, 20)
    assert values(first) + values(second) == values(unbroken)
    assert first.rows_of + second.rows_of == unbroken.rows_of
    assert torch.equal(second.weights, unbroken.weights)
    assert taped.monitors[1].start.run_id == taped.monitors[2].start.run_id
    assert [(s.segment, s.cause, s.from_step) for s in taped.segments[1:]] == [
        (1, SegmentCause.START, 0),
        (2, SegmentCause.RESTART, 14),
    ]


def test_resume_in_an_empty_folder_begins_anew(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path, resume=True) as run:
        training.draws(run.steps(3), run)
    assert len(training.losses) == 3


def test_a_new_run_does_not_write_over_the_checkpoints_of_an_earlier_one(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(4), run)
    before = (tmp_path / "checkpoint-4" / MANIFEST).read_bytes()
    with pytest.raises(ValueError, match=r"up to step 4 of an earlier run: resume=True"):
        Training().watch(tmp_path, save_every=2)
    assert (tmp_path / "checkpoint-4" / MANIFEST).read_bytes() == before
    assert len(taped.monitors) == 1


def test_a_restart_after_a_rollback_goes_on_from_its_target_and_keeps_the_skip(taped, tmp_path):
    """The checkpoint of step 6 is newer, and of the stretch that was left."""
    straight = Training(dropout=0.0).draws(range(16))
    first = Training(dropout=0.0, at={7: lambda: taped.rollback(4, data=DataMode.SKIP, skip_from_step=6)})
    with first.watch(tmp_path, save_every=2) as run:
        for _ in run.steps(12, random_batches=True):
            if taped.segments and taped.segments[-1].cause is SegmentCause.ROLLBACK:
                break
            loss, norm = first.update(first.draw())
            run.step_ended(loss=loss, grad_norm=norm)
    second = Training(dropout=0.0, seed=5)
    with second.watch(tmp_path, save_every=2, resume=True) as run:
        assert run.step == 4
        second.draws(run.steps(10, random_batches=True), run)
    assert second.rows_of == straight.rows_of[4:5] + straight.rows_of[7:12]


def test_resume_passes_over_what_is_nothing_to_go_on_from(taped, tmp_path):
    """The newest is cut off, the one before was saved with a weight that is NaN."""
    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(2), run)
    for step in (4, 6):
        shutil.copytree(tmp_path / "checkpoint-2", tmp_path / f"checkpoint-{step}")
        (tmp_path / f"checkpoint-{step}" / MANIFEST).unlink()
        place = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(place | {"global_step": step}))
    weights = torch.load(tmp_path / "checkpoint-4/pytorch_model.bin", weights_only=True)
    weights["0.bias"].fill_(float("nan"))
    torch.save(weights, tmp_path / "checkpoint-4/pytorch_model.bin")
    os.truncate(tmp_path / "checkpoint-6/pytorch_model.bin", 500)
    again = Training()
    with again.watch(tmp_path, resume=True) as run:
        assert run.step == 2
    shutil.rmtree(tmp_path / "checkpoint-2")
    with pytest.raises(ValueError, match=r"no checkpoint in .* is fit to go on from .*cut off.*16 of its weights are not finite"):
        Training().watch(tmp_path, resume=True)


def test_a_checkpoint_of_another_model_is_refused_by_name(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        training.draws(run.steps(2), run)
    other = Training(scaled=False)
    with pytest.raises(ValueError, match=r"checkpoint-2 is not of this training: there is a scaler in it"):
        other.watch(tmp_path, resume=True)
    other = Training()
    other.model[3] = torch.nn.Linear(16, 2)
    with pytest.raises(ValueError, match=r"3.weight is \(1, 16\)"):
        other.watch(tmp_path, resume=True)


def test_old_checkpoints_make_room_but_three_that_are_fit_are_kept(taped, tmp_path):
    """Spread as far as they go, because all of their steps are closer together than trouble is long."""

    def wait():
        until(lambda: all((path / MANIFEST).exists() for path in tmp_path.glob("checkpoint-*")))

    training = Training(at=dict.fromkeys(range(1, 30), wait), poison=frozenset({9, 10, 11, 12, 13, 14}))
    from trainer_agent.policy import Policy

    with training.watch(tmp_path, save_every=2, keep=2, policy=Policy.watch_only()) as run:
        training.draws(run.steps(14), run)
    kept = names(tmp_path)
    assert {"checkpoint-8", "checkpoint-14"} <= kept  # 10, 12, 14 were saved while the loss was NaN
    assert len(kept) <= 5
    assert len(kept & {"checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8"}) >= 3
    gone = {facts.checkpoint_id for facts in taped.checkpoints if facts.state is CheckpointState.DELETED}
    assert gone
    assert not gone & kept


def test_a_save_that_fails_costs_that_checkpoint_and_no_more(taped, tmp_path, monkeypatch, capsys):
    def full(value, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    training = Training()
    with training.watch(tmp_path, save_every=2) as run:
        for step in run.steps(6):
            monkeypatch.setattr(torch, "save", full) if step in (2, 3) else monkeypatch.undo()
            loss, norm = training.update(training.draw())
            run.step_ended(loss=loss, grad_norm=norm)
            if step == 3:
                run.save()
    assert names(tmp_path) == {"checkpoint-2", "checkpoint-6"}
    assert len(training.losses) == 6
    assert "no checkpoint of step 4" in capsys.readouterr().err


def test_the_script_can_save_when_it_wants_to(taped, tmp_path):
    training = Training()
    with training.watch(tmp_path) as run:
        for step in run.steps(5):
            if step == 2:
                run.save()
            loss, norm = training.update(training.draw())
            run.step_ended(loss=loss, grad_norm=norm)
        run.save()
    assert names(tmp_path) == {"checkpoint-3", "checkpoint-5"}


CALLS = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink")


def save_in_a_child(folder: Path, kill_at: int) -> int:
    """Saves step 3 in a child process that is killed before its `kill_at`-th change to the disk; how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads at a fork: the child uses none
        child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = [kill_at]

    def counted(call):
        def step(*args, **kwargs):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return step

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    Folder(folder).write(3, lambda draft: fill(draft, b"new"))
    os._exit(0)


def fill(draft: Path, content: bytes) -> None:
    for name in ("a", "b"):
        with (draft / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def test_a_process_killed_at_any_moment_of_a_save_leaves_the_old_checkpoint_or_the_new_one(tmp_path, figure):
    """A checkpoint that is saved again after a rollback takes the place of the old one of the same step."""
    unusable, at, ended = 0, 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        at += 1
        folder = tmp_path / str(at)
        Folder(folder).write(3, lambda draft: fill(draft, b"old"))
        ended = save_in_a_child(folder, at)
        Folder(folder).tidy()
        held = {path.name: path.read_bytes() for path in (folder / "checkpoint-3").iterdir()}
        unusable += held not in ({"a": b"old", "b": b"old"}, {"a": b"new", "b": b"new"})
        assert names(folder) == {"checkpoint-3"}
    assert ended == 0
    assert at > 10
    figure("F50", "hand-written loop: kills in a save that leave no whole checkpoint", unusable, at_most=0)


def test_a_command_that_was_done_before_the_process_died_is_not_done_again(taped, tmp_path):
    first = Training(at={5: lambda: taped.rollback(2)})
    with first.watch(tmp_path, save_every=2) as run:
        first.draws(run.steps(6), run)
    second = Training(at={1: lambda: taped.rollback(2, "c2", new_segment=2)})
    with second.watch(tmp_path, save_every=2, resume=True) as run:
        second.draws(run.steps(9), run)
    assert len(second.losses) == 3
    assert [r.state for r in taped.reports if r.command_id == "c2"][-1] is CommandState.REJECTED
