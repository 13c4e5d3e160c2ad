"""A training in which everything that can be forgotten matters, in the Trainer and by hand, and how two of them differ.

Dropout, fp16 with a loss scaler that grows every 7 steps, fused AdamW, a warm-up that crosses step 20, an epoch that ends at step
22, and a collator that draws from Python's and NumPy's generators.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("agent", "loops")]
from training_kit import VOCABULARY, At, Book, HalfTrainer, Rows, model, trainer

STEPS, TARGET, LEFT = 40, 20, 25
BATCH, EPOCH_STEPS = 4, 22
WARM_UP = 25
FIRST_SCALE, GROWTH = 1024.0, 7


def collate(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One token of each row is drawn by Python's generator, another by NumPy's; the first two tell the row and stay."""
    rows = torch.stack([item["input_ids"] for item in items]).clone()
    for row in rows:
        row[2 + random.randrange(3)] = random.randrange(VOCABULARY)
        row[5 + int(np.random.randint(3))] = int(np.random.randint(VOCABULARY))  # noqa: NPY002  what collators do
    return {"input_ids": rows, "labels": rows.clone()}


def seed() -> None:
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002  what scripts do
    random.seed(7)


@dataclass
class Track:
    """What one training did, by its own book: a value for each step it took, steps that came again included."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    weights: torch.Tensor | None = None

    def again(self, target: int, left: int) -> "Track":
        """What it has to be when it went back from `left` to `target`."""
        parts = {name: getattr(self, name) for name in SERIES}
        return Track(**{name: all_[:left] + all_[target:] for name, all_ in parts.items()}, weights=self.weights)


SERIES = ("steps", "losses", "norms", "rates", "scales", "rows")


def differences(found: Track, wanted: Track) -> list[str]:
    """What is not equal to the last bit, by name."""
    told = [name for name in SERIES if getattr(found, name) != getattr(wanted, name)]
    same = found.weights is not None and wanted.weights is not None and torch.equal(found.weights, wanted.weights)
    return told if same else [*told, "weights"]


class GrowingTrainer(HalfTrainer):
    """A loss scale that grows often, so that its count matters."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=FIRST_SCALE, growth_interval=GROWTH)


class Track40(Book):
    """The book of a Trainer, in the order in which the steps were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.track = Track()

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        super().on_step_end(args, state, control, optimizer=optimizer, **kwargs)
        self.track.steps.append(state.global_step)
        self.track.scales.append(optimizer.scaler.get_scale())
        self.track.rows.append(self.rows[state.global_step])

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "grad_norm" in logs:
            self.track.losses.append(logs["loss"])
            self.track.norms.append(logs["grad_norm"])
            self.track.rates.append(logs["learning_rate"])


def hf_training(folder: Path, *callbacks: Any, **changes: Any) -> tuple[Any, Track40]:
    """A Trainer over the subject, and its book."""
    seed()
    book = Track40()
    settings = {
        "max_steps": STEPS,
        "save_steps": 10,
        "warmup_steps": WARM_UP,
        "optim": "adamw_torch_fused",
        "fp16": True,
        "logging_nan_inf_filter": False,
    }
    made = trainer(
        folder, book, *callbacks, kind=GrowingTrainer, dropout=0.1, data=Rows(BATCH * EPOCH_STEPS), **settings | changes
    )
    made.data_collator = collate
    return made, book


def flat(of: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in of.parameters()])


class ByHand:
    """The same training as a script would have it."""

    def __init__(self, *, order: Any = None) -> None:
        seed()
        self.track = Track()
        self.model = model(dropout=0.1)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=FIRST_SCALE, growth_interval=GROWTH)
        data = Rows(BATCH * EPOCH_STEPS)
        self.loader = DataLoader(data, batch_size=BATCH, shuffle=order is None, sampler=order, collate_fn=collate)

    def twice(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches of two epochs, without LossGuard."""
        for _ in range(2):
            yield from self.loader

    def train(self, batches: Iterable[Any], run: Any = None, at: dict[int, Callable[[], object]] | None = None) -> Track:
        """Over the batches, up to the last step. `at`: called after so many iterations, before the step is told."""
        track = self.track
        for done, batch in enumerate(batches, 1):
            step = done if run is None else run.step + 1
            loss, norm, rate = self.update(batch)
            track.steps.append(step)
            track.losses.append(float(loss))
            track.norms.append(float(norm))
            track.rates.append(rate)
            track.scales.append(self.scaler.get_scale())
            track.rows.append((batch["input_ids"][:, 0] * VOCABULARY + batch["input_ids"][:, 1]).tolist())
            if at and done in at:
                at[done]()
            if run is not None:
                run.step_ended(loss=loss, grad_norm=norm)
            elif done == STEPS:
                break
        track.weights = flat(self.model)
        return track

    def update(self, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Loss, gradient norm and learning rate of one update."""
        with torch.autocast("cpu", dtype=torch.float16):
            loss = self.model(**batch).loss
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        rate = self.optimizer.param_groups[0]["lr"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        return loss.detach(), norm, rate


__all__ = ["LEFT", "STEPS", "TARGET", "At", "ByHand", "Track", "Track40", "differences", "flat", "hf_training"]
