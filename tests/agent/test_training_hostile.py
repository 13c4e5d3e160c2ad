"""A guarded training in the ways in which things go wrong: bad timing, broken files, two at once, models of other kinds."""

import json
import sys
import threading
import time

import pytest
import torch
from training_kit import At, Book, Rows, Tape, tape, trainer, until, weights
from transformers import Trainer, TrainerCallback

from trainer_agent import identity
from trainer_agent.checkpoints import rollback
from trainer_agent.checkpoints.directories import is_id
from trainer_agent.checkpoints.inspection import MANIFEST, Save
from trainer_agent.checkpoints.inspector import Inspector
from trainer_agent.commands import way_back
from trainer_agent.config import Config
from trainer_agent.data.plan import FILE_NAME, DataPlan
from trainer_agent.guest.voice import Voice
from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.identity import Identity
from trainer_agent.monitor import Monitor, new_incarnation
from trainer_agent.policy import Policy
from trainer_agent.training import session
from trainer_agent.wire.codec import MAX_STEP
from trainer_agent.wire.messages import RunStart
from trainer_agent.wire.vocabulary import CommandKind, CommandState, DataMode, EndReason, SegmentCause

RUNNING, SUCCEEDED, FAILED, REJECTED = (
    CommandState.RUNNING,
    CommandState.SUCCEEDED,
    CommandState.FAILED,
    CommandState.REJECTED,
)
DEEP = "[" * 100_000


@pytest.fixture
def taped(monkeypatch, tmp_path) -> Tape:
    return tape(monkeypatch, tmp_path)


def told(taped: Tape, name: str = "c1") -> list[CommandState]:
    return [report.state for report in taped.reports if report.command_id == name]


# --- an error of ours


@pytest.mark.parametrize(("owner", "name"), [(way_back, "choose"), (way_back, "check_files")])
def test_a_rollback_in_which_lossguard_fails_is_answered_and_training_goes_on(taped, tmp_path, monkeypatch, owner, name):
    def broken(*args, **kwargs):
        raise RuntimeError("broken inside")

    monkeypatch.setattr(owner, name, broken)
    book = Book()
    guarded_train(trainer(tmp_path, book, At(4, lambda **_: taped.rollback(2)), save_steps=2))
    assert told(taped)[-1] in (REJECTED, FAILED)
    assert "broken inside" in taped.reports[-1].reason
    assert book.steps == [1, 2, 3, 4, 5, 6]


def test_a_training_goes_back_once_even_when_the_new_segment_cannot_be_opened(taped, tmp_path, monkeypatch):
    book, broken = Book(), []

    def attach(self, *args, **kwargs):
        if taped.segments:
            broken.append(True)
            raise RuntimeError("broken inside")
        return original(self, *args, **kwargs)

    original = session.Probes.attach
    monkeypatch.setattr(session.Probes, "attach", attach)
    monkeypatch.setattr(session.Session, "step_ended", once_only(session.Session.step_ended, broken))
    guarded_train(trainer(tmp_path, book, At(4, lambda **_: taped.rollback(2)), save_steps=2))
    assert book.steps == [1, 2, 3, 4, 3, 4, 5, 6]
    assert told(taped) == [RUNNING, FAILED]


def once_only(original, broken):
    def step_ended(self, *args, **kwargs):
        if broken:
            raise RuntimeError("broken inside")
        return original(self, *args, **kwargs)

    return step_ended


