"""A tiny GPT-2 in a real Trainer, and the real Monitor with its records at hand. Used by the `test_training_*` modules."""

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from trainer_agent.monitor import Monitor
from trainer_agent.training import opening
from trainer_agent.wire.commands import Command, RollbackPayload
from trainer_agent.wire.messages import CheckpointSaved, Record, Reply, Report, RunEnded, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, DataMode, Phase

torch.set_num_threads(1)
gc.freeze()  # each training collects garbage; what the imports made is none

VOCABULARY, LENGTH = 64, 8


class Rows(Dataset):
    """Row i begins with the token pair of i, so that a batch tells which rows it is made of. `seen` lists all rows fetched."""

    def __init__(self, count: int = 400) -> None:
        made = random.Random(0)
        self.rows = [[i // 64, i % 64, *(made.randrange(VOCABULARY) for _ in range(LENGTH - 2))] for i in range(count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.tensor(self.rows[index])
        return {"input_ids": row, "labels": row}


def row_numbers(input_ids: torch.Tensor) -> list[int]:
    return (input_ids[:, 0] * 64 + input_ids[:, 1]).tolist()


class HalfTrainer(Trainer):
    """fp16 autocast and a loss scaler on the CPU too, where accelerate leaves both out."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fp16 and self.accelerator.scaler is None:
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=self.first_scale)

    first_scale = 1024.0


class Book(TrainerCallback):
    """The training's own record of itself, kept without LossGuard: one entry a step, and what the Trainer logged."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rows: dict[int, list[int]] = {}
        self.logs: dict[int, dict[str, float]] = {}
        self.steps: list[int] = []
        self.scales: list[float] = []
        self._batch: list[int] = []
        self._hook: Any = None

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._hook = model.register_forward_pre_hook(self._before, with_kwargs=True)

    def on_train_end(self, args, state, control, **kwargs):
        self._hook.remove()

    def _before(self, module, args, kwargs):
        if module.training:
            self._batch += row_numbers(kwargs["input_ids"])

    def on_step_end(self, args, state, control, optimizer=None, **kwargs):
        self.steps.append(state.global_step)
        self.rows[state.global_step], self._batch = self._batch, []
        if optimizer.scaler is not None:
            self.scales.append(optimizer.scaler.get_scale())

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.setdefault(state.global_step, {}).update(logs)


class At(TrainerCallback):
    """Calls a function once, at the beginning of a step (counted from 1)."""

    def __init__(self, step: int, call, times: int = 1) -> None:
        self.step, self.call, self.left = step, call, times

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step and self.left:
            self.left -= 1
            self.call(**kwargs)


def model(dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="eager",
        )
    )


def trainer(folder: Path, *callbacks: TrainerCallback, kind: type[Trainer] = Trainer, dropout: float = 0.0, data=None, **changes):
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1000,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 7,
        "dataloader_pin_memory": False,
    }
    evaluated = changes.pop("eval_dataset", None)
    made = kind(
        eval_dataset=evaluated,
        model=changes.pop("model", None) if "model" in changes else model(dropout),  # a compiled one has no truth value
        args=TrainingArguments(**settings | changes),
        train_dataset=data or Rows(),
        callbacks=list(callbacks),
    )
    made.remove_callback(PrinterCallback)
    return made


def weights(of: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in of.model.parameters()])


def until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Waits for what another thread does; fails when it does not."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)


@dataclass
class Tape:
    """What one training told its monitors, in order."""

    monitors: list["TapedMonitor"] = field(default_factory=list)
    points: list[tuple[int, int, dict[str, float]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    receipts: list[Report] = field(default_factory=list)
    """What the inbox said of commands, and the training never saw or did not begin."""
    phases: list[Phase] = field(default_factory=list)

    @property
    def monitor(self) -> "TapedMonitor":
        return self.monitors[-1]

    def series(self, name: str, segment: int | None = None) -> dict[int, float]:
        """Step to value of one series; the newest where a step came again."""
        chosen = [(step, values) for at, step, values in self.points if segment in (None, at)]
        return {step: values[name] for step, values in chosen if name in values}

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def reports(self) -> list[Report]:
        return self.of(Report)

    @property
    def segments(self) -> list[SegmentStarted]:
        return self.of(SegmentStarted)

    @property
    def checkpoints(self) -> list[CheckpointSaved]:
        return self.of(CheckpointSaved)

    @property
    def end(self) -> RunEnded:
        (end,) = self.of(RunEnded)
        return end

    def command(self, kind: CommandKind, name: str = "c1", value: float | None = None, **rollback: Any) -> None:
        """A command comes from the server, made for the process and segment of now."""
        at = self.monitor
        payload = RollbackPayload(**{"new_segment": at.segment + 1} | rollback) if rollback else None
        command = Command(name, kind, at.start.incarnation, at.segment, 600.0, 600.0, rollback=payload, value=value)
        at._on_reply(Reply(next_seq=1, commands=(command,)))

    def stop(self, *, name: str = "c1", **_: Any) -> None:
        self.command(CommandKind.STOP, name)

    def rollback(self, step: int, name: str = "c1", data: DataMode = DataMode.REPLAY, **more: Any) -> None:
        self.command(CommandKind.ROLLBACK, name, checkpoint_id=f"checkpoint-{step}", target_step=step, data=data, **more)


class TapedMonitor(Monitor):
    """The real monitor; a tape runs along."""

    tape: Tape

    def begin(self) -> None:
        self.tape.monitors.append(self)
        add, told = self._ring.add, self.tape

        def taped(record: Any) -> None:
            if isinstance(record, Report) and not any(record is each for each in told.records[-3:]):
                told.receipts.append(record)
            add(record)

        self._ring.add = taped
        super().begin()

    def log(self, values, step):
        self.tape.points.append((self.segment, step, dict(values)))
        super().log(values, step)

    def record(self, record):
        self.tape.records.append(record)
        super().record(record)

    def set_phase(self, phase):
        if self.tape.phases[-1:] != [phase]:
            self.tape.phases.append(phase)
        super().set_phase(phase)


def tape(monkeypatch, tmp_path: Path) -> Tape:
    """A tape for all monitors from now on. No server is set: the spool keeps what is sent."""
    for name in ("LOSSGUARD_URL", "LOSSGUARD_TOKEN", "LOSSGUARD_PROJECT", "LOSSGUARD_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    made = Tape()
    monkeypatch.setattr(opening, "Monitor", type("Taped", (TapedMonitor,), {"tape": made}))
    return made
