"""Trainings on several ranks that are told what to do at random moments, by a person who is a thread of rank 0.

    python rank_orders.py FOLDER RANKS SEED '[{"name": "a", "kind": "trainer", "orders": ["rollback", "stop"]}, ...]'

`kind`: `trainer` (the Trainer of transformers) or `loop` (a hand-written one); with `"accelerate": true` the loop saves through
accelerate. Orders are those of a command, a number after a colon being its value, and `rollback` goes to a checkpoint picked at
random. All trainings run one after the other in the same processes; each rank loses time at random.

Each rank keeps its own book in FOLDER/NAME/RANK.jsonl, so that the tests need not believe what LossGuard says: for every update
its step, a digest of the weights after it, the learning rate it was made with and the norm of the gradients that it saw. Rank 0
writes FOLDER/NAME/orders.jsonl: each order, how it ended and how long that took.
"""

import hashlib
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainer_agent.hf import guarded_train
from trainer_agent.loop import watch
from trainer_agent.monitor import Monitor
from trainer_agent.training import opening
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, Reply, Report
from trainer_agent.wire.vocabulary import CheckpointState, CommandKind, CommandState

ENDS = {CommandState.SUCCEEDED, CommandState.FAILED, CommandState.REJECTED}
HUNG_SECONDS = 60.0
WORDS, LENGTH = 32, 8


class Told(Monitor):
    """The real one; what it records can be read, and commands come to it as with a reply of the server."""

    now = None

    def begin(self):
        self.checkpoints, self.reports = {}, {}
        Told.now = self
        super().begin()

    def record(self, record):
        if isinstance(record, CheckpointSaved):
            self.checkpoints[record.checkpoint_id] = record
        if isinstance(record, Report) and record.state in ENDS:
            self.reports[record.command_id] = record
        super().record(record)

    def command(self, name, order, chosen):
        kind, _, value = order.partition(":")
        rollback = RollbackPayload(chosen.checkpoint_id, chosen.step, self.segment + 1) if chosen else None
        made_for = (self.start.incarnation, self.segment, 600.0, 600.0)
        command = Command(name, CommandKind(kind), *made_for, rollback=rollback, value=float(value) if value else None)
        self._on_reply(Reply(next_seq=1, commands=(command,)))


opening.Monitor = Told


class Person(threading.Thread):
    """Gives the orders of one training, each at a random moment after the one before was answered."""

    def __init__(self, folder, orders, made):
        super().__init__(daemon=True)
        self.folder, self.orders, self.made, self.is_over = folder, orders, made, threading.Event()

    def run(self):
        Told.now = None
        with (self.folder / "orders.jsonl").open("a") as book:
            for number, order in enumerate(self.orders):
                self.wait(self.made.randrange(9) + self.made.random())
                told = self.give(f"c{number}", order)
                book.write(json.dumps(told) + "\n")
                book.flush()
                if told["state"] == "hung":
                    os._exit(3)  # torchrun's launcher ends the others

    def wait(self, steps):
        """So many steps, the last in part; a pause makes none, so not for long."""
        monitor = self.until(lambda: Told.now)
        begun, deadline = monitor._writer.step or 0, time.monotonic() + 1.0
        while abs((monitor._writer.step or 0) - begun) < int(steps) and time.monotonic() < deadline:
            time.sleep(0.003)
        time.sleep(steps % 1 * 0.02)

    def give(self, name, order):
        monitor, chosen = self.until(lambda: Told.now), None
        if order == "rollback":
            chosen = self.until(lambda: self.choose(monitor))
        began = time.monotonic()
        monitor.command(name, order, chosen)
        report = self.until(lambda: monitor.reports.get(name))
        said = (report.state, report.step, report.reason) if report else ("hung", None, "")
        told = {"order": order, "to": chosen and chosen.step, "seconds": time.monotonic() - began}
        return told | dict(zip(("state", "step", "reason"), said, strict=True))

    def choose(self, monitor):
        good = [each for each in list(monitor.checkpoints.values()) if each.state is CheckpointState.COMPLETE]
        done = monitor._writer.step or 0
        good = [each for each in good if not each.sick_because and each.step <= done]
        return self.made.choice(good) if good else None

    def until(self, look):
        deadline = time.monotonic() + HUNG_SECONDS
        while not (found := look()) and time.monotonic() < deadline:
            time.sleep(0.003)
        return found


