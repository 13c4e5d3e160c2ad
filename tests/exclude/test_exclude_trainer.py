"""A rollback that leaves a document out equals, to the last bit, a training whose data never had it."""

import pytest
import torch
from exclude_kit import (
    SETTING,
    At,
    Book,
    Papers,
    Quick,
    Rows,
    equal,
    excluding,
    guarded_train,
    never_had,
    succeeded,
    tape,
    trainer,
    weights,
)
from exclude_reference import Reference
from torch.utils.data import DataLoader, IterableDataset

from trainer_agent.data.plan import DataPlan, Exclusion
from trainer_agent.hf import data as hf_data
from trainer_agent.wire.vocabulary import CommandState, DataMode

WHOLE = range(20, 28)  # two whole batches of four, where the order is that of the data
SPREAD = (6, 17, 18, 21, 23, 30, 31, 39)


@pytest.fixture
def taped(monkeypatch, tmp_path):
    return tape(monkeypatch, tmp_path)


def drawn(strategy: str, epoch: int, rows: int = 40, batch: int = 4) -> list[list[int]]:
    """The batches of an epoch, as the Trainer's sampler draws them."""
    generator = torch.Generator().manual_seed(7 + epoch)
    order = torch.randperm(rows, generator=generator).tolist() if strategy == "random" else list(range(rows))
    return [order[at : at + batch] for at in range(0, rows, batch)]


def check(taped, tmp_path, bad, strategy, target=4, left=6):
    """Trains to `left`, goes back to `target` without the document and on; against one whose batches lack it from there on.

    Up to the shorter end of data: where a step was left empty, to the end of the epoch that is shorter for it.
    """
    data = Papers(40, bad)
    lists = drawn(strategy, 0)
    epochs = [lists[:target] + [rest for each in lists[target:] if (rest := [row for row in each if row not in data.bad])]]
    if len(epochs[0]) == len(lists):
        epochs.append([[row for row in each if row not in data.bad] for each in drawn(strategy, 1)][:3])
    kept = [each for epoch in epochs for each in epoch]
    setting = SETTING | {"train_sampling_strategy": strategy, "max_steps": len(kept), "kind": Quick}
    reference, book = never_had(tmp_path / "reference", epochs, data, **setting)
    again = Book()
    order = At(left + 1, lambda **_: excluding(target)(taped))
    training = trainer(tmp_path / "guarded", again, order, data=data, **setting)
    guarded_train(training)
    assert succeeded(taped)
    assert [again.rows[step] for step in range(target + 1, len(kept) + 1)] == kept[target:]
    equal(taped, 2, range(target + 1, len(kept) + 1), book)
    assert again.scales[target - len(kept) :] == book.scales[target:]
    assert torch.equal(weights(training), weights(reference))


@pytest.mark.parametrize(("bad", "strategy"), [(WHOLE, "sequential"), (SPREAD, "random")])
def test_exclude_equals_a_training_that_never_had_the_document(taped, tmp_path, bad, strategy):
    """Dropout on, fp16 with a scaler that grows, warm-up; with the spread document over the end of an epoch."""
    check(taped, tmp_path, bad, strategy)
    second = taped.segments[1].attributes
    assert (second["data"], second["excluded_samples"], second["excluded_documents"]) == ("exclude", 8, "bad")


# --- a step of several micro-batches, one of them left empty


ONE_OF_THREE = range(52, 56)  # the second micro-batch of step 5 of 12 rows each


def check_accumulated(taped, tmp_path, target=3, last=7):
    data = Papers(100, ONE_OF_THREE)
    setting = SETTING | {
        "train_sampling_strategy": "sequential",
        "max_steps": last,
        "kind": Quick,
        "gradient_accumulation_steps": 3,
    }
    setting |= {"save_steps": target}
    training = trainer(tmp_path / "guarded", At(7, lambda **_: excluding(target)(taped)), data=data, **setting)
    guarded_train(training)
    assert succeeded(taped)
    reference = Reference(tmp_path, data, last)
    reference.load(tmp_path / "guarded" / f"checkpoint-{target}")
    for step in range(target, last):
        batches = [list(range(at, at + 4)) for at in range(step * 12, step * 12 + 12, 4)]
        reference.step([batch for batch in batches if batch[0] not in data.bad])
    steps = range(target + 1, last + 1)
    assert [taped.series("train/loss", 2)[step] for step in steps] == reference.losses
    assert [taped.series("train/grad_norm", 2)[step] for step in steps] == reference.norms
    assert [taped.series("train/learning_rate", 2)[step] for step in steps] == reference.rates
    assert [taped.series("amp/loss_scale", 2)[step] for step in steps][1:] == reference.scales[:-1]
    assert torch.equal(weights(training), weights(reference))


def test_an_emptied_micro_batch_teaches_nothing_and_is_not_counted(taped, tmp_path):
    check_accumulated(taped, tmp_path)


def counts_stand_ins(monkeypatch):
    monkeypatch.setattr(hf_data.TrainerData, "_look", lambda self, count: None)


def forgets_the_divisor(monkeypatch):
    monkeypatch.setattr(hf_data, "_uncounted", lambda batches, counts, swapped: batches)


def leaves_out_from_the_start(monkeypatch):
    monkeypatch.setattr(Exclusion, "starts_in", lambda self, epoch: 0)


@pytest.mark.parametrize("broken", [counts_stand_ins, forgets_the_divisor])
def test_the_check_of_an_emptied_micro_batch_can_fail(taped, tmp_path, monkeypatch, broken):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_accumulated(taped, tmp_path)


def test_the_check_of_the_target_can_fail(taped, tmp_path, monkeypatch):
    """Batches before the target were trained with the document; left out there too, all later ones would move."""
    leaves_out_from_the_start(monkeypatch)
    with pytest.raises(AssertionError):
        check(taped, tmp_path, (4, 5, 6, 7, *WHOLE), "sequential")


