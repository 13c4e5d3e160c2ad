"""One training in turns of ten steps, with the agent and without, and what is looked at in each turn.

    strict    with the agent; torch raises where the agent's own code would wait for the GPU
    on, off   timed, with the agent and without
    seen_on, seen_off    under torch's profiler, which counts the calls that wait

The GPU is waited for between the turns, whatever comes next, so that no turn pays for the one before.
"""

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback
from transformers.trainer_utils import SaveStrategy

from benchmarks import _harness
from benchmarks._gpu_training import Size, build
from benchmarks.training_cost import Turn, switches
from trainer_agent.config import Config
from trainer_agent.hf import guarding
from trainer_agent.policy import Policy

TURN_STEPS = 10
SEEN_STEPS = 4
"""Of a turn under the profiler, the last ones: a turn with the agent begins with some work of its own."""

WAITING = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "hipStreamSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
    "Memcpy DtoH (Device -> Pageable)",
)
"""What the profiler calls the moments at which the program waits for the GPU, or is made to by a copy."""
READING = "aten::_local_scalar_dense"
"""A value taken out of a tensor: on a GPU it waits."""

WATCHED = {
    "": ("step_ended", "forward_seen", "log"),
    "probes": ("begin_step", "take_loss", "take_norm", "before_update", "_before_forward", "_after_forward"),
}
"""What of a session the training calls in each step."""


class Strict:
    """Lets torch raise where the agent's own code waits for the GPU; on the CPU it only counts the calls."""

    def __init__(self, device: str) -> None:
        self.is_on = False
        self.calls = 0
        self.errors: list[str] = []
        self._has_mode = device == "cuda"

    def surround(self, session: Any) -> None:
        """Puts the mode around every method of the `Session` that the training calls."""
        for part, names in WATCHED.items():
            owner = getattr(session, part) if part else session
            for name in names:
                setattr(owner, name, self._around(getattr(owner, name)))

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def strictly(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on:
                return original(*args, **kwargs)
            self.calls += 1
            self._set("error")
            try:
                return original(*args, **kwargs)
            except Exception as error:
                self.errors.append(f"{original.__name__}: {error}"[:200])
                raise
            finally:
                self._set("default")

        return strictly

    def _set(self, mode: str) -> None:
        if self._has_mode:
            torch.cuda.set_sync_debug_mode(mode)


@dataclass
class Seen:
    """What came out of the turns."""

    turns: list[Turn] = field(default_factory=list)
    waits: dict[str, list[Counter[str]]] = field(default_factory=lambda: {"seen_on": [], "seen_off": []})
    series: set[str] = field(default_factory=set)
    strict: Strict = field(default_factory=lambda: Strict("cpu"))

    def waits_a_step(self) -> dict[str, dict[str, float]]:
        """With the agent and without, by name."""
        return {kind: {name: _a_step(counts, name) for name in (*WAITING, READING)} for kind, counts in self.waits.items()}


def _a_step(counts: list[Counter[str]], name: str) -> float:
    return statistics.fmean(count[name] for count in counts) / SEEN_STEPS if counts else math.nan


class Turns(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
    """Goes through `plan`, a turn after the other. Stands before the agent's own callback."""

    def __init__(self, plan: list[str], device: str) -> None:
        self.seen = Seen(strict=Strict(device))
        self.turn_on: Callable[[Any], None] = lambda _: None
        self.turn_off: Callable[[], None] = lambda: None
        self._plan, self._device = plan, device
        self._steps, self._is_on, self._began = 0, True, (0.0, 0.0)
        self._profile: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Between two steps: closes a turn where one is over, and begins the next."""
        place, within = divmod(self._steps, TURN_STEPS)
        if within == 0:
            if self._steps:
                self._close(self._plan[place - 1])
            if place == len(self._plan):
                control.should_training_stop = True
                return
            self._open(self._plan[place], kwargs)
        elif within == TURN_STEPS - SEEN_STEPS and self._plan[place] in self.seen.waits:
            self._look()
        self._steps += 1

    def _open(self, kind: str, given: Any) -> None:
        is_on = kind in ("strict", "on", "seen_on")
        if is_on and not self._is_on:
            self.turn_on(given)
        elif self._is_on and not is_on:
            self.turn_off()
        self._is_on, self.seen.strict.is_on = is_on, kind == "strict"
        self._settle()
        self._began = time.thread_time(), time.perf_counter()

    def _close(self, kind: str) -> None:
        self._settle()
        cpu, wall = time.thread_time() - self._began[0], time.perf_counter() - self._began[1]
        if kind in ("on", "off"):
            self.seen.turns.append(Turn(kind == "on", cpu, wall))
        if self._profile is not None:
            self._profile.__exit__(None, None, None)
            counted = Counter({entry.key: entry.count for entry in self._profile.key_averages()})
            self.seen.waits[kind].append(counted)
            self._profile = None

    def _look(self) -> None:
        self._settle()
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._device == "cuda" else [])]
        self._profile = profile(activities=kinds)
        self._profile.__enter__()

    def _settle(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def run(folder: Path, server: _harness.Server, size: Size, device: str, *, pairs: int, looks: int) -> Seen:
    """Trains in `pairs` timed turns with the agent, each between two without, and `2 * looks` more to look at."""
    timed = ["off", *["on", "off"] * pairs]
    plan = ["strict", "off", "on", *timed, *["seen_on", "seen_off"] * looks]
    turns = Turns(plan, device)
    trainer = build(folder, size, device, (len(plan) + 1) * TURN_STEPS, [turns], logging_steps=10**6)
    trainer.args.save_strategy = SaveStrategy.NO
    driver = guarding._Driver(trainer, Policy.watch_only(), Config(server.url, server.token), None, resume=None)  # noqa: SLF001
    _note_series(driver._session._monitor, turns.seen.series)  # noqa: SLF001
    turns.seen.strict.surround(driver._session)  # noqa: SLF001
    turns.turn_on, turns.turn_off = switches(driver)
    driver.train()
    turns.seen.turns = turns.seen.turns[2:]  # an "off" and an "on" to warm up
    return turns.seen


def _note_series(monitor: Any, names: set[str]) -> None:
    log = monitor.log

    def noted(values: Any, step: int) -> None:
        with suppress(Exception):
            names.update(values)
        log(values, step)

    monitor.log = noted
