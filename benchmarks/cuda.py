"""What the agent does to a training on a GPU: GPT-2 124M with random weights in fp16, through the Trainer and its GradScaler.

    python -m benchmarks.cuda [--quick] [--json]

Four questions. What a step costs more with the agent (in turns of ten steps, the server in another process). Whether anything
waits for the GPU because of it: the profiler counts the calls that wait with the agent and without, and in a turn of its own
torch raises where the agent's code would wait. Whether what NVML tells of the GPU arrives. Whether a rollback brings the CUDA
scaler back with the rest: losses, norms, rates, scale and weights against a training that was never rolled back.

On a machine without a GPU the same code runs on the CPU, with a tiny GPT-2 and the CPU's GradScaler; then the bars of the GPU
are not measured (`ok` is null) and only those hold that the CPU can show. `--quick` takes fewer turns, and the tiny model for the
rollback.
"""

import contextlib
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS begins; only so do its sums repeat
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers.utils import logging

from benchmarks import _gpu_turns, _harness
from benchmarks._gpu_training import GPT2_124M, TINY, compare_rollback
from benchmarks._harness import Bar, at_least, at_most, not_here
from benchmarks.training_cost import interval, ratios
from trainer_agent.wire import series

WHAT = "What the agent does to the training of a GPT-2 124M in fp16 on a GPU; without one, the same code on the CPU."
MOST_COST = 1.01
PAIRS, QUICK_PAIRS, CPU_PAIRS = 40, 12, 1
NO_GPU = "there is no GPU here"
OF_THE_GPU = (
    series.GPU_MEMORY_BYTES,
    series.GPU_UTILIZATION_RATIO,
    series.GPU_TEMPERATURE_CELSIUS,
    series.GPU_POWER_WATTS,
)
OF_THE_STEPS = (
    series.LOSS,
    series.GRAD_NORM,
    series.LEARNING_RATE,
    series.LOSS_SCALE,
    series.OVERFLOW,
    series.STEP_SECONDS,
    series.TOKENS_PER_SECOND,
)


def measure(device: str, *, quick: bool) -> dict[str, Any]:
    """All that is measured on this kind of device."""
    size = GPT2_124M if device == "cuda" else TINY
    looks = 1 if quick or device == "cpu" else 3
    pairs = CPU_PAIRS if device == "cpu" else QUICK_PAIRS if quick else PAIRS
    with tempfile.TemporaryDirectory(prefix="lossguard-gpu-") as name, contextlib.redirect_stdout(sys.stderr):
        folder = Path(name)
        with _harness.server(folder) as server:
            seen = _gpu_turns.run(folder / "turns", server, size, device, pairs=pairs, looks=looks)
        rollback = compare_rollback(folder, TINY if quick else size, device)
    return {"model": size.name, "rollback_model": (TINY if quick else size).name, **told(seen), "rollback": rollback}


def told(seen: _gpu_turns.Seen) -> dict[str, Any]:
    """The results of the turns."""
    each = ratios(seen.turns, lambda turn: turn.wall)
    by_kind = {on: [turn.wall for turn in seen.turns if turn.is_on is on] for on in (True, False)}
    waits = seen.waits_a_step()
    return {
        "step": {
            "ratio": statistics.median(each) if each else None,
            "interval_95": interval(each),
            "turns": len(seen.turns),
            "ms_with": statistics.median(by_kind[True]) * 1000 / _gpu_turns.TURN_STEPS if by_kind[True] else None,
            "ms_without": statistics.median(by_kind[False]) * 1000 / _gpu_turns.TURN_STEPS if by_kind[False] else None,
        },
        "waits_a_step": waits,
        "waits_added_a_step": added(waits),
        "strict": {"calls": seen.strict.calls, "errors": seen.strict.errors},
        "series": sorted(seen.series),
    }


def added(waits: dict[str, dict[str, float]]) -> float:
    """Calls that wait, a step, with the agent less without; a fall in one kind does not make up for a rise in another."""
    return sum(_rise(waits["seen_on"][name], waits["seen_off"][name]) for name in _gpu_turns.WAITING)


def _rise(now: float, before: float) -> float:
    return now - before if math.isnan(now - before) else max(0.0, now - before)


def bars_of(results: dict[str, Any], device: str) -> list[Bar]:
    """What was asked for, of a GPU and of every machine."""
    return [*_gpu_bars(results, is_here=device == "cuda"), *_common_bars(results, device)]


def _gpu_bars(results: dict[str, Any], *, is_here: bool) -> list[Bar]:
    strict = results["strict"]
    errors = len(strict["errors"]) if strict["calls"] else None
    arrived = len(set(OF_THE_GPU) & set(results["series"]))
    bars = [
        at_most("GPT-2 124M in fp16: step time, agent on over off", results["step"]["ratio"], MOST_COST),
        at_most("calls that wait for the GPU, added a step, by the profiler", results["waits_added_a_step"], 0),
        at_most("calls of the agent that wait for the GPU, by torch's debug mode", errors, 0),
        at_least("series of the GPU through NVML", arrived, len(OF_THE_GPU)),
        *_rollback_bars(results, "cuda"),
    ]
    return bars if is_here else [not_here(bar.name, bar.limit, NO_GPU) for bar in bars]


def _common_bars(results: dict[str, Any], device: str) -> list[Bar]:
    arrived = len(set(OF_THE_STEPS) & set(results["series"]))
    bars = [at_least("series of the steps", arrived, len(OF_THE_STEPS))]
    if device == "cuda":
        return bars
    calls = results["strict"]["calls"] / _gpu_turns.TURN_STEPS
    judged = at_least("calls of the agent a step that torch's debug mode would judge", calls, 6)
    return [*bars, judged, *_rollback_bars(results, "cpu")]


def _rollback_bars(results: dict[str, Any], device: str) -> list[Bar]:
    rollback = results["rollback"]
    which = f"after a rollback, {device} scaler"
    return [
        at_most(f"losses, norms, rates and scales that differ {which}", rollback["differing_numbers"], 0),
        at_most(f"whether the weights differ {which}", rollback["weights_differ"], 0),
        at_least(f"values the loss scale takes {which}", len(set(rollback["scales"][-4:])), 2),
    ]


def machine_of(device: str) -> dict[str, Any]:
    """What there is to know of the GPU, or that there is none."""
    told: dict[str, Any] = {"torch": torch.__version__, "device": device, "gpu": None}
    if device == "cuda":
        known = torch.cuda.get_device_properties(0)
        return told | {"gpu": known.name, "gpu_memory_bytes": known.total_memory, "cuda": torch.version.cuda}
    return told | {"note": f"{NO_GPU}: a tiny GPT-2 on the CPU with its GradScaler; no figure here says anything about a GPU"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and gives the exit status."""
    options = _harness.parse("cuda", WHAT, arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    logging.disable_progress_bar()
    if device == "cpu":
        _harness.say(f"{NO_GPU}: the same code runs on the CPU, with a tiny GPT-2, and the bars of the GPU stay open")
        torch.set_num_threads(1)
    results = measure(device, quick=options.quick)
    return _harness.finish("cuda", options, results, bars_of(results, device), machine_of(device))


if __name__ == "__main__":
    sys.exit(main())