# --- what comes later


def test_what_was_left_out_stays_out_after_a_restart_a_later_rollback_and_a_later_skip(taped, tmp_path):
    """Two documents at different times, a skip between them, a rollback to before both, and a new process at each turn."""
    data = Papers(60, WHOLE)
    setting = {"data": data, "train_sampling_strategy": "sequential", "save_steps": 2, "kind": Quick, "fp16": True}
    batch = [list(range(at, at + 4)) for at in range(0, 60, 4)]
    first, second, third, fourth = Book(), Book(), Book(), Book()

    guarded_train(trainer(tmp_path, first, At(8, lambda **_: excluding(4)(taped)), max_steps=9, **setting))
    assert [first.rows[step] for step in range(5, 10)] == [batch[4], *batch[7:11]]  # without 5 and 6

    skip = At(10, lambda **_: taped.rollback(8, "c2", DataMode.SKIP, skip_from_step=9, skip_to_step=9))
    guarded_train(trainer(tmp_path, second, skip, max_steps=11, **setting), resume_from_checkpoint=True)
    assert [second.rows[step] for step in range(9, 12)] == batch[11:14]

    exclude = excluding(8, ("good 0",), "c3")
    guarded_train(
        trainer(tmp_path, third, At(12, lambda **_: exclude(taped)), max_steps=12, **setting), resume_from_checkpoint=True
    )
    rest = [[row for row in each if row % 3] for each in batch]
    assert [third.rows[step] for step in range(9, 13)] == [*rest[11:15]]

    back = At(13, lambda **_: taped.rollback(2, "c4"))
    guarded_train(trainer(tmp_path, fourth, back, max_steps=14, **setting), resume_from_checkpoint=True)
    assert succeeded(taped, "c4")
    assert [fourth.rows[step] for step in range(3, 15)] == [*rest[2:5], *rest[7:10], *rest[11:15], *rest[0:2]]
    assert not data.bad & {row for step in range(3, 15) for row in fourth.rows[step]}


def test_a_skip_over_the_end_of_an_epoch_passes_over_the_batches_of_both(taped, tmp_path):
    book, data = Book(), Papers(40)
    order = At(13, lambda **_: taped.rollback(8, data=DataMode.SKIP, skip_from_step=10, skip_to_step=12))
    guarded_train(trainer(tmp_path, book, order, data=data, train_sampling_strategy="sequential", max_steps=14, save_steps=4))
    batch = drawn("sequential", 0)
    assert [book.rows[step] for step in range(9, 15)] == [batch[8], batch[0], *batch[2:6]]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"exclude_documents": ("worse",)}, "no sample is of the document 'worse'"),
        ({"exclude_samples": (40,)}, "has 40 samples, and none with the number 40"),
        ({"exclude_samples": tuple(range(40))}, "all 40 samples"),
        ({}, "names no samples and no documents"),
    ],
)
def test_an_exclude_that_cannot_be_done_is_refused_and_the_training_goes_on(taped, tmp_path, wanted, reason):
    book = Book()
    order = At(5, lambda **_: taped.rollback(2, data=DataMode.EXCLUDE, **wanted))
    guarded_train(trainer(tmp_path, book, order, data=Papers(40, WHOLE), max_steps=6, save_steps=2))
    assert [report.state for report in taped.reports] == [CommandState.REJECTED]
    assert reason in taped.reports[-1].reason
    assert book.steps == list(range(1, 7))
    assert DataPlan.open(tmp_path / ".lossguard").changes == ()


def test_data_without_documents_say_what_to_do(taped, tmp_path):
    order = At(5, lambda **_: excluding(2)(taped))
    guarded_train(trainer(tmp_path, order, data=Rows(40), max_steps=6, save_steps=2))
    assert "give document_of=" in taped.reports[-1].reason


class Stream(IterableDataset):
    def __iter__(self):
        rows = Rows(40)
        return (rows[index] for index in range(40))


def test_a_run_says_what_a_rollback_can_do_with_its_data(taped, tmp_path):
    guarded_train(trainer(tmp_path / "a", data=Rows(40), max_steps=1))
    guarded_train(trainer(tmp_path / "b", data=Stream(), max_steps=1))
    first, second = (monitor.start for monitor in taped.monitors)
    assert (first.data_modes, first.data_modes_because) == (tuple(DataMode), "")
    assert second.data_modes == (DataMode.REPLAY,)
    assert "iterable" in second.data_modes_because


class Turned(Papers):
    """The samples the other way round."""

    def __getitem__(self, index):
        return super().__getitem__(len(self) - 1 - index)


class Reading(Quick):
    """Reads other data than it was given."""

    def get_train_dataloader(self):
        collate = self._get_collator_with_removed_columns(self.data_collator)
        return self.accelerator.prepare(DataLoader(Turned(40, self.bad), batch_size=4, collate_fn=collate))


@pytest.mark.parametrize("given", [40, 20, 0])
def test_samples_are_those_of_the_data_that_the_loader_reads(taped, tmp_path, given):
    Reading.bad, book = range(24, 32), Book()
    order = At(7, lambda **_: excluding(4)(taped))
    training = trainer(tmp_path, book, order, data=Papers(given or 40, range(4)), kind=Reading, max_steps=10, save_steps=4)
    training.train_dataset = training.train_dataset if given else None
    guarded_train(training)
    assert succeeded(taped)
    assert taped.segments[-1].attributes["excluded_samples"] == 8
    assert not any(set(book.rows[step]) & set(range(24, 32)) for step in range(5, 11))
    assert book.rows[5] == [23, 22, 21, 20]
