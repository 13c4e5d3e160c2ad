"""What the inspection of a checkpoint costs: beside the digest alone, and to the steps of a training that goes on meanwhile.

    python -m benchmarks.checkpoint_scan [--quick] [--large] [--json]

The checkpoint is that of a GPT-2 of 124 million weights (355 with --large) with the state of its AdamW, whose every number comes
from a real update; weights as safetensors, the optimizer's state as `torch.save` writes it. All of it lies in the page cache.

The pass of the inspection, digest and exact count of what is not finite together, and `hashlib.file_digest` alone take turns over
the same files, in one thread. Each pass is divided by the mean of the two digests around it. Held to the bar is the CPU time,
which is the wall time on a machine that does nothing else; both are shown.

Then a small GPT-2 trains in the main thread, in blocks with and without the inspector at work on the big checkpoint: reading,
counting, syncing, writing the manifest. The model is small so that its steps are short and mostly Python, where whoever holds the
interpreter is felt most. Counted are the steps during which it was at work from beginning to end. A block's median step is
divided by the mean of the medians of its neighbours.
"""

import hashlib
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _harness
from benchmarks._harness import Bar, at_least, at_most
from benchmarks.training_cost import Turn, ratios

WHAT = "The inspection of a checkpoint: its one pass over the digest alone, and a training's steps with and without it."
MOST_OVER_DIGEST, MOST_OVER_STEP = 1.2, 1.05
FEWEST_TURNS, FEWEST_BLOCKS = 7, 13
PASS_SECONDS, STEP_SECONDS = 60.0, 90.0
QUICK_PASS_SECONDS, QUICK_STEP_SECONDS = 10.0, 14.0
BLOCK_SECONDS, QUICK_BLOCK_SECONDS = 1.5, 0.5
FEWEST_STEPS = 5
"""Of a block, so that its median is one."""
SIZES = {False: (12, 768, 12), True: (24, 1024, 16)}


def write_checkpoint(folder: Path, *, large: bool) -> int:
    """Weights of a GPT-2 and the state of its optimizer after an update; how many weights there are."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, heads = SIZES[large]
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight) * 1e-3
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    model.save_pretrained(folder)
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 1}))
    os.sync()
    return sum(weight.numel() for weight in model.parameters())


# --- the pass


def digest_alone(folder: Path) -> list[str]:
    """The digests of the two big files, as Python's own library makes them."""
    digests = []
    for name in ("model.safetensors", "optimizer.pt"):
        with (folder / name).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def one_pass(folder: Path) -> list[str]:
    """The same digests, made by the inspection's pass; that it found nothing to count is checked, too."""
    from trainer_agent.scanning.one_pass import scan
    from trainer_agent.scanning.tensor_files import read_safetensors, read_torch

    digests = []
    for name, read in (("model.safetensors", read_safetensors), ("optimizer.pt", read_torch)):
        contents = read(folder / name)
        found = scan(folder / name, contents.regions or ())
        if (
            contents.regions is None
            or sum(region.size for region in contents.regions) < 0.99 * found.size_bytes
            or found.nonfinite
        ):
            raise RuntimeError(f"{name} was not counted as it should be")
        digests.append(found.sha256)
    return digests


def passes(folder: Path, seconds: float) -> list[Turn]:
    """Digest alone, pass, digest alone, ... until the time is over, but some."""
    if digest_alone(folder) != one_pass(folder):
        raise RuntimeError("the pass makes other digests")
    turns: list[Turn] = []
    began = time.monotonic()
    while len(turns) < FEWEST_TURNS or time.monotonic() - began < seconds or len(turns) % 2 == 0:
        is_on = len(turns) % 2 == 1
        cpu, wall = time.thread_time(), time.perf_counter()
        (one_pass if is_on else digest_alone)(folder)
        turns.append(Turn(is_on, time.thread_time() - cpu, time.perf_counter() - wall))
    return turns


# --- the steps


def stepper() -> Callable[[], None]:
    """One step of a small training."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(256, (4, 32))

    def step() -> None:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(20):
        step()
    return step


class AtWork:
    """The agent's own inspector, at work on one checkpoint over and over while it is wanted."""

    def __init__(self, folder: Path) -> None:
        from trainer_agent.checkpoints.inspection import Save
        from trainer_agent.checkpoints.inspector import Inspector

        self._inspector = Inspector(self._done)
        self._save = Save("benchmark", folder, 1, 1, 1.0)
        self.inspected: list[Any] = []

    def _done(self, facts: Any) -> None:
        self.inspected.append(facts)

    def is_on(self) -> bool:
        """Whether it works on it now."""
        return not self._inspector.wait(0.0)

    def begin(self) -> None:
        """From now on, where it does not yet."""
        if not self.is_on():
            self._inspector.submit(self._save)

    def finish(self) -> None:
        """Until it is through."""
        if not self._inspector.wait(300.0):
            raise RuntimeError("the inspection does not come to an end")

    def close(self) -> None:
        """Its thread ends."""
        self.finish()
        self._inspector.close()


