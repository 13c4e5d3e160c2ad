"""The Trainer's own rotation is taken over: what stays, what goes, and what is never touched."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from retention_kit import At, HalfTrainer, Inspected, Rows, checkpoints, content, is_of, names, tape, trainer, until
from transformers import Trainer

from trainer_agent.checkpoints.inspection import MANIFEST
from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.policy import Policy
from trainer_agent.wire.messages import Reply, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, DataMode


@pytest.fixture
def taped(monkeypatch, tmp_path):
    return tape(monkeypatch, tmp_path)


class Judged(Trainer):
    """Its evaluations say what the test wants."""

    losses: tuple = ()

    def evaluate(self, *args, **kwargs):
        metrics = {"eval_loss": self.losses[self.state.global_step // 2 - 1]}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def test_three_sound_ones_stay_whatever_the_limit_and_the_limit_is_given_back(taped, tmp_path):
    seen = Inspected(taped)
    made = trainer(tmp_path, seen, max_steps=12, save_steps=2, save_total_limit=1)
    guarded_train(made)
    assert checkpoints(tmp_path) == [2, 4, 12]
    assert seen.limits == [None] * 6
    assert made.args.save_total_limit == 1
    assert taped.monitor.start.attributes["save_total_limit"] == 1
    deleted = [each for each in taped.checkpoints if each.state is CheckpointState.DELETED]
    assert sorted(each.step for each in deleted) == [6, 8, 10]
    assert all("newer ones are as good" in each.problem for each in deleted)
    assert not list(tmp_path.glob(".lossguard-*"))


def test_without_a_limit_nothing_is_ever_removed(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=12, save_steps=2))
    assert checkpoints(tmp_path) == [2, 4, 6, 8, 10, 12]


def test_the_callback_alone_takes_the_limit_over_too(taped, tmp_path):
    seen = Inspected(taped)
    made = trainer(tmp_path, seen, LossGuardCallback(), max_steps=10, save_steps=2, save_total_limit=1)
    made.train()
    assert checkpoints(tmp_path) == [2, 4, 10]
    assert seen.limits == [None] * 5
    assert made.args.save_total_limit == 1


def test_a_training_that_fails_has_its_limit_again(taped, tmp_path):
    def fail(**_):
        raise RuntimeError("mine")

    made = trainer(tmp_path, At(3, fail), save_total_limit=2)
    with pytest.raises(RuntimeError, match="mine"):
        guarded_train(made)
    assert made.args.save_total_limit == 2


@pytest.mark.parametrize("policy", [Policy(on_dead="continue"), Policy()])
def test_of_a_run_that_dies_the_sound_ones_survive(taped, tmp_path, policy):
    """The story: the newest are not finite, and the rotation would have taken the last good one."""

    def poison(model=None, **_):
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))

    guarded_train(trainer(tmp_path, At(7, poison), Inspected(), max_steps=14, save_steps=2, save_total_limit=1), policy)
    assert checkpoints(tmp_path)[:3] == [2, 4, 6]
    assert len(checkpoints(tmp_path)) == (4 if policy.on_dead == "continue" else 3)


def test_the_best_stays_and_is_loaded_at_the_end(taped, tmp_path):
    """The Trainer with this limit removes all but the best at its end, sound ones too."""
    made = trainer(
        tmp_path,
        Inspected(taped),
        kind=Judged,
        eval_dataset=Rows(8),
        max_steps=12,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_total_limit=1,
        load_best_model_at_end=True,
    )
    made.losses = (5.0, 4.0, 1.0, 2.0, 3.0, 4.0)
    guarded_train(made)
    assert made.state.best_model_checkpoint == str(tmp_path / "checkpoint-6")
    assert checkpoints(tmp_path) == [2, 4, 6, 12]
    stored = torch.load(tmp_path / "checkpoint-6" / "optimizer.pt", weights_only=True)
    assert stored["state"]
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "checkpoint-6" / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in made.model.state_dict().items() if name in weights)


@pytest.mark.parametrize("when", [8, 12])
def test_a_best_checkpoint_that_is_gone_is_told_and_ends_no_training(taped, tmp_path, capsys, when):
    made = trainer(
        tmp_path,
        At(when, lambda **_: shutil.rmtree(tmp_path / "checkpoint-4")),
        kind=Judged,
        eval_dataset=Rows(8),
        max_steps=12,
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_total_limit=1,
        load_best_model_at_end=True,
    )
    made.losses = (5.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    guarded_train(made)
    assert made.state.global_step == 12
    assert "the best checkpoint" in capsys.readouterr().err
    assert any(each.step == 4 and each.state is CheckpointState.DELETED for each in taped.checkpoints)


def test_a_parent_that_is_gone_ends_no_training(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=4, save_steps=2))
    order = At(7, lambda **_: shutil.rmtree(tmp_path / "checkpoint-4"))
    again = trainer(tmp_path, order, max_steps=10, save_steps=2, save_total_limit=1)
    guarded_train(again, resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert again.state.global_step == 10


def test_a_new_run_in_an_old_folder_keeps_its_own_and_touches_nothing_of_the_old(taped, tmp_path, figure):
    """A used directory with higher steps and a limit of one: the first save was the oldest of all, and went at once."""
    out = tmp_path / "out"
    for step in (500, 1000):
        shutil.copytree(_saved(tmp_path / f"other-{step}", taped), out / f"checkpoint-{step}")
    (out / "checkpoint-700").mkdir()
    (out / "checkpoint-900-tmp").mkdir()
    (out / "tmp-checkpoint-800").mkdir()
    before = content(out)
    guarded_train(trainer(out, Inspected(taped), max_steps=10, save_steps=2, save_total_limit=1))
    run_id = taped.monitor.start.run_id
    own = {name for name in names(out) if is_of(run_id, out / name)}
    assert own == {"checkpoint-2", "checkpoint-4", "checkpoint-10"}
    after = content(out)
    figure(
        "F53", "files of other runs removed or changed", sum(after.get(name) != data for name, data in before.items()), at_most=0
    )
    assert {"checkpoint-500", "checkpoint-700", "checkpoint-900-tmp", "checkpoint-1000", "tmp-checkpoint-800"} <= names(out)
    figure("F53", "own sound checkpoints of a new run in an old folder", len(own), at_least=1)


def _saved(folder: Path, taped) -> Path:
    guarded_train(trainer(folder, max_steps=2, save_steps=2))
    return folder / "checkpoint-2"


def test_a_checkpoint_of_another_run_at_the_same_step_is_moved_aside_whole(taped, tmp_path, capsys):
    guarded_train(trainer(tmp_path, max_steps=4, save_steps=2))
    (tmp_path / "checkpoint-2" / "model-00007-of-00009.safetensors").write_bytes(b"of the old run")
    before = content(tmp_path / "checkpoint-2")
    capsys.readouterr()
    guarded_train(trainer(tmp_path, max_steps=4, save_steps=2))
    run_id = taped.monitor.start.run_id
    assert is_of(run_id, tmp_path / "checkpoint-2")
    assert not (tmp_path / "checkpoint-2" / "model-00007-of-00009.safetensors").exists()
    assert content(tmp_path / "another-run-checkpoint-2") == before
    assert "is kept as another-run-checkpoint-2" in capsys.readouterr().err
    assert [each.state for each in taped.checkpoints if each.step == 2][-1] is CheckpointState.COMPLETE


def test_a_link_is_neither_followed_nor_removed(taped, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    guarded_train(trainer(out, Inspected(taped), max_steps=4, save_steps=2))
    shutil.move(out / "checkpoint-2", elsewhere)
    (out / "checkpoint-2").symlink_to(elsewhere)
    before = content(elsewhere)
    again = trainer(out, Inspected(taped), max_steps=14, save_steps=2, save_total_limit=1)
    guarded_train(again, resume_from_checkpoint=str(out / "checkpoint-4"))
    assert content(elsewhere) == before
    assert (out / "checkpoint-2").is_symlink()


def test_what_a_dead_process_left_in_the_trash_goes_and_nothing_else_does(taped, tmp_path):
    kept = [".lossguard-trash-mine", "checkpoint-3.tmp", "tmp-checkpoint-5", ".lossguard-trash-checkpoint-2"]
    ours = [".lossguard-trash-checkpoint-2-0123abcd"]
    for name in kept + ours:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    (tmp_path / ".lossguard-trash-checkpoint-2-0123abce").symlink_to(outside)
    guarded_train(trainer(tmp_path, max_steps=2))
    assert set(kept) <= names(tmp_path)
    assert not set(ours) & names(tmp_path)
    assert (outside / "file").exists()


def test_what_was_saved_again_after_a_rollback_takes_the_place_of_the_old_one(taped, tmp_path):
    def back(**_):
        taped.rollback(4, data=DataMode.REPLAY)

    guarded_train(trainer(tmp_path, Inspected(), At(9, back), max_steps=12, save_steps=2, save_total_limit=2))
    until(lambda: not list(tmp_path.glob(".lossguard-old-*")))
    assert not list(tmp_path.glob(".lossguard-trash-*"))
    held = {
        step: json.loads((tmp_path / f"checkpoint-{step}" / MANIFEST).read_bytes())["checkpoint"]
        for step in checkpoints(tmp_path)
    }
    assert 4 in held, "the parent of the segment"
    assert held[12]["segment"] == held[10]["segment"] == 2
    assert all(each["segment"] == (1 if step <= 4 else 2) for step, each in held.items())


def test_a_pin_is_obeyed_and_survives_a_restart_without_a_server(taped, tmp_path):
    def pin(**_):
        taped.monitor._on_reply(Reply(1, verdicts=(Verdict("checkpoint-6", CheckpointState.SOUND, "", pinned=True),)))

    guarded_train(trainer(tmp_path, Inspected(taped), At(8, pin), max_steps=12, save_steps=2, save_total_limit=1))
    assert checkpoints(tmp_path) == [2, 4, 6, 12]
    again = trainer(tmp_path, Inspected(taped), max_steps=80, save_steps=10, save_total_limit=1)
    guarded_train(again, resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert 6 in checkpoints(tmp_path)
    assert checkpoints(tmp_path)[-1] == 80
    assert len(checkpoints(tmp_path)) <= 6


def test_a_training_in_half_precision_rotates_as_well(taped, tmp_path):
    guarded_train(
        trainer(tmp_path, Inspected(taped), kind=HalfTrainer, fp16=True, max_steps=10, save_steps=2, save_total_limit=1)
    )
    assert checkpoints(tmp_path) == [2, 4, 10]
