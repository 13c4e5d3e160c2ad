import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import IterableDataset
from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, until, weights
from transformers import TrainerCallback

from trainer_agent.checkpoints.inspection import MANIFEST, stored_weights, weights_digest
from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.policy import Policy
from trainer_agent.wire import series
from trainer_agent.wire.messages import Reply, Verdict
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState, DataMode, EndReason, Phase, SegmentCause

WITHOUT_ROLLBACK = tuple(kind for kind in CommandKind if kind is not CommandKind.ROLLBACK)
STATES = (CommandState.RUNNING, CommandState.SUCCEEDED)  # delivered is said by the inbox


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def states(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name]


def test_a_rollback_and_replay_equal_a_straight_run_to_the_last_bit(taped, tmp_path):
    """Dropout on, fp16 with a scaler, an epoch of 10 steps: weights, losses, norms, rates and scale."""
    setting = {"kind": HalfTrainer, "dropout": 0.1, "fp16": True, "max_steps": 14, "save_steps": 4, "warmup_steps": 3}
    straight, again = Book(), Book()
    reference = trainer(tmp_path / "straight", straight, data=Rows(40), **setting)
    reference.train()
    training = trainer(tmp_path / "guarded", again, At(12, lambda **_: taped.rollback(4)), data=Rows(40), **setting)
    output = guarded_train(training)
    assert output.global_step == 14
    assert again.steps == [*range(1, 13), *range(5, 15)]
    assert torch.equal(weights(training), weights(reference))
    for segment, steps in ((1, range(1, 13)), (2, range(5, 15))):
        for name, key in ((series.LOSS, "loss"), (series.GRAD_NORM, "grad_norm"), (series.LEARNING_RATE, "learning_rate")):
            assert taped.series(name, segment) == {step: straight.logs[step][key] for step in steps}
    assert again.scales[12:] == straight.scales[4:]
    assert [again.rows[step] for step in range(5, 15)] == [straight.rows[step] for step in range(5, 15)]


def test_a_rollback_opens_the_segment_of_its_command_and_proves_the_weights(taped, tmp_path):
    changes = {"max_grad_norm": 0.25, "new_segment": 5}
    training = trainer(tmp_path, At(6, lambda **_: taped.rollback(2, **changes)), max_steps=8, save_steps=2, max_grad_norm=0)
    guarded_train(training)
    first, second = taped.segments
    assert (first.segment, first.cause, first.from_step) == (1, SegmentCause.START, 0)
    assert (second.segment, second.parent, second.from_step) == (5, 1, 2)
    assert (second.cause, second.command_id, second.checkpoint_id) == (SegmentCause.ROLLBACK, "c1", "checkpoint-2")
    assert (second.attributes["data"], second.attributes["max_grad_norm"]) == ("replay", 0.25)
    assert states(taped) == list(STATES)
    done = taped.reports[-1]
    assert (done.step, done.checkpoint_id) == (3, "checkpoint-2")
    assert done.weights_sha256 == weights_digest(stored_weights(tmp_path / "checkpoint-2"))
    assert taped.end.reason is EndReason.FINISHED
    assert Phase.ROLLING_BACK in taped.phases
    assert training.args.max_grad_norm == 0  # the script's own again, afterwards


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("strategy", ["random", "sequential"])
def test_skip_passes_over_exactly_the_batches_of_the_window(taped, tmp_path, accumulation, strategy):
    setting = {"gradient_accumulation_steps": accumulation, "train_sampling_strategy": strategy, "max_steps": 10, "save_steps": 2}
    straight, skipping = Book(), Book()
    trainer(tmp_path / "straight", straight, **setting | {"max_steps": 14}).train()
    order = At(8, lambda **_: taped.rollback(2, data=DataMode.SKIP, skip_from_step=5, skip_to_step=7))
    guarded_train(trainer(tmp_path / "skipping", skipping, order, **setting))
    expected = {**{step: step for step in (1, 2, 3, 4)}, **{step: step + 3 for step in range(5, 11)}}
    assert {step: skipping.rows[step] for step in expected} == {step: straight.rows[was] for step, was in expected.items()}
    second = taped.segments[1].attributes
    assert (second["data"], second["skip_from_step"], second["skip_to_step"]) == ("skip", 5, 7)


