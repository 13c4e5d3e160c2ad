"""A small GPT-2 in fp16, trained by the HF Trainer on text that every Python brings along, until it meets one bad document.

    python examples/gpt2_fp16.py --guard          watched, stopped or rolled back when told to; a dead run waits for that
    python examples/gpt2_fp16.py --watch-only     watched, never touched: it dies
    python examples/gpt2_fp16.py --none           no LossGuard at all
    ... --device cuda                             the same on a GPU

An ordinary script for the Trainer, but for the lines marked LossGuard. What is real: the text (the documentation in
`pydoc_data.topics`), the bad document (the head of `encodings/cp437.py`, long and repetitive), the fp16 overflow, the GradScaler,
the death. What is not: SGD at a learning rate of 1.0 and wide initial weights, chosen because that dies, a model of 135 thousand
weights, and the document's rows kept together. With AdamW it did not die.
"""

# ruff: noqa: ARG002  the Trainer calls the methods of a callback with all of its arguments

import hashlib
import importlib.util
import json
import math
import os
import statistics
import time
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pydoc_data.topics import topics

import torch
import typer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from trainer_agent.hf import guarded_train  # LossGuard
from trainer_agent.policy import OnDead, Policy  # LossGuard

VOCABULARY, CONTEXT, BATCH = 512, 32, 8
LAYERS, WIDTH, HEADS, INITIAL_RANGE = 2, 64, 4, 0.12
LEARNING_RATE, MOMENTUM, WARMUP_STEPS = 1.0, 0.9, 220
SAVE_STEPS, SAY_STEPS = 50, 20
CULPRIT, CULPRIT_AFTER_STEPS, CULPRIT_TOKENS = "encodings.cp437", 210, 2048
LAST_STEPS = 20


class Guard(StrEnum):
    """How much LossGuard there is."""

    GUARD = "guard"
    WATCH_ONLY = "watch-only"
    NONE = "none"


# --- data -----------------------------------------------------------------------------------------------------------------------


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Rows of 32 tokens in a fixed order: prose shuffled by the seed, the bad document in one piece inside it.

    `source[i]` names the document that row i was cut from. All of the prose is there, several times more than the training
    needs, so that a rollback can pass over some of it and still have data to go on with.
    """

    def __init__(self, seed: int) -> None:
        text = "\n".join(topics[key] for key in sorted(topics))
        tokenizer = train_tokenizer(text)
        prose = cut_rows(tokenizer.encode(text).ids)
        bad = cut_rows(tokenizer.encode(source_code(CULPRIT)).ids[:CULPRIT_TOKENS])
        order = torch.randperm(len(prose), generator=torch.Generator().manual_seed(seed))
        at = CULPRIT_AFTER_STEPS * BATCH
        self.rows = torch.cat([prose[order[:at]], bad, prose[order[at:]]])  # shape (rows, CONTEXT)
        self.source = [f"topics#{i}" for i in order[:at].tolist()]
        self.source += [CULPRIT] * len(bad)
        self.source += [f"topics#{i}" for i in order[at:].tolist()]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}

    def culprit_steps(self) -> tuple[int, int]:
        """First and last step whose batch holds rows of the bad document, where nothing is skipped."""
        steps = [index // BATCH + 1 for index, source in enumerate(self.source) if source == CULPRIT]
        return steps[0], steps[-1]


def train_tokenizer(text: str) -> Tokenizer:
    """A byte-level BPE of this text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def cut_rows(ids: list[int]) -> torch.Tensor:
    """Rows of CONTEXT tokens, shape (rows, CONTEXT); the rest is left out."""
    count = len(ids) // CONTEXT
    return torch.tensor(ids[: count * CONTEXT]).view(count, CONTEXT)


def source_code(module: str) -> str:
    """The source of a module of the standard library."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise SystemExit(f"this Python has no source of {module}, the demo's bad document")
    return Path(found.origin).read_text(encoding="utf-8")


# --- model and trainer ----------------------------------------------------------------------------------------------------------


def build_model(seed: int) -> GPT2LMHeadModel:
    """A GPT-2 with random weights."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=CONTEXT,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            initializer_range=INITIAL_RANGE,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="eager",
            loss_type="ForCausalLM",
        )
    )


