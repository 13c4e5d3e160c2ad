"""A real training for the browser tests: a tiny GPT-2, fp16 with a GradScaler, the HF Trainer, and `guarded_train`.

    python tiny_training.py OUTPUT_DIR --run-id ID [--steps 400] [--step-seconds 0.12] [--save-steps 20] [--nan-at 0]

Keeps its own book in OUTPUT_DIR, so that tests need not believe what LossGuard says of it:
`steps.jsonl`  step and time of each optimizer update as the Trainer ends it
`states.jsonl` what model, optimizer, scheduler, scaler and generator hold when a `train()` begins its first step
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainer_agent.hf import guarded_train
from trainer_agent.policy import Policy

ROWS, LENGTH, WORDS = 4000, 16, 48


class Rows(Dataset):
    """Random rows; the same for everybody."""

    def __init__(self):
        self.rows = torch.randint(0, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Model(GPT2LMHeadModel):
    """Its loss is NaN at one chosen step, as a forward pass makes it that overflows."""

    nan_at = 0
    step = 0

    def forward(self, input_ids=None, attention_mask=None, labels=None, **named):
        output = super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **named)
        if self.training and self.nan_at and self.step + 1 == self.nan_at:
            output.loss = output.loss * float("nan")
        return output


class ScaledTrainer(Trainer):
    """fp16 with a GradScaler on the CPU too; on a GPU the Trainer does the same by itself."""

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if self.accelerator.device.type == "cpu":
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler("cpu")


def digest(value) -> str:
    """SHA-256 over tensors and plain values, nested in any way, in a fixed order."""
    state = hashlib.sha256()

    def take(part):
        if isinstance(part, torch.Tensor):
            state.update(f"{part.dtype}{tuple(part.shape)}".encode())
            state.update(part.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() if part.numel() else b"")
        elif isinstance(part, dict):
            for key in sorted(part, key=str):
                state.update(str(key).encode())
                take(part[key])
        elif isinstance(part, list | tuple):
            for item in part:
                take(item)
        else:
            state.update(repr(part).encode())

    take(value)
    return state.hexdigest()


class Book(TrainerCallback):
    """Writes down what happens, and makes each step last a while."""

    def __init__(self, folder, step_seconds):
        self.folder, self.step_seconds, self.begun, self.trainer = folder, step_seconds, False, None

    def write(self, name, entry):
        with (self.folder / name).open("a") as book:
            book.write(json.dumps(entry) + "\n")

    def on_train_begin(self, args, state, control, **kwargs):
        self.begun = True

    def on_step_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **kwargs):
        model.step = state.global_step
        if self.begun:
            self.begun = False
            parts = {
                "model": dict(model.state_dict()),
                "optimizer": optimizer.state_dict(),
                "scheduler": lr_scheduler.state_dict(),
            }
            parts |= {"scaler": self.trainer.accelerator.scaler.state_dict(), "rng": torch.get_rng_state()}
            self.write("states.jsonl", {"step": state.global_step, **{name: digest(part) for name, part in parts.items()}})
        time.sleep(self.step_seconds)

    def on_step_end(self, args, state, control, **kwargs):
        self.write("steps.jsonl", {"step": state.global_step, "time": time.time()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-seconds", type=float, default=0.12)
    parser.add_argument("--save-steps", type=int, default=20)
    parser.add_argument("--nan-at", type=int, default=0)
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(
        GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    model.nan_at = options.nan_at
    arguments = TrainingArguments(
        output_dir=str(options.output_dir),
        per_device_train_batch_size=4,
        max_steps=options.steps,
        learning_rate=1e-3,
        warmup_steps=10,
        fp16=True,
        use_cpu=True,
        logging_steps=1,
        save_strategy="steps",
        save_steps=options.save_steps,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    book = Book(options.output_dir, options.step_seconds)
    trainer = ScaledTrainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[book])
    trainer.remove_callback(PrinterCallback)
    book.trainer = trainer
    guarded_train(trainer, policy=Policy(automatic_rollback=True), run_id=options.run_id)


if __name__ == "__main__":
    main()
