"""A small training written by hand, as a script would have it, and the real Monitor with its records at hand."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[1] / "agent"))
from training_kit import Tape, TapedMonitor, until

from trainer_agent.loop import Run, watch
from trainer_agent.training import opening

__all__ = ["Tape", "Training", "loader", "tape", "until"]

WIDTH, ROWS, BATCH = 6, 40, 4


def tape(monkeypatch, tmp_path: Path) -> Tape:
    """A tape for all monitors from now on. No server is set: the spool keeps what is sent."""
    for name in ("LOSSGUARD_URL", "LOSSGUARD_TOKEN", "LOSSGUARD_PROJECT", "LOSSGUARD_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    made = Tape()
    monkeypatch.setattr(opening, "Monitor", type("Taped", (TapedMonitor,), {"tape": made}))
    return made


def rows() -> torch.Tensor:
    """Row i begins with i, so that a batch tells which rows it is made of."""
    made = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))
    made[:, 0] = torch.arange(ROWS)
    return made


def loader(**settings: Any) -> DataLoader:
    return DataLoader(TensorDataset(rows()), **{"batch_size": BATCH, "shuffle": True} | settings)


@dataclass
class Training:
    """Everything a script has: dropout, momentum, a schedule, a scaler; and what it saw of itself, kept without LossGuard."""

    dropout: float = 0.2
    scaled: bool = True
    seed: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    rows_of: list[list[int]] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    at: dict[int, Callable[[], object]] = field(default_factory=dict)
    """Calls a function at the end of an iteration, before it is told; counted over all iterations, from 1."""
    poison: frozenset[int] = frozenset()
    """Iterations whose loss is made NaN."""

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        np.random.seed(self.seed)  # noqa: NPY002  what scripts do
        random.seed(self.seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5) if self.scaled else None
        self._done = 0

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler}

    def watch(self, folder: Path, **settings: Any) -> Run:
        return watch(**self.parts, output_dir=folder, **settings)

    @property
    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten().clone() for p in self.model.parameters()])

    def draw(self) -> torch.Tensor:
        """A batch drawn from all three generators, as scripts do."""
        other = int(np.random.randint(ROWS))  # noqa: NPY002  what scripts do
        return rows()[[int(torch.randint(ROWS, ())), other, random.randrange(ROWS)]]

    def update(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and gradient norm of one update."""
        self._done += 1
        self.rows_of.append([int(x) for x in batch[:, 0]])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.scaled):
            loss = nn.functional.mse_loss(self.model(batch / ROWS).squeeze(1), batch.sum(1) / ROWS)
        if self._done in self.poison:
            loss = loss * torch.nan
        scaler = self.scaler or torch.amp.GradScaler("cpu", enabled=False)
        scaler.scale(loss).backward()
        scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.losses.append((self._done, float(loss.detach())))
        self.norms.append(float(norm))
        if self._done in self.at:
            self.at[self._done]()
        return loss, norm

    def draws(self, steps: Any, run: Run | None = None, *, told: bool = True) -> "Training":
        """The loop over `steps`, batches drawn at random."""
        for _ in steps:
            loss, norm = self.update(self.draw())
            if run is not None:
                run.step_ended(loss=loss, grad_norm=norm if told else None)
        return self

    def over(self, batches: Any, run: Run | None = None) -> "Training":
        """The loop over the batches of a loader."""
        for (batch,) in batches:
            loss, norm = self.update(batch)
            if run is not None:
                run.step_ended(loss=loss, grad_norm=norm)
        return self
