"""Two ranks of the Trainer whose disk fails them in a save. `retention_rank.py DISK FOLDER`: a small disk, and one for the rest.

full     rank 0 meets the end of the disk in the weights, before the ranks meet in the save
rank 1   what rank 1 alone writes is not taken
"""

import errno
import json
import os
import resource
import sys
import warnings
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainer_agent.hf import guarded_train
from trainer_agent.monitor import Monitor
from trainer_agent.wire.messages import SaveFailed


class Rows(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        row = torch.full((8,), index % 32)
        return {"input_ids": row, "labels": row}


class Training(Trainer):
    """Evaluates without data, each time better; `fails` is a step at which rank 1 cannot write."""

    fails = None

    def evaluate(self, *args, **kwargs):
        metrics = {"eval_loss": 1.0 / self.state.global_step}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _save_rng_state(self, output_dir):
        if dist.get_rank() == 1 and self.state.global_step == self.fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._save_rng_state(output_dir)


class Frees(TrainerCallback):
    def __init__(self, rest):
        self.rest = rest

    def on_step_begin(self, args, state, control, **kwargs):
        if dist.get_rank() == 0 and state.global_step == 0 and "limit" in sys.argv:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        if dist.get_rank() == 0 and state.global_step == 4:
            self.rest.unlink(missing_ok=True)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def one(output, book, name, fails, told):
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(output),
        per_device_train_batch_size=2,
        max_steps=10,
        use_cpu=True,
        ddp_backend="gloo",
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
        save_total_limit=5,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    made = Training(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[Frees(output / "rest")],
    )
    made.remove_callback(PrinterCallback)
    made.fails = fails
    told.clear()
    guarded_train(made)
    entry = {"step": made.state.global_step, "best": made.state.best_model_checkpoint, "told": list(told)}
    (book / f"{name}-{dist.get_rank()}.json").write_text(json.dumps(entry | {"limit": made.args.save_total_limit}))


def main(disk, book):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    told, record = [], Monitor.record
    Monitor.record = lambda self, given: (
        told.append([given.step, given.reason]) if isinstance(given, SaveFailed) else None,
        record(self, given),
    )
    one(Path(disk), Path(book), "full", None, told)
    sys.argv = [each for each in sys.argv if each != "limit"]
    one(Path(book) / "out", Path(book), "rank 1", 4, told)
    dist.destroy_process_group()


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
    elastic_launch(settings, main)(*sys.argv[1:3])