class Book:
    """What one rank knows of its own updates."""

    def __init__(self, folder, own):
        self.file, self.own, self.rate, self.norm = (folder / f"{dist.get_rank()}.jsonl").open("a"), own, None, None

    def attach(self, optimizer):
        """After LossGuard's own hooks, so that it sees what the update is made with."""
        optimizer.register_step_pre_hook(self.see)

    def see(self, optimizer, args, kwargs):
        group = optimizer.param_groups[0]
        self.rate = float(group["lr"])
        self.norm = float(torch.nn.utils.get_total_norm([weight.grad for weight in group["params"] if weight.grad is not None]))

    def write(self, step, model):
        digest = hashlib.sha256()
        for weight in model.parameters():
            digest.update(weight.detach().numpy().tobytes())
        entry = {"step": step, "digest": digest.hexdigest(), "rate": self.rate, "norm": self.norm, "time": time.time()}
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()
        time.sleep(max(0.0, self.own.gauss(0.004, 0.006)))


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randint(0, WORDS, (512, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def model():
    config = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**config, bos_token_id=0, eos_token_id=0))


class Callback(TrainerCallback):
    def __init__(self, book):
        self.book, self.optimizer = book, None

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        if self.optimizer is not optimizer:
            self.optimizer = optimizer
            self.book.attach(optimizer.optimizer)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.book.write(state.global_step, model)


def by_trainer(wanted, folder, book):
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=2,
        max_steps=100_000,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        use_cpu=True,
        ddp_backend="gloo",
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model(), args=arguments, train_dataset=Rows(), callbacks=[Callback(book)])
    trainer.remove_callback(PrinterCallback)
    guarded_train(trainer, run_id=wanted["name"])


def by_loop(wanted, folder, book):
    torch.manual_seed(dist.get_rank())  # each rank has dropout of its own
    prepared, accelerator, optimizer, loader = parts(accelerate=wanted.get("accelerate", False))
    settings = {"accelerator": accelerator} if accelerator else {}
    with watch(prepared, optimizer, output_dir=folder / "out", save_every=4, keep=1000, run_id=wanted["name"], **settings) as run:
        batches = run.batches(loader)
        for number, batch in enumerate(batches):
            if not number:
                book.attach(getattr(optimizer, "optimizer", optimizer))
            loss = prepared(**batch).loss
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(prepared.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            run.step_ended(loss=loss, grad_norm=norm)
            book.write(run.step + 1, prepared)


def parts(*, accelerate):
    bare, data = model(), Rows()
    if accelerate:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3)
        made = accelerator.prepare(bare, optimizer, DataLoader(data, batch_size=2, shuffle=True))
        return made[0], accelerator, made[1], made[2]
    ours = DistributedDataParallel(bare)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=1e-3)
    return ours, None, optimizer, DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=True, seed=3))


def one(parent, seed, wanted):
    torch.manual_seed(0)
    folder = parent / wanted["name"]
    folder.mkdir(parents=True, exist_ok=True)
    rank = dist.get_rank()
    book = Book(folder, random.Random(f"{seed} {wanted['name']} {rank}"))
    person = Person(folder, wanted["orders"], random.Random(f"{seed} {wanted['name']}"))
    dist.barrier()
    if rank == 0:
        person.start()
    {"trainer": by_trainer, "loop": by_loop}[wanted["kind"]](wanted, folder, book)
    person.is_over.set()
    if rank == 0:
        person.join(HUNG_SECONDS)
    dist.barrier()


def main(folder, ranks, seed, trainings):
    del ranks
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for wanted in json.loads(trainings):
        one(Path(folder), seed, wanted)
    dist.destroy_process_group()


def launch():
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=int(sys.argv[2]),
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        start_method="fork",
        max_restarts=0,
    )
    elastic_launch(settings, main)(*sys.argv[1:])


if __name__ == "__main__":
    launch()
