"""Two ranks of a training, of which one loses all rows of a batch to an exclude.

    python exclude_ranks.py FOLDER

Forks the ranks once the imports are done. Each does two trainings, in the Trainer of transformers and by hand in DDP, and
leaves the series and weights of each in FOLDER/trainer or FOLDER/loop, rank-R.pt.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path += [str(Path(__file__).parents[1] / name) for name in ("agent", "exclude")]
from exclude_kit import SETTING, At, Papers, Quick, excluding
from training_kit import Tape, TapedMonitor, trainer, weights

from trainer_agent.hf import guarded_train
from trainer_agent.loop import watch
from trainer_agent.training import opening
from trainer_agent.wire.vocabulary import DataMode

TARGET, LEFT, LAST = 2, 5, 6
BAD = range(28, 32)
"""In steps of two batches of four, the fourth is rows 24 to 31: those of rank 1 are bad."""
SERIES = ("train/loss", "train/grad_norm", "train/learning_rate", "amp/loss_scale")


def in_trainer(folder, taped):
    def order(**_):
        if dist.get_rank() == 0:
            excluding(TARGET)(taped)

    setting = SETTING | {"train_sampling_strategy": "sequential", "max_steps": LAST, "save_steps": TARGET, "kind": Quick}
    made = trainer(folder / "out", At(LEFT, order), data=Papers(80, BAD), ddp_backend="gloo", **setting)
    guarded_train(made)
    return weights(made)


class Loop:
    """A model by hand, with dropout and a scaler. `bad`: the loss of a stand-in is made infinite."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)

    def loss(self, model, batch, weight):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(batch).squeeze(1), batch.sum(1))
        self.scaler.scale(loss * weight if weight else loss * torch.inf).backward()
        return loss

    def update(self):
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return norm


def rows():
    return torch.randn(80, 3, generator=torch.Generator().manual_seed(5))


def in_loop(folder, taped):
    loop, data = Loop(), TensorDataset(rows())
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = nn.parallel.DistributedDataParallel(loop.model, broadcast_buffers=False)
    torch.manual_seed(dist.get_rank())  # each rank its own dropout
    with watch(model, loop.optimizer, scaler=loop.scaler, output_dir=folder / "out", save_every=TARGET) as run:
        for done, (batch,) in enumerate(run.batches(loader, LAST, weighted=True), 1):
            loss = loop.loss(model, batch, run.weight)
            norm = loop.update()
            if done == LEFT and dist.get_rank() == 0:
                taped.rollback(TARGET, data=DataMode.EXCLUDE, exclude_samples=BAD_OF_LOOP)
            run.step_ended(loss=loss, grad_norm=norm)
    return torch.cat([weight.detach().flatten() for weight in [*loop.model.parameters(), *loop.model.buffers()]])


BAD_OF_LOOP = tuple(range(25, 33, 2))
"""A DistributedSampler deals out sample by sample: the fourth batch of rank 1."""


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for kind, train in (("trainer", in_trainer), ("loop", in_loop)):
        one(Path(folder) / kind, train)
    dist.destroy_process_group()


def one(folder, train):
    folder.mkdir(exist_ok=True)
    taped = Tape()
    opening.Monitor = type("Taped", (TapedMonitor,), {"tape": taped})
    left = train(folder, taped)
    series = {name: taped.series(name, 2) for name in SERIES}
    reports = [(report.state, report.reason) for report in taped.reports]
    torch.save({"weights": left, "series": series, "reports": reports}, folder / f"rank-{dist.get_rank()}.pt")


if __name__ == "__main__":
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method="fork",
        max_restarts=0,
    )
    elastic_launch(settings, main)(sys.argv[1])
