"""A small training under accelerate, as a script would have it: accumulation, a scaler, a registered object, tied weights."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from loops_kit import WIDTH, loader
from torch import nn

from trainer_agent.loop import Run, watch

ACCUMULATION = 2


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out_of = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out_of.weight = self.into.weight
        self.drop, self.norm, self.head = nn.Dropout(0.2), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.head(self.norm(self.drop(self.out_of(torch.tanh(self.into(x))))))


class Average:
    """What a script registers for checkpointing: a thing with a state."""

    def __init__(self) -> None:
        self.value, self.count = 0.0, 0

    def take(self, loss: float) -> None:
        self.value, self.count = self.value * 0.9 + loss, self.count + 1

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value, self.count = state["value"], state["count"]


class Accelerated:
    """Everything a script has, and what it saw of itself, kept without LossGuard."""

    def __init__(self, seed: int = 0, *, scaled: bool = True, dropout: float = 0.2) -> None:
        from accelerate.state import AcceleratorState, GradientState

        AcceleratorState._reset_state(reset_partial_state=True)  # each training of a test is a process of its own
        GradientState._reset_state()
        torch.manual_seed(seed)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
        if scaled:  # which accelerate leaves out on the CPU
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5)
        model = Tied()
        model.drop.p = dropout
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.9)
        self.model, self.optimizer, self.schedule, self.loader = self.accelerator.prepare(model, optimizer, schedule, loader())
        self.average = Average()
        self.accelerator.register_for_checkpointing(self.average)
        self.losses: list[float] = []
        self.averages: list[float] = []
        self.at: dict[int, Any] = {}

    def watch(self, folder: Path, **settings: Any) -> Run:
        given = {"accelerator": self.accelerator} | settings
        return watch(self.model, self.optimizer, self.schedule, output_dir=folder, **given)

    @property
    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten().clone() for p in self.model.parameters()])

    def over(self, batches: Any, run: Run | None = None) -> "Accelerated":
        """The loop over batches; `at` calls a function at the end of an iteration, counted from 1."""
        for (batch,) in batches:
            with self.accelerator.accumulate(self.model):
                loss = (self.model(batch / 40).squeeze(1) - batch.sum(1) / 40).square().mean()
                self.accelerator.backward(loss)
                norm = self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0) if self.accelerator.sync_gradients else None
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            self.average.take(loss.item())
            self.losses.append(loss.item())
            self.averages.append(self.average.value)
            if run is not None:
                run.step_ended(loss=loss, grad_norm=norm)
            if len(self.losses) in self.at:
                self.at[len(self.losses)]()
        return self
