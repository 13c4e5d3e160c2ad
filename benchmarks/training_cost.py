"""What the agent costs a real training: the demo's GPT-2 in fp16, with the agent switched on and off in turns of ten steps.

    python -m benchmarks.training_cost [--quick] [--json]

One process trains; the server is another one on the same machine. Switched on, the training is as under `guarded_train` with a
policy that only watches: the callback is in the Trainer, the hooks are on the model, `training_step` and `clip_grad_norm_` are
looked at, and three `log()` calls or so a step go through spool and sender to the server. Switched off, all of that is taken out
again, as at the end of a guarded training; the agent's background threads stay, with no more to do than the rest of the turn
before. The switching itself is in no figure. Left out are the demo's saves and what it dies of, the bad document and the high
learning rate: skipped steps would be cheap ones.

The figure is the CPU time of the training thread: each turn with the agent is divided by the mean of the two turns without it
around it, which takes out a machine that grows faster or slower meanwhile. The mean of these ratios, less a tenth of them at
either end, is held to the bar; its interval is a bootstrap over the ratios. There are turns until that interval is narrow enough
to tell, or there have been very many. The wall time has no bar: there the server has a part, for want of a machine of its own.
"""

# ruff: noqa: ARG002  the Trainer calls the methods of a callback with all of its arguments

import contextlib
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import _harness
from benchmarks._harness import Bar, at_least, at_most

WHAT = "What the agent costs a real training in CPU time of the training thread, switched on and off in turns of ten steps."
TURN_STEPS = 10
WARMUP_TURNS = 2
FEWEST_TURNS, QUICK_TURNS, MOST_TURNS = 60, 24, 400
QUICK_SECONDS, MOST_SECONDS = 25.0, 400.0
"""Time for turns; past it there are only the fewest."""
NARROW = 0.006
"""Of the interval, from end to end."""
TRIMMED = 0.1
LEARNING_RATE = 0.1
MOST_COST = 1.01


@dataclass(frozen=True, slots=True)
class Turn:
    """Ten steps with the agent, or without: seconds of CPU of the training thread, and by the clock on the wall."""

    is_on: bool
    cpu: float
    wall: float


Enough = Callable[[Sequence[Turn], float], bool]
"""Whether these turns, made in so many seconds, are enough."""


class Switch:
    """Counts the steps, and turns the agent on and off. `begin_step` is called first of all at each step."""

    def __init__(self, turn_on: Callable[[Any], None], turn_off: Callable[[], None], is_enough: Enough) -> None:
        self.turns: list[Turn] = []
        self._turn_on, self._turn_off = turn_on, turn_off
        self._is_enough, self._began = is_enough, time.monotonic()
        self._is_on, self._steps, self._cpu, self._wall = True, 0, 0.0, 0.0

    def begin_step(self, given: Any) -> bool:
        """Closes a turn where one is over, and begins the next; whether that was the last."""
        is_over = False
        if self._steps % TURN_STEPS == 0:
            if self._steps:
                self.turns.append(Turn(self._is_on, time.thread_time() - self._cpu, time.perf_counter() - self._wall))
            is_over = self._is_enough(self.turns[WARMUP_TURNS:], time.monotonic() - self._began)
            self._set(given, is_on=len(self.turns) % 2 == 0)
            self._cpu, self._wall = time.thread_time(), time.perf_counter()
        self._steps += 1
        return is_over

    def _set(self, given: Any, *, is_on: bool) -> None:
        if is_on and not self._is_on:
            self._turn_on(given)
        elif self._is_on and not is_on:
            self._turn_off()
        self._is_on = is_on


def run(is_enough: Enough) -> tuple[dict[str, Any], list[Turn]]:
    """Trains until there are enough turns; what there is to know of the training, and its turns after the first ones."""
    with tempfile.TemporaryDirectory(prefix="lossguard-cost-") as name, _harness.server(Path(name)) as server:
        with contextlib.redirect_stdout(sys.stderr):
            told, done = _train(server, Path(name) / "run", is_enough)
        return told, done[WARMUP_TURNS:]


def _train(server: _harness.Server, folder: Path, is_enough: Enough) -> tuple[dict[str, Any], list[Turn]]:
    sys.path.insert(0, str(_harness.ROOT / "examples"))
    import gpt2_fp16 as demo
    import torch
    from transformers import TrainerCallback
    from transformers.trainer_utils import SaveStrategy

    from trainer_agent.config import Config
    from trainer_agent.hf import guarding
    from trainer_agent.policy import Policy

    torch.set_num_threads(1)
    demo.LEARNING_RATE = LEARNING_RATE
    data, recorder = demo.Rows(0), demo.Recorder()
    data.rows = data.rows[[index for index, source in enumerate(data.source) if source != demo.CULPRIT]]
    steps = TURN_STEPS * (WARMUP_TURNS + MOST_TURNS + 1)
    trainer = demo.build_trainer(data, folder, seed=0, steps=steps, device="cpu", recorder=recorder)
    trainer.args.save_strategy = SaveStrategy.NO

    class Turning(TrainerCallback):
        """Stands before the agent's own callback, so that all of that one lies between two of its looks at the clock."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Looks at the clock."""
            control.should_training_stop |= switch.begin_step(kwargs)

    trainer.add_callback(Turning())
    driver = guarding._Driver(trainer, Policy.watch_only(), Config(server.url, server.token), None, resume=None)  # noqa: SLF001
    switch = Switch(*switches(driver), is_enough)
    driver.train()
    seen = recorder.segments[-1]
    told = {"steps": len(seen.steps), "first_loss": seen.loss[0], "last_loss": seen.loss[-1], "skipped": sum(seen.skipped)}
    return told, switch.turns


