"""Trainings under torchrun for the tests of ranks: a tiny GPT-2 in the Trainer of transformers, gloo on the CPU.

    torchrun --nproc-per-node 2 rank_training.py FOLDER '[{"name": "a", "steps": 30, ...}, ...]'

Does the trainings one after the other in the same processes. Each rank keeps its own book in FOLDER/NAME, so that the tests need
not believe what LossGuard says of it: `steps-RANK.jsonl` with step, raw loss and time of each update, and
`weights-RANK.jsonl` with a digest of the weights when a `train()` begins and ends.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainer_agent.hf import LossGuardCallback, guarded_train
from trainer_agent.monitor import Monitor
from trainer_agent.policy import Policy
from trainer_agent.ranks import LIMIT_SECONDS, Ranks

ROWS, LENGTH, WORDS = 2000, 8, 32


class Rows(Dataset):
    def __init__(self, count):
        self.rows = torch.randint(0, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(1))
        number = torch.arange(count)
        self.rows[:, 0], self.rows[:, 1], self.rows[:, 2] = number // WORDS**2, number // WORDS % WORDS, number % WORDS

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Training(Trainer):
    """Its loss is NaN on one rank at one step, where wanted. The gradient of that rank is left alone."""

    wanted: dict
    raw = 0.0
    rows = ()

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.raw = loss.item()
        self.rows = [*self.rows, *(inputs["input_ids"][:, :3] @ torch.tensor([WORDS**2, WORDS, 1])).tolist()]
        nan_rank, nan_at = self.wanted.get("nan", (-1, -1))
        bad = dist.get_rank() == nan_rank and self.state.global_step + 1 == nan_at
        return loss * float("nan") if bad else loss


class Book(TrainerCallback):
    def __init__(self, folder, wanted):
        self.folder, self.wanted, self.rank, self.trainer = folder, wanted, dist.get_rank(), None

    def write(self, name, **entry):
        with (self.folder / f"{name}-{self.rank}.jsonl").open("a") as book:
            book.write(json.dumps(entry) + "\n")

    def weights(self, state, model):
        digest = hashlib.sha256()
        for weight in model.parameters():
            digest.update(weight.detach().numpy().tobytes())
        self.write("weights", step=state.global_step, digest=digest.hexdigest(), time=time.time())

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.weights(state, model)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        self.weights(state, model)

    def on_step_begin(self, args, state, control, **kwargs):
        step, wanted = state.global_step + 1, self.wanted
        if wanted.get("kill") == [self.rank, step]:
            self.write("killed", time=time.time())
            os.kill(os.getpid(), signal.SIGKILL)
        gate = wanted.get("gate_every")
        if gate and self.rank == 0 and (step - 1) % gate == 0:
            Path(wanted["gate"]).write_text("hung" if (step - 1) // gate % 4 in {1, 2} else "open")
        time.sleep(wanted.get("step_seconds", 0.0) + (wanted["slow"][1] if wanted.get("slow", [None])[0] == self.rank else 0.0))

    def on_save(self, args, state, control, **kwargs):
        """Where each rank has a folder of its own, rank 0's holds this rank's random state from step 10 on all the same."""
        if self.wanted.get("apart") and self.rank == 1 and state.global_step >= 10:
            own = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copy(own / "rng_state_1.pth", own.parents[1] / "0" / own.name)

    def on_step_end(self, args, state, control, **kwargs):
        self.write("steps", step=state.global_step, loss=self.trainer.raw, rows=self.trainer.rows, time=time.perf_counter())
        self.trainer.rows = []
        late = self.wanted.get("late")
        if late and late[:2] == [self.rank, state.global_step]:
            time.sleep(late[2])


def one(parent, wanted):
    torch.manual_seed(0)
    folder = parent / wanted["name"]
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "out" / str(dist.get_rank()) if wanted.get("apart") else folder / "out"
    arguments = TrainingArguments(
        output_dir=str(output),
        per_device_train_batch_size=2,
        max_steps=wanted["steps"],
        learning_rate=1e-3,
        use_cpu=True,
        ddp_backend="gloo",
        logging_steps=wanted.get("logging_steps", 1),
        save_strategy=wanted.get("save_strategy", "steps"),
        save_steps=wanted.get("save_steps", 1000),
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    book = Book(folder, wanted)
    model = GPT2LMHeadModel(config)
    trainer = Training(model=model, args=arguments, train_dataset=Rows(wanted.get("rows", ROWS)), callbacks=[book])
    trainer.remove_callback(PrinterCallback)
    trainer.wanted, book.trainer = wanted, trainer
    policy = Policy(**wanted.get("policy", {}))
    url = wanted.get("url_of_rank_0") if dist.get_rank() == 0 else None
    Ranks.of_this_process.__func__.__kwdefaults__["limit_seconds"] = wanted.get("limit_seconds", LIMIT_SECONDS)
    if wanted.get("planted") and dist.get_rank() == 0:
        log = Monitor.log
        Monitor.log = lambda self, values, step: (log(self, values, step), self.flush(0.5))
    if wanted.get("bare"):
        trainer.add_callback(LossGuardCallback(policy, url=url, run_id=wanted["name"], name=wanted["name"]))
        trainer.train()
    else:
        guarded_train(trainer, policy, url=url, run_id=wanted["name"], name=wanted["name"])
    book.write("done", time=time.time())


def main(folder, trainings):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for wanted in json.loads(trainings):
        one(Path(folder), wanted)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:3])