def blocks(folder: Path, seconds: float, block_seconds: float) -> tuple[list[Turn], int]:
    """Blocks of steps without the inspector, with it, without it, ...; and how many inspections came to their end."""
    step, work = stepper(), AtWork(folder)
    turns: list[Turn] = []
    began = time.monotonic()
    while len(turns) < FEWEST_BLOCKS or time.monotonic() - began < seconds or len(turns) % 2 == 0:
        is_on = len(turns) % 2 == 1
        turns.append(_block(step, work, block_seconds, is_on=is_on))
        work.finish()
    work.close()
    if any(facts.state != "complete" or facts.nonfinite_weights or facts.nonfinite_optimizer for facts in work.inspected):
        raise RuntimeError("the inspection found what is not there")
    return turns, len(work.inspected)


def _block(step: Callable[[], None], work: AtWork, seconds: float, *, is_on: bool) -> Turn:
    """The median step of a block, CPU of the thread and wall."""
    cpus: list[float] = []
    walls: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(walls) < FEWEST_STEPS:
        if is_on:
            work.begin()
        cpu, wall = time.thread_time(), time.perf_counter()
        step()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        if not is_on or work.is_on():
            cpus.append(cpu)
            walls.append(wall)
    return Turn(is_on, statistics.median(cpus), statistics.median(walls))


# --- figures; pure from here on -------------------------------------------------------------------------------------------------


def results_of(turns: Sequence[Turn], names: tuple[str, str]) -> dict[str, Any]:
    """The ratios of the turns that are on to those around them, with their intervals, and the median of either kind."""
    told: dict[str, Any] = {"turns": len(turns)}
    kinds: tuple[tuple[str, Callable[[Turn], float]], ...] = (("cpu", lambda turn: turn.cpu), ("wall", lambda turn: turn.wall))
    for name, kind in kinds:
        each = ratios(turns, kind)
        medians = [_median(kind(turn) for turn in turns if turn.is_on is is_on) for is_on in (True, False)]
        told[name] = {"ratio": _median(each), "interval_95": interval(each)} | {
            f"{what}_ms": median * 1000 for what, median in zip(names, medians, strict=True)
        }
    return told


def interval(values: Sequence[float], draws: int = 1000) -> tuple[float, float]:
    """The 95 % interval of the median, by bootstrap; the same for the same values. One disturbed block of few moves it little."""
    if not values:
        return math.nan, math.nan
    chance = random.Random(1)  # noqa: S311
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws) - 1]


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else math.nan


def bars_of(results: dict[str, Any]) -> list[Bar]:
    """What was asked for."""
    return [
        at_most("digest and count in one pass over the digest alone, CPU", results["pass"]["cpu"]["ratio"], MOST_OVER_DIGEST),
        at_most("median step with the inspection over without, wall", results["step"]["wall"]["ratio"], MOST_OVER_STEP),
        at_least("turns of pass and digest", results["pass"]["turns"], FEWEST_TURNS),
        at_least("blocks of steps", results["step"]["turns"], FEWEST_BLOCKS),
        at_least("inspections that came to their end", results["inspections"], 1),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and gives the exit status."""
    parser = _harness.parser("checkpoint_scan", WHAT)
    parser.add_argument("--large", action="store_true", help="355 million weights in place of 124")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lossguard-scan-") as name:
        folder = Path(name) / "checkpoint-1"
        weights = write_checkpoint(folder, large=options.large)
        size = sum(path.stat().st_size for path in folder.iterdir())
        turns = passes(folder, QUICK_PASS_SECONDS if options.quick else PASS_SECONDS)
        seconds, each = (QUICK_STEP_SECONDS, QUICK_BLOCK_SECONDS) if options.quick else (STEP_SECONDS, BLOCK_SECONDS)
        steps, inspections = blocks(folder, seconds, each)
    results: dict[str, Any] = {"checkpoint": {"weights": weights, "bytes": size}, "inspections": inspections}
    results["pass"] = results_of(turns, ("one_pass", "digest_alone"))
    results["step"] = results_of(steps, ("with", "without"))
    results["pass"]["gigabytes_a_second"] = size / 1e6 / results["pass"]["wall"]["one_pass_ms"]
    return _harness.finish("checkpoint_scan", options, results, bars_of(results))


if __name__ == "__main__":
    sys.exit(main())