def test_the_end_is_told_even_when_the_checkpoints_cannot_be_looked_at(taped, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("broken inside")

    monkeypatch.setattr(Inspector, "take_done", broken)
    guarded_train(trainer(tmp_path, max_steps=2))
    assert taped.end.reason is EndReason.FINISHED
    assert not [thread.name for thread in threading.enumerate() if thread.name == "lossguard-spool"]


def test_weights_that_cannot_be_compared_are_no_failed_rollback(taped, tmp_path, monkeypatch):
    """An adapter's file names its tensors otherwise than the model does."""
    stored = rollback.stored_weights
    monkeypatch.setattr(rollback, "stored_weights", lambda folder: ((f"base.{name}", t) for name, t in stored(folder)))
    guarded_train(trainer(tmp_path, At(4, lambda **_: taped.rollback(2)), save_steps=2))
    assert told(taped) == [RUNNING, SUCCEEDED]
    assert "could not be compared" in taped.reports[-1].reason
    assert taped.reports[-1].weights_sha256 is None


# --- bad timing


def test_a_stop_before_the_first_step_ends_after_it(taped, tmp_path):
    class Early(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            taped.stop()

    guarded_train(trainer(tmp_path, Early()))
    assert told(taped) == [RUNNING, SUCCEEDED]
    assert taped.end.step == 1


@pytest.mark.parametrize("kind", [CommandKind.STOP, CommandKind.ROLLBACK])
def test_a_command_that_comes_in_the_last_evaluation_is_refused_with_the_reason(taped, tmp_path, kind):
    class Late(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            if state.global_step == 6:
                taped.stop() if kind is CommandKind.STOP else taped.rollback(3)

    guarded_train(trainer(tmp_path, Late(), save_steps=3, eval_dataset=Rows(8), eval_strategy="steps", eval_steps=3))
    assert told(taped) == [REJECTED]
    assert "ended" in taped.reports[-1].reason
    assert taped.end.reason is EndReason.FINISHED


def test_a_stop_that_comes_in_an_evaluation_or_a_save_is_done_at_the_next_boundary(taped, tmp_path):
    class Meanwhile(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            if state.global_step == 2:
                taped.stop()

    guarded_train(trainer(tmp_path, Meanwhile(), save_steps=2))
    assert told(taped) == [RUNNING, SUCCEEDED]
    assert (taped.end.step, taped.end.reason) == (3, EndReason.STOPPED_BY_COMMAND)


def test_a_rollback_at_the_very_last_step_trains_on_to_the_end(taped, tmp_path):
    book = Book()
    guarded_train(trainer(tmp_path, book, At(6, lambda **_: taped.rollback(4)), save_steps=2, save_total_limit=1))
    assert book.steps == [1, 2, 3, 4, 5, 6, 5, 6]
    assert told(taped) == [RUNNING, SUCCEEDED]


def test_a_rollback_after_a_rollback_goes_where_it_is_told(taped, tmp_path):
    book = Book()

    class Second(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 5 and len(taped.segments) == 2:
                taped.rollback(2, "c2")

    guarded_train(trainer(tmp_path, book, At(6, lambda **_: taped.rollback(4)), Second(), save_steps=2))
    assert [(s.segment, s.from_step, s.parent) for s in taped.segments] == [(1, 0, None), (2, 4, 1), (3, 2, 2)]
    assert book.steps == [*range(1, 7), 5, 6, *range(3, 7)]
    assert (told(taped), told(taped, "c2")) == ([RUNNING, SUCCEEDED], [RUNNING, SUCCEEDED])


def test_a_rollback_into_a_segment_that_was_opened_before_is_refused(taped, tmp_path):
    book = Book()
    guarded_train(trainer(tmp_path, book, At(4, lambda **_: taped.rollback(2, new_segment=1)), save_steps=2))
    assert told(taped) == [REJECTED]
    assert "segment 1" in taped.reports[-1].reason
    assert book.steps == [1, 2, 3, 4, 5, 6]


def test_a_refused_rollback_leaves_a_held_run_held(taped, tmp_path):
    def poison(model=None, **_):
        with torch.no_grad():
            model.transformer.wte.weight.fill_(float("nan"))

    person = threading.Thread(target=lambda: (until(lambda: "holding" in taped.phases), taped.rollback(5)))
    person.start()
    policy = Policy(on_dead="hold", hold_seconds=1.5)
    guarded_train(trainer(tmp_path, At(4, poison), save_steps=2), policy)
    person.join()
    assert told(taped) == [REJECTED]
    assert taped.end.reason is EndReason.STOPPED_BY_GUARD
    assert "told nothing" in taped.end.detail
    assert not (tmp_path / "checkpoint-4").exists()


@pytest.mark.parametrize(
    ("code", "reason", "detail"),
    [(0, EndReason.FINISHED, ""), (None, EndReason.FINISHED, ""), (3, EndReason.FAILED, "SystemExit 3")],
)
def test_sys_exit_inside_a_callback_keeps_its_code_and_only_a_bad_one_is_a_failure(taped, tmp_path, code, reason, detail):
    with pytest.raises(SystemExit) as left:
        guarded_train(trainer(tmp_path, At(3, lambda **_: sys.exit(code))))
    assert left.value.code == code
    assert (taped.end.reason, taped.end.detail) == (reason, detail)


def test_a_run_that_cannot_be_told_anything_holds_without_spinning(tmp_path):
    monitor = Monitor(RunStart("run", new_incarnation(), "p", "n"), Config(), tmp_path / ".lossguard", Voice(lambda _: None))
    began = time.monotonic()
    assert monitor.wait_for_command(0.2) is None
    assert time.monotonic() - began >= 0.2


# --- models and trainers of other kinds


class OwnLoss(Trainer):
    """As TRL's trainers do: the loss is not in the model's output, and the model is called more than once."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        outputs = model(input_ids=inputs["input_ids"])
        with torch.no_grad():
            model(input_ids=inputs["input_ids"])
        loss = torch.nn.functional.cross_entropy(outputs.logits.view(-1, 64), labels.view(-1))
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("alone", [False, True])
def test_a_loss_that_the_trainer_computes_itself_is_on_the_chart(taped, tmp_path, alone):
    training = trainer(tmp_path, kind=OwnLoss, max_steps=3)
    if alone:
        training.add_callback(LossGuardCallback())
        training.train()
    else:
        guarded_train(training)
    logged = [entry["loss"] for entry in training.state.log_history if "loss" in entry]
    assert list(taped.series("train/loss").values()) == pytest.approx(logged)


class Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64)

    def forward(self, input_ids, labels, **_):
        logits = self.head(self.table(input_ids))
        return torch.nn.functional.cross_entropy(logits.view(-1, 64), labels.view(-1)), logits


@pytest.mark.parametrize("alone", [False, True])
def test_a_model_that_gives_a_tuple_and_a_short_last_group_have_the_trainers_own_losses(taped, tmp_path, alone):
    settings = {"gradient_accumulation_steps": 3, "max_steps": -1, "num_train_epochs": 2, "data": Rows(30)}
    training = trainer(tmp_path, model=Pair(), **settings)
    if alone:
        training.add_callback(LossGuardCallback())
        training.train()
    else:
        guarded_train(training)
    logged = [entry["loss"] for entry in training.state.log_history if "loss" in entry]
    assert taped.monitor.start.total_steps == training.state.global_step == len(logged)
    assert list(taped.series("train/loss").values()) == pytest.approx(logged)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at it
@pytest.mark.parametrize("alone", [False, True])
def test_a_compiled_model_is_watched(taped, tmp_path, alone):
    training = trainer(
        tmp_path, model=torch.compile(Pair(), backend="eager"), save_steps=2, max_steps=3, remove_unused_columns=False
    )
    if alone:
        training.add_callback(LossGuardCallback())
        training.train()
    else:
        training.add_callback(At(3, lambda **_: taped.rollback(2)))
        guarded_train(training)
        assert told(taped) == [RUNNING, SUCCEEDED]
    assert list(taped.series("train/loss")) == [1, 2, 3]


def test_the_best_model_at_the_end_is_the_trainers_own_after_a_rollback_too(taped, tmp_path):
    setting = {"load_best_model_at_end": True, "save_total_limit": 2, "save_steps": 2, "eval_steps": 2, "eval_strategy": "steps"}
    plain = trainer(tmp_path / "plain", eval_dataset=Rows(8), **setting)
    plain.train()
    training = trainer(tmp_path / "guarded", At(6, lambda **_: taped.rollback(4)), eval_dataset=Rows(8), **setting)
    guarded_train(training)
    assert told(taped) == [RUNNING, SUCCEEDED]
    assert torch.equal(weights(training), weights(plain))
    assert list(taped.series("eval/loss")) == [2, 4, 6]


# --- broken files, and two at once


def leaving_out(first, last):
    change = {"kind": "exclusion", "epoch": 0, "start": 0, "documents": [], "accumulation": 1, "ranges": [[first, last]]}
    return json.dumps({"version": 2, "changes": [change]})


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        '{"cuts": [{"epoch": Infinity, "start": 0, "stop": 1}]}',
        '{"cuts": 1}',
        "\x00",
        leaving_out(0, 10**15),
        leaving_out(-3, 3),
        leaving_out(3, 1),
    ],
)
def test_a_data_plan_that_cannot_be_understood_is_said_so(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(ValueError, match="mend or remove"):
        DataPlan.open(tmp_path)


@pytest.mark.parametrize(
    "content", [DEEP, "[]", "{}", '{"checkpoint": 5}', "\x00", '{"run_id": "r", "checkpoint": {"step": 1e999}}']
)
@pytest.mark.parametrize("name", [f"checkpoint-2/{MANIFEST}", ".lossguard/run.json", f".lossguard/{FILE_NAME}"])
def test_a_training_that_finds_broken_files_is_watched_all_the_same(taped, tmp_path, name, content):
    guarded_train(trainer(tmp_path, max_steps=2, save_steps=2))
    (tmp_path / name).write_text(content)
    training = trainer(tmp_path, max_steps=3, save_steps=2)
    guarded_train(training, resume_from_checkpoint=True)
    assert training.state.global_step == 3
    assert len(taped.monitors) == 2
    assert taped.series("train/loss").keys() >= {3}


@pytest.mark.parametrize("segment", [10**40, MAX_STEP, True])
def test_a_run_whose_next_segment_could_not_be_told_becomes_a_new_run(tmp_path, segment):
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "mine", "last_segment": segment}))
    found = Identity.open(tmp_path)
    assert (found.run_id != "mine", found.next_segment()) == (True, 1)


def test_two_processes_of_one_run_do_not_open_the_same_segment(tmp_path):
    first, second = Identity.open(tmp_path), Identity.open(tmp_path)
    assert first.run_id == second.run_id
    assert [first.next_segment(), second.next_segment(), first.next_segment()] == [1, 2, 3]


def test_a_rank_that_is_a_moment_late_takes_the_run_that_is_there_by_then(tmp_path, monkeypatch):
    read = identity._read

    def slow(path):
        found = read(path)
        path.write_text('{"run_id": "quicker", "last_segment": 0}')
        return found

    monkeypatch.setattr(identity, "_read", slow)
    assert Identity.open(tmp_path).run_id == "quicker"


def test_a_training_that_saves_again_does_not_wait_for_a_manifest_on_a_slow_disk(tmp_path, monkeypatch):
    reached, go_on = threading.Event(), threading.Event()

    def slow(*args, **kwargs):
        reached.set()
        assert go_on.wait(60)

    monkeypatch.setattr("trainer_agent.guest.on_disk.os.fsync", slow)
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    done = []
    inspector = Inspector(done.append)
    inspector.submit(Save("run", folder, 1, 2, 0.0))
    assert reached.wait(20)
    began = time.monotonic()
    inspector.withdraw(folder)
    inspector.submit(Save("run", folder, 2, 2, 0.0))
    assert time.monotonic() - began < 30
    go_on.set()
    assert inspector.wait(20)
    inspector.close()
    assert [facts.segment for facts in done] == [2]
    assert json.loads((folder / MANIFEST).read_text())["checkpoint"]["segment"] == 2
    assert is_id(folder.name)
    assert not list(folder.glob(".*.tmp"))


def test_training_on_by_hand_afterwards_is_a_training_without_lossguard(taped, tmp_path):
    training = trainer(tmp_path, At(4, lambda **_: taped.rollback(2, data=DataMode.SKIP)), save_steps=2)
    guarded_train(training)
    points, training.args.max_steps = len(taped.points), 8
    assert training.train(resume_from_checkpoint=True).global_step == 8
    assert len(taped.points) == points


def test_a_second_guarded_training_in_one_process_is_a_life_of_its_own(taped, tmp_path):
    training = trainer(tmp_path, save_steps=2)
    guarded_train(training)
    training.args.max_steps = 8
    guarded_train(training, resume_from_checkpoint=True)
    assert [(s.segment, s.from_step, s.cause) for s in taped.segments] == [
        (1, 0, SegmentCause.START),
        (2, 6, SegmentCause.RESTART),
    ]
    first, second = taped.monitors
    assert first.start.run_id == second.start.run_id
    assert first.start.incarnation != second.start.incarnation