def test_a_skip_holds_in_a_training_resumed_afterwards_and_in_the_next_epoch(taped, tmp_path):
    """An epoch is 10 steps of 40 rows. The cut epoch is filled up from its own start, so that it keeps its length."""
    setting = {"data": Rows(40), "train_sampling_strategy": "sequential", "save_steps": 2}
    first, second = Book(), Book()
    order = At(5, lambda **_: taped.rollback(2, data=DataMode.SKIP, skip_from_step=3, skip_to_step=4))
    guarded_train(trainer(tmp_path, first, order, max_steps=6, **setting))
    guarded_train(trainer(tmp_path, second, max_steps=13, **setting), resume_from_checkpoint=True)
    batch = [list(range(at * 4, at * 4 + 4)) for at in range(10)]
    assert [first.rows[step] for step in range(3, 7)] == batch[4:8]
    assert [second.rows[step] for step in range(7, 11)] == [*batch[8:10], *batch[0:2]]
    assert [second.rows[step] for step in range(11, 14)] == batch[0:3]


class Stream(IterableDataset):
    def __iter__(self):
        rows = Rows(200)
        return (rows[index] for index in range(200))


@pytest.mark.parametrize(
    ("data", "window", "reason"),
    [
        (lambda: Rows(8), (3, 5), "whole epoch"),
        (Stream, (4, 6), "iterable"),
        (lambda: Rows(200), (2, 6), "not after the checkpoint"),
        (lambda: Rows(200), (6, 4), "no window"),
    ],
)
def test_a_window_that_cannot_be_skipped_exactly_is_refused_and_training_goes_on(taped, tmp_path, data, window, reason):
    book = Book()
    order = At(7, lambda **_: taped.rollback(2, data=DataMode.SKIP, skip_from_step=window[0], skip_to_step=window[1]))
    guarded_train(trainer(tmp_path, book, order, data=data(), max_steps=9, save_steps=2))
    assert states(taped) == [CommandState.REJECTED]
    assert reason in taped.reports[-1].reason
    assert book.steps == list(range(1, 10))
    assert taped.end.reason is EndReason.FINISHED


def break_file(name):
    def broken(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return broken


def vanish(folder):
    shutil.rmtree(folder)


def lose(name):
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("harm", "state", "reason"),
    [
        (break_file("model.safetensors"), CommandState.FAILED, "model.safetensors has changed since it was saved"),
        (break_file("optimizer.pt"), CommandState.FAILED, "optimizer.pt has changed since it was saved"),
        (lose("scaler.pt"), CommandState.FAILED, "scaler.pt is missing"),
        (vanish, CommandState.REJECTED, "no checkpoint of this run"),
    ],
)
def test_a_checkpoint_harmed_after_it_was_verified_is_refused_and_training_goes_on(taped, tmp_path, harm, state, reason):
    book = Book()

    def order(**_):
        until((tmp_path / "checkpoint-2" / MANIFEST).exists)  # it is inspected in the background
        harm(tmp_path / "checkpoint-2")
        taped.rollback(2)

    guarded_train(trainer(tmp_path, book, At(5, order), kind=HalfTrainer, fp16=True, max_steps=7, save_steps=2))
    in_between = CommandState.REJECTED  # where a look at the checkpoint in between was quicker than the command
    assert states(taped)[-1] in (state, in_between)
    assert reason in taped.reports[-1].reason
    assert book.steps == list(range(1, 8))
    if harm is vanish:
        assert [c.state for c in taped.checkpoints if c.checkpoint_id == "checkpoint-2"][-1] is CheckpointState.DELETED