class HalfTrainer(Trainer):
    """fp16 autocast and a GradScaler on the CPU too, where the Trainer alone silently trains in fp32. No change on a GPU."""

    def create_accelerator_and_postprocess(self) -> None:
        """Sets up what accelerate sets up on a GPU."""
        super().create_accelerator_and_postprocess()
        if self.args.fp16 and self.accelerator.device.type == "cpu" and self.accelerator.scaler is None:
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler("cpu")


def build_trainer(data: Rows, output_dir: Path, *, seed: int, steps: int, device: str, recorder: TrainerCallback) -> Trainer:
    """The Trainer with clipping switched off "to train faster"."""
    model = build_model(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP_STEPS))
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        fp16=True,
        max_grad_norm=0,
        use_cpu=device == "cpu",
        save_steps=SAVE_STEPS,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        seed=seed,
        train_sampling_strategy="sequential",
        dataloader_pin_memory=device != "cpu",
    )
    trainer = HalfTrainer(model=model, args=arguments, train_dataset=data, optimizers=(optimizer, schedule), callbacks=[recorder])
    trainer.remove_callback(PrinterCallback)
    return trainer


# --- what happened, as the script itself saw it ---------------------------------------------------------------------------------


@dataclass
class Segment:
    """Steps without a jump between them. `skipped[i]` says whether the scaler threw step `steps[i]` away."""

    from_step: int
    steps: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    loss_scale: list[float] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)


class Recorder(TrainerCallback):
    """Keeps the raw series of the training, and says now and then where it is. Knows nothing of LossGuard."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._loss = math.nan
        self._scale = 1.0
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """A new segment begins: at the start, and after each rollback."""
        self.segments.append(Segment(state.global_step))
        self._hook = model.register_forward_hook(lambda _module, _inputs, output: self._take(output.loss))

    def _take(self, loss: torch.Tensor) -> None:
        self._loss = float(loss.detach())

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Takes the hook off."""
        self._hook.remove()

    def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        """Notes the loss scale that the step is made with."""
        self._scale = optimizer.scaler.get_scale()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Takes the step; the loss is the raw one, not the logged one, in which a NaN is hidden."""
        if "grad_norm" not in logs:
            return
        segment, after = self.segments[-1], optimizer.scaler.get_scale()
        segment.steps.append(state.global_step)
        segment.loss.append(self._loss)
        segment.grad_norm.append(float(logs["grad_norm"]))
        segment.loss_scale.append(self._scale)
        segment.skipped.append(after < self._scale or after == 0.0)
        if state.global_step % SAY_STEPS == 0:
            print(f"step {state.global_step:4d}  loss {self._loss:8.3f}  grad norm {logs['grad_norm']:9.3f}  scale {after:g}")


def death_of(segment: Segment) -> int | None:
    """The first step after which nothing more was learnt, where a segment ends in skipped steps; else None."""
    if not segment.skipped or not segment.skipped[-1]:
        return None
    applied = [step for step, skipped in zip(segment.steps, segment.skipped, strict=True) if not skipped]
    return applied[-1] + 1 if applied else segment.steps[0]


def report(data: Rows, recorder: Recorder, model: torch.nn.Module, wall_seconds: float) -> dict[str, Any]:
    """All that is known of the training. Non-finite numbers are still numbers here."""
    segments, last = recorder.segments, recorder.segments[-1]
    jumps = [(before.steps[-1], after.from_step) for before, after in pairwise(segments) if before.steps]
    culprit_first, culprit_last = data.culprit_steps()
    final_loss = statistics.fmean(last.loss[-LAST_STEPS:]) if last.loss else math.nan
    dead_step = death_of(last)
    return {
        "steps": last.steps[-1] if last.steps else last.from_step,
        "culprit_first_step": culprit_first,
        "culprit_last_step": culprit_last,
        "dead_step": dead_step,
        "final_loss": final_loss,
        "healthy": dead_step is None and math.isfinite(final_loss) and final_loss < segments[0].loss[0],
        "rolled_back_from": jumps[-1][0] if jumps else None,
        "rolled_back_to": jumps[-1][1] if jumps else None,
        "wall_seconds": round(wall_seconds, 1),
        "weights_sha256": digest_of(model),
        "segments": [vars(segment) for segment in segments],
    }


def digest_of(model: torch.nn.Module) -> str:
    """SHA-256 over all weights, by name in order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Strict JSON; non-finite numbers as the strings NaN, Infinity, -Infinity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(strict(value), allow_nan=False, indent=1) + "\n", encoding="utf-8")


