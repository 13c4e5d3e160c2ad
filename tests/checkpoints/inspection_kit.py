"""Checkpoints of the three layouts, each written by what writes them for people. Used by the `test_inspection_*` modules."""

import os
from collections.abc import Callable
from pathlib import Path

import accelerate
import torch
from accelerate import Accelerator
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from trainer_agent.checkpoints.inspection import Save, inspect
from trainer_agent.loop.data import Place
from trainer_agent.loop.state import State, Where

STEP = 2


class Rows(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.arange(8) + index
        return {"input_ids": row, "labels": row}


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )


def of_trainer(root: Path, **changes) -> Path:
    """By the Trainer of transformers, after two real steps."""
    settings = {
        "output_dir": str(root),
        "max_steps": STEP,
        "save_steps": STEP,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    trainer = Trainer(model=gpt2(), args=TrainingArguments(**settings | changes), train_dataset=Rows())
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return root / f"checkpoint-{STEP}"


def in_shards(root: Path) -> Path:
    """The same with its weights in several files, as the Trainer writes a large model."""
    folder = of_trainer(root)
    (folder / "model.safetensors").unlink()
    gpt2().save_pretrained(folder, max_shard_size="12KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def trained(seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    for _ in range(STEP):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return model, optimizer, scheduler


def of_loop(root: Path) -> Path:
    """By our own saver of hand-written loops."""
    folder = root / f"checkpoint-{STEP}"
    folder.mkdir(parents=True)
    where = Where(Place(0, 2, None), 1, "batches")
    state = State(*trained())
    state.save_parts(folder)
    state.save_place(folder, STEP, where, [where.random_state()])
    return folder


def of_accelerate(root: Path, models: int = 2, safe: bool = True) -> Path:
    """By Accelerate's `save_state`, of several models."""
    folder = root / f"checkpoint-{STEP}"
    accelerator = Accelerator(cpu=True)
    for model, optimizer, scheduler in (trained(seed) for seed in range(models)):
        accelerator.prepare(model, optimizer, scheduler)
    accelerator.save_state(str(folder), safe_serialization=safe)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    return folder


def facts(folder: Path, **more):
    return inspect(Save("run", folder, 1, STEP, 1.0, **more))


def flip(path: Path, at: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def exchange(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


Harm = Callable[[Path], object]
