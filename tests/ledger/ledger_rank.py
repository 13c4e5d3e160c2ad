"""Trainings of two ranks on gloo, a Trainer's and hand-written ones, each with a book of its own of the rows it saw.

    python ledger_rank.py FOLDER '[{"name": "a", "workers": 0, "accumulation": 1, "loop": false}, ...]'

Does them one after the other in the same two processes. FOLDER/NAME-RANK.json: step to rows, as the model saw them.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import training_kit as kit
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.utils.data import DataLoader, DistributedSampler

from trainer_agent.hf import guarded_train
from trainer_agent.loop import watch

ROWS, STEPS = 46, 9


class OwnBook(kit.Book):
    """Without the scaler's scales."""

    def on_step_end(self, args, state, control, **kwargs):
        self.rows[state.global_step], self._batch = self._batch, []


def of_trainer(folder, wanted):
    book = OwnBook()
    settings = {"gradient_accumulation_steps": wanted["accumulation"], "dataloader_num_workers": wanted["workers"]}
    plan = {"max_steps": STEPS, "save_strategy": "no", "ddp_backend": "gloo", "train_sampling_strategy": wanted["sampling"]}
    guarded_train(kit.trainer(folder, book, data=kit.Rows(ROWS), **settings, **plan))
    return book.rows


def by_hand(folder, wanted):
    data = kit.Rows(ROWS)
    sampler = DistributedSampler(data, shuffle=wanted["sampling"] == "random", seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=wanted["workers"])
    model, rows, batch = torch.nn.Linear(1, 1), {}, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, output_dir=folder) as run:
        for number, items in enumerate(run.batches(loader, max_steps=STEPS)):
            batch += kit.row_numbers(items["input_ids"])
            loss = model(items["input_ids"][:, :1].float()).square().mean()
            loss.backward()
            if (number + 1) % wanted["accumulation"] == 0:
                optimizer.step()
                optimizer.zero_grad()
                run.step_ended(loss=loss)
                rows[run.step + 1], batch = batch, []
    return rows


def main(folder, trainings):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for wanted in json.loads(trainings):
        rows = (by_hand if wanted["loop"] else of_trainer)(Path(folder) / wanted["name"], wanted)
        (Path(folder) / f"{wanted['name']}-{dist.get_rank()}.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    place = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0", "start_method": "fork"}
    settings = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=0, **place)
    elastic_launch(settings, main)(*sys.argv[1:3])
