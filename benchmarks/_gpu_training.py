"""The trainings of `benchmarks.cuda`: a GPT-2 in fp16 with a GradScaler through the Trainer, the same code on a GPU and on a CPU.

The text is random: what a step costs does not depend on it. What is looked at between the steps is in `_gpu_turns`.
"""

# ruff: noqa: ARG002  the Trainer calls the methods of a callback with all of its arguments

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainer_agent.checkpoints.inspection import weights_digest
from trainer_agent.config import Config
from trainer_agent.hf import guarding
from trainer_agent.policy import Policy
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import Reply
from trainer_agent.wire.vocabulary import CommandKind, DataMode

SAVED_AT, LEFT_AT, LAST = 4, 7, 8
"""The rollback goes from the end of step `LEFT_AT` back to the checkpoint of `SAVED_AT`; the training ends after `LAST`."""


@dataclass(frozen=True, slots=True)
class Size:
    """A GPT-2 and its batch: `batch` rows of `context` tokens."""

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    context: int
    batch: int


GPT2_124M = Size("gpt2-124m", 12, 768, 12, 50257, 512, 8)
TINY = Size("gpt2-tiny", 2, 32, 2, 256, 16, 4)


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Random tokens, the same for the same index."""

    def __init__(self, size: Size, count: int) -> None:
        made = torch.Generator().manual_seed(0)
        self._rows = torch.randint(0, size.vocabulary, (min(count, 512), size.context), generator=made)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index % len(self._rows)]
        return {"input_ids": row, "labels": row}


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the GradScaler begins, and how soon it doubles."""

    first: float = 2.0**16
    growth_steps: int = 2000


class HalfTrainer(Trainer):  # type: ignore[misc]  # transformers has no types for it
    """fp16 with a GradScaler of our choice, on the CPU too, where the Trainer alone silently trains in fp32."""

    scaling = Scaling()

    def create_accelerator_and_postprocess(self) -> None:
        """Sets up what accelerate sets up on a GPU."""
        super().create_accelerator_and_postprocess()
        kind = self.accelerator.device.type
        self.accelerator.native_amp = True
        scaling = self.scaling
        self.accelerator.scaler = torch.amp.GradScaler(kind, init_scale=scaling.first, growth_interval=scaling.growth_steps)


def build(
    folder: Path,
    size: Size,
    device: str,
    steps: int,
    callbacks: list[TrainerCallback],
    *,
    scaling: Scaling | None = None,
    **settings: Any,
) -> Trainer:
    """A trainer with random weights; `settings` are further training arguments."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=size.context,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            bos_token_id=0,
            eos_token_id=0,
            loss_type="ForCausalLM",
            attn_implementation="eager",
        )
    )
    fixed = {"output_dir": str(folder), "max_steps": steps, "per_device_train_batch_size": size.batch, "fp16": True}
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": device == "cpu", "dataloader_pin_memory": device != "cpu"}
    kind = type("Trainer", (HalfTrainer,), {"scaling": scaling or Scaling()})
    arguments = TrainingArguments(**fixed, **quiet, seed=0, learning_rate=1e-4, **settings)
    trainer = kind(model=model, args=arguments, train_dataset=Rows(size, steps * size.batch), callbacks=callbacks)
    trainer.remove_callback(PrinterCallback)
    return trainer


# --- a rollback, beside a training that never had one --------------------------------------------------------------------------


@dataclass
class Book:
    """Each step that was made, in order, with its loss, norm, learning rate, and the loss scale after it."""

    steps: list[int] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(
        default_factory=lambda: {n: [] for n in ("loss", "grad_norm", "learning_rate", "scale")}
    )


class Keeper(TrainerCallback):  # type: ignore[misc]
    """Keeps the book, without LossGuard, and says at each beginning of a step which one it is."""

    def __init__(self, book: Book, begins: Callable[[int], None]) -> None:
        self._book, self._begins = book, begins

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Step `global_step + 1` begins."""
        self._begins(state.global_step + 1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Takes the step."""
        if "grad_norm" in logs:
            told = logs | {"scale": optimizer.scaler.get_scale()}
            self._book.steps.append(state.global_step)
            for name, column in self._book.numbers.items():
                column.append(float(told[name]))


def compare_rollback(folder: Path, size: Size, device: str) -> dict[str, Any]:
    """Trains straight, and again with a rollback in the middle, from the same seed; what differs.

    The rollback is a command as a server sends it, handed to the agent in this process.
    """
    began = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        straight, wanted, _ = _train(folder / "straight", size, device, guarded=False)
        again, found, reports = _train(folder / "guarded", size, device, guarded=True)
    finally:
        torch.use_deterministic_algorithms(began[0], warn_only=began[1])
    return {
        "scaler": device,
        "steps": again.steps,
        "scales": again.numbers["scale"],
        "reports": reports,
        "differing_numbers": differing(straight, again),
        "weights_sha256": {"straight": wanted, "rolled_back": found},
        "weights_differ": int(wanted != found),
    }


def _train(folder: Path, size: Size, device: str, *, guarded: bool) -> tuple[Book, str, list[str]]:
    book, reports = Book(), list[str]()
    driver: Any = None

    def begins(step: int) -> None:
        if driver is not None and step == LEFT_AT and book.steps.count(SAVED_AT + 1) == 1 and LEFT_AT not in book.steps:
            order(driver._session._monitor)  # noqa: SLF001

    scaling = Scaling(first=2.0**24, growth_steps=2)  # so that steps are skipped and the scale moves
    settings = {"save_steps": SAVED_AT, "logging_steps": 1, "warmup_steps": 2}
    trainer = build(folder, size, device, LAST, [Keeper(book, begins)], scaling=scaling, **settings)
    if guarded:
        driver = guarding._Driver(trainer, Policy(), Config(None, None), None, resume=None)  # noqa: SLF001
        _listen(driver._session._monitor, reports)  # noqa: SLF001
        driver.train()
    else:
        trainer.train()
    return book, weights_digest(sorted(trainer.model.state_dict().items())), reports


def _listen(monitor: Any, reports: list[str]) -> None:
    record = monitor.record

    def heard(told: Any) -> None:
        if hasattr(told, "command_id") and hasattr(told, "reason") and hasattr(told, "state"):
            reports.append(f"{told.state} {told.reason}".strip())
        record(told)

    monitor.record = heard


def order(monitor: Any) -> None:
    """The command to roll back, come from nowhere."""
    payload = RollbackPayload(
        checkpoint_id=f"checkpoint-{SAVED_AT}", target_step=SAVED_AT, new_segment=monitor.segment + 1, data=DataMode.REPLAY
    )
    here = monitor.start.incarnation, monitor.segment
    command = Command("benchmark", CommandKind.ROLLBACK, *here, 600.0, 600.0, rollback=payload)
    monitor._on_reply(Reply(next_seq=1, commands=(command,)))  # noqa: SLF001


def differing(straight: Book, again: Book) -> float:
    """How many numbers, step by step, are not the same to the last bit; NaN where no rollback took place."""
    if again.steps != [*range(1, LEFT_AT + 1), *range(SAVED_AT + 1, LAST + 1)] or straight.steps != [*range(1, LAST + 1)]:
        return math.nan
    return sum(
        struct.pack("<d", column[at]) != struct.pack("<d", straight.numbers[name][step - 1])
        for name, column in again.numbers.items()
        for at, step in enumerate(again.steps)
    )
