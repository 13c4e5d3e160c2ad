"""A resume that goes on as it was is told so, and one that does not says what is otherwise: real trainings, real faults."""

import json
import sys
from pathlib import Path

import pytest
import training_kit as kit

from trainer_agent.hf import guarded_train
from trainer_agent.ledger.resume_check import Resumed, check
from trainer_agent.wire.messages import ResumeChecked
from trainer_agent.wire.samples import StepRow
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


@pytest.mark.parametrize("left_out", [lambda rows: rows[:1], lambda rows: rows], ids=["one sample", "a whole step"])
def test_what_an_earlier_exclude_left_out_is_not_missed_by_a_replay_behind_it(monkeypatch, tmp_path, left_out):
    tape = loops_kit.tape(monkeypatch, tmp_path / "config")
    training = loops_kit.Training()
    exclude = {"data": DataMode.EXCLUDE}
    training.at[16] = lambda: tape.rollback(8, exclude_samples=tuple(left_out(training.rows_of[5])), **exclude)
    training.at[24] = lambda: tape.rollback(4, "c2")
    with training.watch(tmp_path / "run", save_every=4, keep=20) as run:
        training.over(run.batches(loops_kit.loader(), max_steps=30), run)
    assert [(check.from_step, check.findings) for check in checks(tape)] == [(8, ()), (4, ())]
    again = [row for rows in training.rows_of[24:] for row in rows]
    assert not set(left_out(training.rows_of[5])) & set(again)


def test_other_batches_are_found_beside_samples_that_were_left_out():
    before = {step: StepRow(step, (step * 4, step * 4 + 1)) for step in range(1, 10)}
    known = Resumed(0, excluded=frozenset({20}))
    exact = [StepRow(step, tuple(s for s in row.samples if s != 20)) for step, row in before.items()]
    assert check(known, before, exact) == ()
    for step in (1, 5):
        other = [*exact[: step - 1], StepRow(step, (99, 98)), *exact[step:]]
        assert check(known, before, other) == (f"other batches than before: 1 of 5 steps, the first is {step}",)


@pytest.mark.parametrize("told_after", [False, True], ids=["before the update", "after the update"])
def test_a_schedule_that_an_update_skipped_before_held_back_is_no_finding(told_after):
    """The step 5 of before overflowed; now, without its samples, it does not."""
    held = 4 if told_after else 5
    before = {
        step: StepRow(
            step, learning_rate=(step - (step > held)) / 9, loss_scale=512.0 if step > 5 else 1024.0, overflowed=step == 5
        )
        for step in range(1, 10)
    }
    now = [StepRow(step, learning_rate=step / 9, loss_scale=1024.0) for step in range(1, 10)]
    assert check(Resumed(0, DataMode.SKIP), before, now) == ()
    wrong = [StepRow(step, learning_rate=step / 9 if step < 4 else 1.0, loss_scale=1024.0) for step in range(1, 10)]
    assert check(Resumed(0, DataMode.SKIP), before, wrong) == ("learning rate 1 where it was 0.444444, at step 4",)


@pytest.mark.parametrize("lifted", [False, True])
def test_an_exclusion_stays_in_force_after_a_restart_until_its_plan_is_removed(monkeypatch, tmp_path, lifted):
    tape = loops_kit.tape(monkeypatch, tmp_path / "config")
    first = loops_kit.Training(at={12: lambda: tape.rollback(8, data=DataMode.EXCLUDE, exclude_samples=(7,))})
    with first.watch(tmp_path / "run", save_every=4) as run:
        first.over(run.batches(loops_kit.loader(), max_steps=20), run)
    if lifted:
        (tmp_path / "run" / ".lossguard" / "data_plan.json").unlink()
    second = loops_kit.Training()
    with second.watch(tmp_path / "run", save_every=4, resume=True) as run:
        second.over(run.batches(loops_kit.loader(), max_steps=60), run)
    assert any(7 in rows for rows in second.rows_of) is lifted