def switches(driver: Any) -> tuple[Callable[[Any], None], Callable[[], None]]:
    """Puts the agent into a running training, and takes it out: what the driver does at the begin and the end of one.

    A batch that the loader has fetched ahead still carries its ids when the agent is taken out, so they are taken off then too.
    Fetching itself stays as it was when the epoch began, in both turns: what carrying costs is measured in tests/ledger.
    """
    from trainer_agent.data.samples import Taking
    from trainer_agent.guest.wrapping import wrap

    bare: list[Callable[[], None]] = []

    def turn_on(given: Any) -> None:
        while bare:
            bare.pop()()
        driver._put_in()  # noqa: SLF001
        driver._session.probes.attach(given["model"], given["optimizer"])  # noqa: SLF001

    def turn_off() -> None:
        for undo in reversed(driver._undo):  # noqa: SLF001
            undo()
        driver._undo.clear()  # noqa: SLF001
        driver._session.probes.detach()  # noqa: SLF001
        bare.append(wrap(driver._trainer, "get_batch_samples", without_ids))  # noqa: SLF001

    def without_ids(original: Callable[..., Any], batches: Any, *args: Any, **kwargs: Any) -> Any:
        return original(Taking(batches, lambda *_: None), *args, **kwargs)

    return turn_on, turn_off


# --- figures; pure from here on -------------------------------------------------------------------------------------------------


def ratios(turns: Sequence[Turn], kind: Callable[[Turn], float]) -> list[float]:
    """Each turn with the agent over the mean of the two without it that are its neighbours."""
    return [
        kind(turn) / ((kind(before) + kind(after)) / 2)
        for before, turn, after in zip(turns, turns[1:], turns[2:], strict=False)
        if turn.is_on and not before.is_on and not after.is_on
    ]


def centre(values: Sequence[float]) -> float:
    """The mean without a tenth of the values at either end; not a number when there are none, or one is none."""
    if not values or any(map(math.isnan, values)):
        return math.nan
    cut = int(TRIMMED * len(values))
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def interval(values: Sequence[float], draws: int = 1000) -> tuple[float, float]:
    """The 95 % interval of the centre, by bootstrap; the same for the same values."""
    if not values:
        return math.nan, math.nan
    chance = random.Random(1)  # noqa: S311
    centres = sorted(centre(chance.choices(values, k=len(values))) for _ in range(draws))
    return centres[int(0.025 * draws)], centres[int(0.975 * draws) - 1]


def are_enough(turns: Sequence[Turn], seconds: float) -> bool:
    """Turns until the interval is narrow. How narrow depends on the noise alone, so this favours neither side of the bar."""
    if len(turns) < FEWEST_TURNS:
        return False
    each = ratios(turns, lambda turn: turn.cpu)
    return len(turns) >= MOST_TURNS or seconds > MOST_SECONDS or 4 * statistics.stdev(each) / math.sqrt(len(each)) < NARROW


def are_enough_in_a_hurry(turns: Sequence[Turn], seconds: float) -> bool:
    """As many turns as there is time for, but some."""
    return len(turns) >= QUICK_TURNS and (seconds > QUICK_SECONDS or len(turns) >= FEWEST_TURNS)


def results_of(turns: Sequence[Turn]) -> dict[str, Any]:
    """Milliseconds a step, and the ratios with their intervals."""
    told: dict[str, Any] = {"turns": len(turns), "steps_a_turn": TURN_STEPS}
    kinds: tuple[tuple[str, Callable[[Turn], float]], ...] = (("cpu", lambda turn: turn.cpu), ("wall", lambda turn: turn.wall))
    for name, kind in kinds:
        with_it, without = ([kind(turn) for turn in turns if turn.is_on is is_on] for is_on in (True, False))
        each = ratios(turns, kind)
        told[name] = {
            "ratio": centre(each),
            "interval_95": interval(each),
            "ratio_of_sums": statistics.fmean(with_it) / statistics.fmean(without) if with_it and without else math.nan,
            "ms_a_step_with": statistics.median(with_it) * 1000 / TURN_STEPS if with_it else math.nan,
            "ms_a_step_without": statistics.median(without) * 1000 / TURN_STEPS if without else math.nan,
        }
    return told


def bars_of(results: dict[str, Any], fewest_turns: int) -> list[Bar]:
    """What was asked for."""
    return [
        at_most("CPU time of the training thread, agent on over off", results["cpu"]["ratio"], MOST_COST),
        at_least("turns of ten steps", results["turns"], fewest_turns),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and gives the exit status."""
    options = _harness.parse("training_cost", WHAT, arguments)
    training, measured = run(are_enough_in_a_hurry if options.quick else are_enough)
    results = results_of(measured)
    fewest = QUICK_TURNS if options.quick else FEWEST_TURNS
    return _harness.finish("training_cost", options, results | {"training": training}, bars_of(results, fewest))


if __name__ == "__main__":
    sys.exit(main())