class Harmer(TrainerCallback):
    """Changes a checkpoint between the trainer's save and the inspection. Comes before LossGuard's callback."""

    def __init__(self, harm):
        self.harm = harm

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == 2:
            from pathlib import Path

            self.harm(Path(args.output_dir) / "checkpoint-2")


def nan_weights(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.wte.weight"][3, 5] = math.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def nan_optimizer(folder):
    state = torch.load(folder / "optimizer.pt", weights_only=True)
    state["state"][0]["exp_avg"][0, 0] = math.inf
    torch.save(state, folder / "optimizer.pt")


def cut_short(name):
    def cut(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-100])

    return cut


@pytest.mark.parametrize(
    ("harm", "facts", "reason"),
    [
        (nan_weights, {"state": CheckpointState.COMPLETE, "nonfinite_weights": 1}, "1 of its weights are not finite"),
        (nan_optimizer, {"nonfinite_optimizer": 1}, "1 of its optimizer values are not finite"),
        (cut_short("model.safetensors"), {"state": CheckpointState.CORRUPT}, "model.safetensors has"),
        (cut_short("optimizer.pt"), {"state": CheckpointState.CORRUPT}, "optimizer.pt is cut off"),
        (cut_short("trainer_state.json"), {"state": CheckpointState.CORRUPT}, "trainer_state.json cannot be understood"),
        (lose("model.safetensors"), {"state": CheckpointState.CORRUPT}, "no weights"),
        (lose("scaler.pt"), {"state": CheckpointState.COMPLETE}, "holds no scaler"),
        (lose("rng_state.pth"), {"state": CheckpointState.COMPLETE}, "holds no rng"),
    ],
)
def test_a_checkpoint_that_is_not_sound_is_told_as_such_and_refused(taped, tmp_path, harm, facts, reason):
    order = At(5, lambda **_: taped.rollback(2))
    guarded_train(trainer(tmp_path, Harmer(harm), order, kind=HalfTrainer, fp16=True, max_steps=6, save_steps=2))
    told = next(c for c in taped.checkpoints if c.checkpoint_id == "checkpoint-2")
    assert {key: getattr(told, key) for key in facts} == facts
    assert states(taped) == [CommandState.REJECTED]
    assert reason in taped.reports[-1].reason


def test_the_servers_verdict_forbids_what_the_facts_would_allow(taped, tmp_path):
    def order(**_):
        verdict = Verdict("checkpoint-2", CheckpointState.UNSOUND, "saved 3 steps after the first sign (1)")
        taped.monitor._on_reply(Reply(next_seq=1, verdicts=(verdict,)))
        taped.rollback(2)

    guarded_train(trainer(tmp_path, At(5, order), max_steps=6, save_steps=2))
    assert states(taped)[-1] is CommandState.REJECTED
    assert "first sign" in taped.reports[-1].reason


@pytest.mark.parametrize("name", ["../checkpoint-2", "/etc", "checkpoint-2/..", "checkpoint-99", "", "checkpoint-2\n"])
def test_an_id_that_is_no_checkpoint_of_this_run_is_refused(taped, tmp_path, name):
    def order(**_):
        taped.command(CommandKind.ROLLBACK, checkpoint_id=name, target_step=2)

    guarded_train(trainer(tmp_path, At(4, order), max_steps=5, save_steps=2))
    assert states(taped)[-1] is CommandState.REJECTED


def test_a_manifest_holds_the_facts_and_is_the_last_file_of_a_checkpoint(taped, tmp_path):
    guarded_train(trainer(tmp_path, kind=HalfTrainer, fp16=True, max_steps=2, save_steps=2))
    (told,) = taped.checkpoints
    assert told.state is CheckpointState.COMPLETE
    assert told.parts == ("model", "optimizer", "scheduler", "scaler", "rng", "position")
    assert (told.nonfinite_weights, told.nonfinite_optimizer, told.sick_because, told.segment) == (0, 0, "", 1)
    folder = tmp_path / "checkpoint-2"
    assert {file.path for file in told.files} == {path.name for path in folder.iterdir()} - {MANIFEST}
    assert json.loads((folder / MANIFEST).read_text())["checkpoint"]["files"][0]["sha256"] == told.files[0].sha256
    assert max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).name == MANIFEST


