"""Trainings whose samples name their document, references that never had it, and what both are compared by."""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils.data import DataLoader

sys.path.append(str(Path(__file__).parents[1] / "agent"))
from training_kit import At, Book, HalfTrainer, Rows, Tape, tape, trainer, weights
from transformers import Trainer

from trainer_agent.hf import guarded_train
from trainer_agent.wire import series
from trainer_agent.wire.vocabulary import CommandState, DataMode

__all__ = ["At", "Book", "Papers", "Quick", "Rows", "Tape", "guarded_train", "tape", "trainer", "weights"]

SERIES = ((series.LOSS, "loss"), (series.GRAD_NORM, "grad_norm"), (series.LEARNING_RATE, "learning_rate"))
SETTING = {"dropout": 0.1, "fp16": True, "save_steps": 4, "warmup_steps": 3}


class Papers(Rows):
    """Rows of documents. `document(i)` names that of row i; the collator leaves the name away."""

    def __init__(self, count: int, bad: Sequence[int] = ()) -> None:
        super().__init__(count)
        self.bad = frozenset(bad)

    def __getitem__(self, index):
        return super().__getitem__(index) | {"document_id": self.document(index)}

    def document(self, index: int) -> str:
        return "bad" if index in self.bad else f"good {index % 3}"


class Quick(HalfTrainer):
    """A scaler that grows within a test."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.accelerator.scaler is not None:
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)


class Epochs:
    """Batches that are given as lists, epoch by epoch; the first tells how long one is."""

    def __init__(self, epochs: Sequence[Sequence[list[int]]]) -> None:
        self.epochs, self.epoch = epochs, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        return iter(self.epochs[self.epoch])

    def __len__(self) -> int:
        return len(self.epochs[0])


class Given(Quick):
    """Trains on such batches."""

    epochs: Sequence[Sequence[list[int]]] = ()

    def get_train_dataloader(self):
        data, _ = self.train_dataset, None
        collate = self._get_collator_with_removed_columns(self.data_collator)
        made = DataLoader(data, batch_sampler=Epochs(self.epochs), collate_fn=collate)
        return self.accelerator.prepare(made)


def never_had(folder: Path, epochs: Sequence[Sequence[list[int]]], data: Rows, **setting) -> tuple[Trainer, Book]:
    """A straight training on these batches, without LossGuard."""
    book = Book()
    made = trainer(folder, book, data=data, **setting | {"kind": Given})
    made.epochs = epochs
    made.train()
    return made, book


def excluding(target: int, documents=("bad",), name="c1", **more):
    """Orders a rollback that leaves documents out."""
    return lambda taped: taped.rollback(target, name, DataMode.EXCLUDE, exclude_documents=documents, **more)


def succeeded(taped: Tape, name: str = "c1") -> bool:
    return [report.state for report in taped.reports if report.command_id == name][-1:] == [CommandState.SUCCEEDED]


def equal(taped: Tape, segment: int, steps: range, reference: Book) -> None:
    """Losses, norms and rates of a segment, to the last bit."""
    for name, key in SERIES:
        told = taped.series(name, segment)
        assert {step: told[step] for step in steps} == {step: reference.logs[step][key] for step in steps}, name
