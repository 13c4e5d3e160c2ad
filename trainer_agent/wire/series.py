"""The grammar of series names, the standard names and their units.

A name is `group/name`: lower case, digits, `_ . -`, one or more parts after the group, at most 128 characters. The unit is
the suffix of the name in base units (`_seconds`, `_bytes`, `_per_second`, `_celsius`, `_watts`); `_ratio` runs from 0 to 1.
"""

import re
from typing import Final

MAX_NAME_LENGTH: Final = 128

LOSS: Final = "train/loss"
GRAD_NORM: Final = "train/grad_norm"
"""Global L2 norm of the gradients before clipping."""
LEARNING_RATE: Final = "train/learning_rate"
EPOCH: Final = "train/epoch"
EVAL_LOSS: Final = "eval/loss"
LOSS_SCALE: Final = "amp/loss_scale"
OVERFLOW: Final = "amp/overflow"
"""1.0 at a step the loss scaler skipped, 0.0 at a step it applied."""
STEP_SECONDS: Final = "perf/step_seconds"
OWN_SECONDS: Final = "perf/own_seconds"
"""What of a step a rank does by itself, before it first waits for the others: getting its data, and the forward passes."""
TOKENS_PER_SECOND: Final = "perf/tokens_per_second"
GPU_MEMORY_BYTES: Final = "system/gpu_memory_bytes"
GPU_UTILIZATION_RATIO: Final = "system/gpu_utilization_ratio"
GPU_TEMPERATURE_CELSIUS: Final = "system/gpu_temperature_celsius"
GPU_POWER_WATTS: Final = "system/gpu_power_watts"
HOST_MEMORY_BYTES: Final = "system/host_memory_bytes"
"""Resident memory of the training process. Host memory, never to be shown as GPU memory."""

UNITS: Final = {"_seconds": "s", "_bytes": "B", "_per_second": "1/s", "_celsius": "°C", "_watts": "W", "_ratio": ""}

_NAME: Final = re.compile(r"[a-z0-9_.\-]+(/[a-z0-9_.\-]+)+")
_FORBIDDEN: Final = re.compile(r"[^a-z0-9_.\-/]+")


def is_valid(name: str) -> bool:
    """Whether `name` may be stored as it is."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


def unit(name: str) -> str:
    """The unit of a series, read off its suffix; empty when it has none."""
    return next((sign for suffix, sign in UNITS.items() if name.endswith(suffix)), "")


def normalise(name: str) -> str:
    """The nearest valid name for what a training script calls a number.

    `eval_loss` becomes `eval/loss`, as HF's own integrations write it; a bare `accuracy` becomes `train/accuracy`.

    Raises:
        ValueError: nothing is left of the name.
    """
    lowered = _FORBIDDEN.sub("_", name.strip().lower()).strip("/")
    for group in ("eval", "test", "train"):
        if lowered.startswith(group + "_"):
            lowered = group + "/" + lowered[len(group) + 1 :]
    lowered = re.sub(r"/+", "/", lowered if "/" in lowered else f"train/{lowered}")[:MAX_NAME_LENGTH].rstrip("/")
    if not is_valid(lowered):
        raise ValueError(f"{name!r} is not usable as a series name: write group/name in lower case, such as train/loss")
    return lowered