def test_a_checkpoint_rotated_away_is_told_as_deleted(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=8, save_steps=2, save_total_limit=2))
    states_of = {}
    for told in taped.checkpoints:
        states_of.setdefault(told.checkpoint_id, []).append(told.state)
    gone = [name for name, told in states_of.items() if told[-1] is CheckpointState.DELETED]
    assert set(gone) <= {"checkpoint-2", "checkpoint-4"}
    assert states_of["checkpoint-8"] == [CheckpointState.COMPLETE]
    assert (tmp_path / "checkpoint-8").is_dir()


def test_a_rollback_spares_its_target_where_the_best_checkpoint_would_be_all_that_is_kept(taped, tmp_path):
    """With save_total_limit=1 the Trainer removes all but its best checkpoint when a training ends."""
    book = Book()
    setting = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "save_total_limit": 1, "eval_dataset": Rows(8)}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    order = At(5, lambda **_: taped.rollback(4))
    guarded_train(trainer(tmp_path, book, order, max_steps=6, **setting, **best))
    assert states(taped) == list(STATES)
    assert book.steps == [1, 2, 3, 4, 5, 5, 6]


def test_the_callback_alone_says_that_it_cannot_roll_back_and_refuses(taped, tmp_path):
    trainer(tmp_path, At(4, lambda **_: taped.rollback(2)), LossGuardCallback(), max_steps=5, save_steps=2).train()
    start = taped.monitor.start
    assert start.capabilities == WITHOUT_ROLLBACK
    assert "guarded_train" in start.incapable_because
    assert states(taped) == [CommandState.REJECTED]
    assert taped.end.reason is EndReason.FINISHED


@pytest.mark.parametrize(
    ("setting", "policy", "kinds", "reason"),
    [
        ({}, Policy(), tuple(CommandKind), ""),
        ({"save_only_model": True}, Policy(), WITHOUT_ROLLBACK, "save_only_model"),
        ({"ignore_data_skip": True}, Policy(), WITHOUT_ROLLBACK, "ignore_data_skip"),
        ({}, Policy.watch_only(), (), "policy obeys no command"),
        ({}, Policy(obey=WITHOUT_ROLLBACK), WITHOUT_ROLLBACK, "policy does not obey rollback"),
        (
            {},
            Policy(obey=tuple(CommandKind)[1:-2]),
            tuple(CommandKind)[1:-2],
            "stop, set learning rate factor and set max grad norm",
        ),
    ],
)
def test_what_a_run_cannot_obey_is_declared_with_the_reason(taped, tmp_path, setting, policy, kinds, reason):
    guarded_train(trainer(tmp_path, max_steps=1, **setting), policy)
    assert taped.monitor.start.capabilities == kinds
    assert reason in taped.monitor.start.incapable_because


def test_an_exception_while_resuming_fails_the_command_and_the_run_and_passes_through(taped, tmp_path):
    class Broken(TrainerCallback):
        begun = 0

        def on_train_begin(self, args, state, control, **kwargs):
            self.begun += 1
            if self.begun == 2:
                raise RuntimeError("the second start is broken")

    with pytest.raises(RuntimeError, match="the second start is broken"):
        guarded_train(trainer(tmp_path, Broken(), At(4, lambda **_: taped.rollback(2)), max_steps=5, save_steps=2))
    assert states(taped) == [CommandState.RUNNING, CommandState.FAILED]
    assert (taped.end.reason, taped.end.detail) == (EndReason.FAILED, "RuntimeError")
