import math

import pytest
import torch
from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, until

from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.policy import Policy
from trainer_agent.wire import series

WATCH = Policy.watch_only()


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def poison(model=None, **_):
    """One NaN in the weights, from here on: every loss is NaN."""
    with torch.no_grad():
        model.transformer.wte.weight[0, 0] = math.nan


def test_a_nan_loss_is_seen_at_its_step_with_the_nan_filter_at_its_default(taped, tmp_path):
    book = Book()
    training = trainer(tmp_path, book, At(4, poison))
    assert training.args.logging_nan_inf_filter
    guarded_train(training, WATCH)
    losses = taped.series(series.LOSS)
    assert [math.isnan(losses[step]) for step in range(1, 7)] == [False] * 3 + [True] * 3
    assert math.isfinite(book.logs[4]["loss"])  # what the Trainer says of the same step


def test_a_nan_loss_is_seen_at_its_step_by_the_callback_alone(taped, tmp_path):
    trainer(tmp_path, At(4, poison), LossGuardCallback(WATCH)).train()
    losses = taped.series(series.LOSS)
    assert [math.isnan(losses[step]) for step in range(1, 7)] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_loss_is_the_one_the_trainer_logs(taped, tmp_path, accumulation):
    book = Book()
    guarded_train(trainer(tmp_path, book, gradient_accumulation_steps=accumulation, max_steps=4), WATCH)
    assert taped.series(series.LOSS) == {step: book.logs[step]["loss"] for step in range(1, 5)}


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_callback_alone_sees_the_same_loss(taped, tmp_path, accumulation):
    book = Book()
    trainer(tmp_path, book, LossGuardCallback(WATCH), gradient_accumulation_steps=accumulation, max_steps=4).train()
    losses = taped.series(series.LOSS)
    assert losses == pytest.approx({step: book.logs[step]["loss"] for step in range(1, 5)}, rel=1e-6)


def test_the_grad_norm_is_the_one_before_clipping_at_every_step(taped, tmp_path):
    free, clipped = Book(), Book()
    trainer(tmp_path / "free", free, max_grad_norm=0).train()
    guarded_train(trainer(tmp_path / "clipped", clipped, max_grad_norm=0.01, logging_steps=3), WATCH)
    norms = taped.series(series.GRAD_NORM)
    assert list(norms) == [1, 2, 3, 4, 5, 6]
    assert norms[1] == free.logs[1]["grad_norm"] > 0.01
    assert norms[3] == clipped.logs[3]["grad_norm"]


def test_the_callback_alone_sees_the_grad_norm_where_the_trainer_logs_it(taped, tmp_path):
    book = Book()
    trainer(tmp_path, book, LossGuardCallback(WATCH), max_grad_norm=0.01, logging_steps=2).train()
    assert taped.series(series.GRAD_NORM) == {step: book.logs[step]["grad_norm"] for step in (2, 4, 6)}


def test_the_learning_rate_is_the_one_the_step_was_made_with(taped, tmp_path):
    book = Book()
    guarded_train(trainer(tmp_path, book, warmup_steps=2), WATCH)
    assert taped.series(series.LEARNING_RATE) == {step: book.logs[step]["learning_rate"] for step in range(1, 7)}


def test_skipped_steps_are_seen_by_the_fall_of_the_loss_scale(taped, tmp_path):
    class Eager(HalfTrainer):
        first_scale = 2.0**40  # far too large for fp16, so that the scaler has to look for its scale

    book = Book()
    guarded_train(trainer(tmp_path, book, kind=Eager, fp16=True, max_steps=26), WATCH)
    scales, skipped = taped.series(series.LOSS_SCALE), taped.series(series.OVERFLOW)
    assert scales[1] == 2.0**40
    assert sum(skipped.values()) > 5
    after = dict(zip(book.steps, book.scales, strict=True))
    assert all(skipped[step] == float(after[step] < scales[step]) for step in book.steps)


def test_without_a_scaler_nothing_is_said_of_one(taped, tmp_path):
    guarded_train(trainer(tmp_path, max_steps=2), WATCH)
    assert not taped.series(series.LOSS_SCALE)
    assert not taped.series(series.OVERFLOW)


def test_fp16_asked_for_on_the_cpu_is_reported_as_the_fp32_it_is(taped, tmp_path):
    guarded_train(trainer(tmp_path, fp16=True, max_steps=2), WATCH)
    told = taped.monitor.start.attributes
    assert (told["precision"], told["precision_configured"], told["loss_scaler"]) == ("fp32", "fp16", False)
    assert taped.segments[0].attributes["precision"] == "fp32"


@pytest.mark.parametrize(("kind", "changes", "seen"), [(HalfTrainer, {"fp16": True}, "fp16"), (None, {"bf16": True}, "bf16")])
def test_the_precision_seen_inside_the_forward_pass_is_told(taped, tmp_path, kind, changes, seen):
    more = {"kind": kind} if kind else {}
    guarded_train(trainer(tmp_path, max_steps=2, **more, **changes), WATCH)
    assert taped.monitor.start.attributes["precision"] == seen
    first = taped.segments[0].attributes
    assert (first["precision"], first["autocast"], first["loss_scaler"]) == (seen, True, seen == "fp16")


def test_the_callback_alone_tells_the_precision_too(taped, tmp_path):
    trainer(tmp_path, LossGuardCallback(WATCH), fp16=True, max_steps=2).train()
    assert taped.monitor.start.attributes["precision"] == "fp32"
    assert taped.segments[0].attributes["precision"] == "fp32"


def test_evaluation_time_tokens_and_memory_are_measured(taped, tmp_path):
    def sampled(**_):  # the sampler's thread takes one a second, the first as soon as it is let
        (session,) = (callback.session for callback in training.callback_handler.callbacks if hasattr(callback, "session"))
        until(lambda: session._sampler._newest or taped.series(series.HOST_MEMORY_BYTES))

    training = trainer(tmp_path, At(6, sampled), eval_strategy="steps", eval_steps=3, eval_dataset=Rows(8))
    guarded_train(training, WATCH)
    assert list(taped.series(series.EVAL_LOSS)) == [3, 6]
    seconds, rate = taped.series(series.STEP_SECONDS), taped.series(series.TOKENS_PER_SECOND)
    assert all(rate[step] * seconds[step] == pytest.approx(4 * 8) for step in range(1, 7))
    memory = taped.series(series.HOST_MEMORY_BYTES).values()
    assert memory
    assert min(memory) > 1e7


def test_what_a_script_logs_itself_becomes_a_series(taped, tmp_path):
    training = trainer(tmp_path, max_steps=2)
    training.add_callback(At(2, lambda **_: training.log({"rewards/chosen": 0.5, "note": "text"})))
    guarded_train(training, WATCH)
    assert taped.series("rewards/chosen") == {1: 0.5}
    assert taped.series(series.EPOCH) == {1: pytest.approx(0.01), 2: pytest.approx(0.02)}
