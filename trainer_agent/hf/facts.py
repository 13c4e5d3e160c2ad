"""What is true of a Trainer and its arguments: attributes of the run, what it can be told, how many steps it will take."""

import math
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainingArguments

from trainer_agent.measuring.probes import short_name
from trainer_agent.policy import Abilities, Policy
from trainer_agent.wire import series
from trainer_agent.wire.messages import Scalar
from trainer_agent.wire.vocabulary import CommandKind

_MEASURED = frozenset({"loss", "learning_rate", "epoch", "grad_norm", "total_flos"})
"""Logged by the Trainer and known better from the probes, or no series at all."""


def bare_abilities(policy: Policy, args: TrainingArguments) -> Abilities:
    """What the callback alone can do."""
    reason = "the callback alone cannot roll back: use guarded_train(trainer) in place of trainer.train()"
    return _abilities(policy, args, reason, is_sharded=bool(args.deepspeed or args.fsdp))


def driver_abilities(policy: Policy, trainer: Trainer) -> Abilities:
    """What the driver can do with this trainer."""
    is_sharded = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    return _abilities(policy, trainer.args, cannot_go_back(trainer), is_sharded=is_sharded)


def cannot_go_back(trainer: Trainer) -> str:
    """Why the checkpoints of this trainer do not bring everything back; empty where they do."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return "rollback under DeepSpeed or FSDP is not supported yet"
    if trainer.args.save_only_model:
        return "save_only_model=True leaves optimizer, scaler and RNG out of the checkpoints"
    return "ignore_data_skip=True would start the epoch's data again" if trainer.args.ignore_data_skip else ""


def _abilities(policy: Policy, args: TrainingArguments, no_rollback: str, *, is_sharded: bool) -> Abilities:
    if args.world_size > 1 and is_sharded:
        return Abilities((), "several processes under DeepSpeed or FSDP cannot be told together yet", acts=False)
    kinds = tuple(kind for kind in policy.obey if kind is not CommandKind.ROLLBACK or not no_rollback)
    reasons = [policy.refusal] if policy.refusal else []
    if no_rollback and CommandKind.ROLLBACK in policy.obey:
        reasons.append(no_rollback)
    return Abilities(kinds, "; ".join(reasons))


@dataclass(frozen=True, slots=True)
class Setting:
    """Arguments, model and accelerator of a training about to start. Without an accelerator its shared state is asked."""

    args: TrainingArguments
    model: Any
    accelerator: Any = None

    def attributes(self) -> dict[str, Scalar]:
        """What is told of the run when it starts."""
        args = self.args
        return {
            **self.precision(),
            "precision_configured": "fp16" if args.fp16 else "bf16" if args.bf16 else "fp32",
            "model": type(self.model).__name__,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "device": args.device.type,
            "batch_size": args.train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "max_grad_norm": args.max_grad_norm,
            "learning_rate": args.learning_rate,
            "optimizer": str(getattr(args.optim, "value", args.optim)),
            "seed": args.seed,
            "save_steps": args.save_steps,
            "save_total_limit": args.save_total_limit,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        }

    def precision(self) -> dict[str, Scalar]:
        """What the forward pass is set up to compute in; the first segment tells what it was seen to do.

        Not the configured one: asked for fp16 on the CPU, accelerate sets up nothing and says nothing.
        """
        weight = next((p for p in self.model.parameters() if p.is_floating_point()), None)
        plain = short_name(weight.dtype) if weight is not None else "fp32"
        autocast = bool(self.accelerator.native_amp) if self.accelerator else hasattr(self.model, "_original_forward")
        scaler = getattr(self.accelerator, "scaler", None)
        facts: dict[str, Scalar] = {"precision": self._mixed() if autocast else plain, "autocast": autocast}
        return facts | ({"loss_scaler": scaler is not None} if self.accelerator else {})

    def _mixed(self) -> str:
        """The configuration counts only where autocast is set up."""
        return "bf16" if self.args.bf16 else "fp16" if self.args.fp16 else "fp32"


def total_steps(trainer: Trainer) -> int | None:
    """Optimizer steps the training is planned for; None where nobody knows before it starts."""
    args, data = trainer.args, trainer.train_dataset
    if args.max_steps > 0:
        return int(args.max_steps)
    if isinstance(data, IterableDataset):
        return None
    with suppress(TypeError):
        samples = len(data)  # type: ignore[arg-type]  # a data set without a length is what the suppress is for
        return steps_in(samples, args.train_batch_size * args.world_size, args.gradient_accumulation_steps, args.num_train_epochs)
    return None


def steps_in(samples: int, batch: int, accumulation: int, epochs: float) -> int:
    """Optimizer steps of a training over `samples`, as the Trainer counts them."""
    return math.ceil(epochs * max(1, math.ceil(math.ceil(samples / batch) / accumulation)))


def metrics_of(metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers of an evaluation by series name."""
    return _named(metrics or {}, without=frozenset({"epoch"}))


def logged(logs: Mapping[str, Any] | None, epoch: float | None, *, unseen: frozenset[str]) -> dict[str, Any]:
    """What the Trainer logs and the probes do not see: the epoch, a script's own numbers, and those measured ones in `unseen`."""
    logs = logs or {}
    own = {key: value for key, value in logs.items() if not key.startswith(("eval_", "test_", "train_"))}
    named = _named(own, without=_MEASURED - unseen)
    if "loss" in logs and epoch is not None:
        named[series.EPOCH] = float(epoch)
    return named


def _named(values: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    """By series name, whatever the values are: what is no number is counted where all numbers are looked at."""
    named = {}
    for key, value in values.items():
        if key not in without:
            with suppress(ValueError):  # a name of which nothing is left
                named[series.normalise(key)] = value
    return named