def strict(value: Any) -> Any:
    """The value with its non-finite numbers as words."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# --- the script -----------------------------------------------------------------------------------------------------------------


def main(  # noqa: PLR0917  options of a command, given by name
    output_dir: Annotated[Path, typer.Option(help="Checkpoints and the run's own files.")] = Path("gpt2-fp16"),
    seed: Annotated[int, typer.Option(help="Of the weights and of the order of the text.")] = 0,
    steps: Annotated[int, typer.Option(min=1)] = 320,
    guard: Annotated[bool, typer.Option("--guard", help="Obey the policy and the commands.")] = False,  # noqa: FBT002
    watch_only: Annotated[bool, typer.Option("--watch-only", help="Only be watched (the default).")] = False,  # noqa: FBT002
    none: Annotated[bool, typer.Option("--none", help="Train without LossGuard.")] = False,  # noqa: FBT002
    on_dead: Annotated[str, typer.Option(help="stop, hold or continue, with --guard.")] = "hold",
    hold_seconds: Annotated[float, typer.Option(help="How long a dead run waits for a command.")] = 600.0,
    automatic_rollback: Annotated[bool, typer.Option(help="Whether a rule may roll back, with --guard.")] = True,  # noqa: FBT002
    name: Annotated[str | None, typer.Option(help="Of the run, on the page.")] = None,
    run_id: Annotated[str | None, typer.Option(help="Else it is taken from the output directory.")] = None,
    url: Annotated[str | None, typer.Option(help="Of the server; else LOSSGUARD_URL.")] = None,
    token: Annotated[str | None, typer.Option(help="Else LOSSGUARD_TOKEN.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    result: Annotated[Path | None, typer.Option(help="Write what happened to this JSON file.")] = None,
) -> None:
    """Train, and say how it ended."""
    logging.disable_progress_bar()
    mode = chosen(guard=guard, watch_only=watch_only, none=none)
    if device == "cpu":
        torch.set_num_threads(1)  # faster than two for a model this small
    torch.use_deterministic_algorithms(mode=True, warn_only=device != "cpu")
    data, recorder = Rows(seed), Recorder()
    first, last = data.culprit_steps()
    write_json(output_dir / "data.json", {"culprit": CULPRIT, "culprit_first_step": first, "culprit_last_step": last})
    trainer = build_trainer(data, output_dir, seed=seed, steps=steps, device=device, recorder=recorder)
    began = time.monotonic()
    if mode is Guard.NONE:
        trainer.train()
    else:
        policy = make_policy(mode, on_dead, hold_seconds, automatic_rollback=automatic_rollback)
        guarded_train(trainer, policy, url=url, token=token, name=name, run_id=run_id)  # LossGuard
    ended = report(data, recorder, trainer.model, time.monotonic() - began)
    if result is not None:
        write_json(result, ended)
    state = "healthy" if ended["healthy"] else f"dead since step {ended['dead_step']}" if ended["dead_step"] else "not healthy"
    print(f"ended at step {ended['steps']}, {state}, loss {ended['final_loss']:.2f}")


def make_policy(mode: Guard, on_dead: Any, hold_seconds: float, *, automatic_rollback: bool) -> Policy:
    """What the run obeys."""
    if mode is Guard.WATCH_ONLY:
        return Policy.watch_only()
    wanted: OnDead = on_dead
    try:
        return Policy(on_dead=wanted, hold_seconds=hold_seconds, automatic_rollback=automatic_rollback)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def chosen(*, guard: bool, watch_only: bool, none: bool) -> Guard:
    """The one mode that was asked for; to be watched only, where none was."""
    flags = zip(Guard, (guard, watch_only, none), strict=True)
    asked = [mode for mode, given in flags if given]
    if len(asked) > 1:
        raise typer.BadParameter(f"give one of {', '.join(f'--{mode}' for mode in Guard)}, not several")
    return asked[0] if asked else Guard.WATCH_ONLY


if __name__ == "__main__":
    typer.run(main)
