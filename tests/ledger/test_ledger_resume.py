"""A resume that goes on as it was is told so, and one that does not says what is otherwise: real trainings, real faults."""

import json
import sys
from pathlib import Path

import pytest
import training_kit as kit

from trainer_agent.hf import guarded_train
from trainer_agent.wire.messages import ResumeChecked
from trainer_agent.wire.vocabulary import DataMode

sys.path.append(str(Path(__file__).parents[1] / "loops"))
import loops_kit

SAVED, LEFT, END = 12, 24, 40


@pytest.fixture
def tape(monkeypatch, tmp_path):
    return kit.tape(monkeypatch, tmp_path / "config")


class Tokens:
    """A tokenizer, as far as a Trainer and a checkpoint want one."""

    def __init__(self, *words):
        self.words = words

    def get_vocab(self):
        return {word: number for number, word in enumerate(self.words)}

    def save_pretrained(self, folder, **_):
        (Path(folder) / "vocab.json").write_text(json.dumps(self.words))


class CrashError(RuntimeError):
    pass


def crash(**_):
    raise CrashError


class GrowingTrainer(kit.HalfTrainer):
    """Its loss scale has grown before the checkpoint."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler.set_growth_interval(7)


def training(folder, *callbacks, words=("a", "b"), **changes):
    settings = {
        "max_steps": 60,
        "save_steps": SAVED,
        "dropout": 0.1,
        "fp16": True,
        "warmup_steps": 5,
        "data": kit.Rows(100),
        "kind": GrowingTrainer,
    }
    made = kit.trainer(folder, *callbacks, **settings | changes)
    made.processing_class = Tokens(*words)
    made.callback_handler.processing_class = made.processing_class
    return made


def interrupted(folder, **changes):
    """A training that saved at step 12 and 24 and died in step 25."""
    with pytest.raises(CrashError):
        guarded_train(training(folder, kit.At(LEFT + 1, crash), **changes))
    return folder / f"checkpoint-{SAVED}"


def resumed(checkpoint, **changes):
    """It is taken up again up to step 40, from this checkpoint."""
    with pytest.raises(CrashError):
        guarded_train(training(checkpoint.parent, kit.At(END, crash), **changes), resume_from_checkpoint=str(checkpoint))


def checks(tape):
    return tape.of(ResumeChecked)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 3, "dataloader_num_workers": 2},
        {"per_device_train_batch_size": 7, "train_sampling_strategy": "sequential"},
        {"fp16": False, "lr_scheduler_type": "cosine", "kind": kit.Trainer},
    ],
    ids=["scaler", "accumulation-workers", "short-batches", "plain"],
)
def test_an_exact_restart_has_no_findings(tape, tmp_path, settings, figure):
    checkpoint = interrupted(tmp_path / "run", **settings)
    resumed(checkpoint, **settings)
    (check,) = checks(tape)
    assert (check.segment, check.from_step, check.steps) == (2, SAVED, 20)
    figure("resume", "findings on an exact resume", len(check.findings), at_most=0)


def without_scaler(checkpoint):
    (checkpoint / "scaler.pt").unlink()
    resumed(checkpoint)


FAULTS = {
    "scaler not restored": without_scaler,
    "other batches than before": lambda checkpoint: resumed(checkpoint, data_seed=99),
    "learning rate": lambda checkpoint: resumed(checkpoint, lr_scheduler_type="constant_with_warmup"),
    "vocabulary differs": lambda checkpoint: resumed(checkpoint, words=("b", "a")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_only_that(tape, tmp_path, fault, capsys):
    checkpoint = interrupted(tmp_path / "run")
    FAULTS[fault](checkpoint)
    (check,) = checks(tape)
    assert [finding.startswith(fault) for finding in check.findings] == [True], check.findings
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"data": DataMode.SKIP, "skip_from_step": 14, "skip_to_step": 16},
        {"learning_rate_factor": 0.5},
        {"max_grad_norm": 0.1},
    ],
    ids=["replay", "skip", "rate", "clipping"],
)
def test_what_a_rollback_ordered_is_no_finding(tape, tmp_path, order):
    go_back = kit.At(LEFT, lambda **_: tape.rollback(SAVED, **order))
    guarded_train(training(tmp_path / "run", go_back, max_steps=36))
    (check,) = checks(tape)
    assert (check.segment, check.from_step, check.steps, check.findings) == (2, SAVED, 20, ())


def test_a_check_that_the_end_cuts_short_is_told_at_the_end(tape, tmp_path):
    go_back = kit.At(LEFT, lambda **_: tape.rollback(SAVED))
    guarded_train(training(tmp_path / "run", go_back, max_steps=LEFT + 1))
    (check,) = checks(tape)
    assert (check.steps, check.findings) == (LEFT + 1 - SAVED, ())


def test_a_loop_that_is_resumed_and_rolled_back_exactly_has_no_findings(monkeypatch, tmp_path):
    tape = loops_kit.tape(monkeypatch, tmp_path / "config")
    folder = tmp_path / "run"
    first = loops_kit.Training(at={28: crash})
    with pytest.raises(CrashError), first.watch(folder, save_every=8) as run:
        first.over(run.batches(loops_kit.loader(), epochs=9), run)
    second = loops_kit.Training(at={20: lambda: tape.rollback(32)})
    with second.watch(folder, save_every=8, resume=True) as run:
        second.over(run.batches(loops_kit.loader(), max_steps=60), run)
    assert [(check.from_step, check.findings) for check in checks(tape)] == [(24, ()), (32, ())]


def test_a_loop_with_another_seed_reads_other_batches_and_that_is_said(monkeypatch, tmp_path):
    tape = loops_kit.tape(monkeypatch, tmp_path / "config")
    folder = tmp_path / "run"
    first = loops_kit.Training(at={28: crash})
    with pytest.raises(CrashError), first.watch(folder, save_every=8) as run:
        first.over(run.batches(loops_kit.loader(shuffle=False), epochs=9), run)
    second = loops_kit.Training()
    with second.watch(folder, save_every=8, resume=True) as run:
        second.over(run.batches(loops_kit.loader(shuffle=True), max_steps=60), run)
    (check,) = checks(tape)
    assert [finding[:13] for finding in check.findings] == ["other batches"]
