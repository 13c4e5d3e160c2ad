"""The raw numbers of each step, taken without disturbing it.

The loss is what the micro-batches gave, added up as the Trainer does; the logged one is no source, because the Trainer's NaN
filter hides exactly what matters. The grad norm is the one before clipping. A skipped step is told by the fall of the loss
scale, because the optimizer's own flag stays silent with fused optimizers. Numbers on a GPU are copied without waiting for it
and read one step late or later, under the number of their own step (`landing`); on the CPU they are there at once.

A compiled model keeps its graphs: the hooks on it are closed to the compiler, and no hook is set inside it. Where the compiler
comes across a hook all the same, it finds that there is nothing to compile. Norms that are spread over processes are left alone.

Thread: training, all of it. The hooks run inside the user's forward pass, so their errors go to `on_error` and no further; all
other errors are for the caller to catch.
"""

import ctypes
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from trainer_agent.wire import series

from .guard import StepFacts
from .landing import Far, Flight, Landing, far
from .model_calls import count_tokens, loss_of
from .own_hooks import ClosedHook, OwnHook
from .own_time import OwnTime

_SCALE_AFTER = "scale_after"
_SHORT = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64"}

Number = float | torch.Tensor | Far


@dataclass(frozen=True, slots=True)
class Precision:
    """What the forward pass was seen to compute in, never what was configured."""

    dtype: str
    autocast: bool
    scaler: bool

    def attributes(self) -> dict[str, str | bool]:
        """As run and segment attributes."""
        return {"precision": self.dtype, "autocast": self.autocast, "loss_scaler": self.scaler}


@dataclass(frozen=True, slots=True)
class Reading:
    """One step: its values by series name, and what of it the guard wants to know."""

    step: int
    values: dict[str, float]
    facts: StepFacts


@dataclass(slots=True)
class _Pending:
    step: int
    known: dict[str, float]
    flight: Flight
    losses: int
    """How many losses were added up of which the mean is wanted."""


@dataclass(slots=True)
class _Step:
    """What has been gathered of the step under way. A forward pass ran for each of `losses` micro-batches."""

    loss: Number | None = None
    losses: int = 0
    is_mean: bool = False
    norm: Number | None = None
    learning_rate: Number | None = None
    tokens: int = 0


class Probes:
    """Gathers one step at a time. `from_forward` takes the loss off the model's output; else the driver hands it in."""

    def __init__(
        self,
        *,
        from_forward: bool,
        on_error: Callable[[Exception], None] = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.precision: Precision | None = None
        self.rate_of: Callable[[Any], float | torch.Tensor] = lambda optimizer: optimizer.param_groups[0]["lr"]
        """What the update is made with, where something is put on the rate that the optimizer holds."""
        self._on_error = on_error
        self._from_forward = from_forward
        self._clock = clock
        self._mark = clock()
        self._own = OwnTime(clock)
        self._hooks: list[Any] = []
        self._looking: list[Any] = []
        self._scaler: Any = None
        self._scale: float | None = None
        self._has_seen_loss = False
        self._now = _Step()
        self._waiting: deque[_Pending] = deque()
        self._landing = Landing()
        self._gpu: int | None = None

    @property
    def gpu(self) -> int | None:
        """The GPU that the model lies on, as torch counts them; None for the CPU. The first one of several."""
        return self._gpu

    @property
    def has_scaler(self) -> bool:
        """Whether a loss scaler protects the weights."""
        return self._scaler is not None

    @property
    def has_seen_loss(self) -> bool:
        """Whether a loss was found, which is not so where a trainer computes it outside the model and nobody hands it in."""
        return self._has_seen_loss

    def attach(
        self, model: torch.nn.Module, optimizer: Any, *, look_inside: bool = True, is_one_of_several: bool = False
    ) -> None:
        """Sets the hooks. `look_inside=False` for a model that is compiled, or will be, where that cannot be seen of it.

        `is_one_of_several`: this is a rank among others, so its own time is a series.
        """
        self.detach()
        is_open = look_inside and not _is_compiled(model)
        scaler = getattr(optimizer, "scaler", None)
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._scale = self._scaler.get_scale() if self._scaler is not None else None
        self._now, self._mark = _Step(), self._clock()
        self._waiting.clear()
        self._landing = Landing()
        self._gpu = next((weight.device.index for weight in model.parameters() if weight.device.type == "cuda"), None)
        kind = OwnHook if is_open else ClosedHook  # else the compiler compiles it, again and again, and fails where it may not
        self._hooks = [
            model.register_forward_pre_hook(kind(self._safe(self._before_forward)), with_kwargs=True),
            model.register_forward_hook(kind(self._safe(self._after_forward)), with_kwargs=True),
        ]
        if is_one_of_several:
            self._own.attach(model, kind)
        if self.precision is None and is_open:
            inside = list(model.modules())[1:] or [model]
            look = OwnHook(self._safe(self._look))
            self._looking = [module.register_forward_pre_hook(look) for module in inside]

    def _safe(self, hook: Callable[..., None]) -> Callable[..., None]:
        def safe(*args: Any) -> None:
            if torch.compiler.is_compiling():
                return
            try:
                hook(*args)
            except Exception as error:
                self._on_error(error)

        return safe

    def detach(self) -> None:
        """Takes the hooks off again."""
        for hook in (*self._hooks, *self._looking):
            hook.remove()
        self._hooks, self._looking = [], []
        self._own.detach()

    def take_loss(self, loss: torch.Tensor) -> None:
        """The loss of one micro-batch as it went into the gradient, any shape."""
        self._add(loss, is_mean=False)

    def take_norm(self, norm: Number | None) -> None:
        """The global norm of the gradients before clipping."""
        if _is_spread(norm):
            return
        self._now.norm = _held(_read_here(norm.detach())) if isinstance(norm, torch.Tensor) else norm

    def begin_step(self) -> None:
        """Forgets what an unfinished step left behind."""
        self._now = _Step()

    def before_update(self, optimizer: Any) -> None:
        """The learning rate this update is made with."""
        rate = self.rate_of(optimizer)
        # a rate in a tensor is changed in place by the schedule before the step is closed
        self._now.learning_rate = _held(rate.detach().clone()) if isinstance(rate, torch.Tensor) else float(rate)

    def restart_clock(self) -> None:
        """The time until now, spent on saving or evaluating, is not the next step's."""
        self._mark = self._clock()
        self._own.free()

    def free(self) -> None:
        """The step is over on all ranks, and each goes on by itself."""
        self._own.free()

    def end_step(self, step: int) -> list[Reading]:
        """Closes the step and gives those that can be read without waiting, oldest first."""
        gathered, self._now = self._now, _Step()
        seconds, self._mark = self._clock() - self._mark, self._clock()
        known = {series.STEP_SECONDS: seconds}
        if (own := self._own.take()) is not None:
            known[series.OWN_SECONDS] = own
        if gathered.tokens and seconds > 0:
            known[series.TOKENS_PER_SECOND] = gathered.tokens / seconds
        flight = Flight()
        try:
            flight = self._send(known, self._numbers(gathered))
        except Exception as error:  # what is known without them goes its way
            self._on_error(error)
        self._waiting.append(_Pending(step, known, flight, gathered.losses if gathered.is_mean else 1))
        return self._read(wait=False)

    def _send(self, known: dict[str, float], numbers: Mapping[str, Number]) -> Flight:
        """Numbers on a GPU are sent on their way; all others are known at once."""
        away: dict[str, Far] = {}
        for name, number in numbers.items():
            if isinstance(number, Far):
                away[name] = number
            else:
                known[name] = float(number)
        return self._landing.send(away)

    def drain(self) -> list[Reading]:
        """All steps not read yet; waits for the GPU."""
        return self._read(wait=True)

    def _numbers(self, gathered: _Step) -> dict[str, Number]:
        numbers: dict[str, Number] = {}
        found = {
            series.LOSS: gathered.loss,
            series.GRAD_NORM: gathered.norm,
            series.LEARNING_RATE: gathered.learning_rate,
        }
        numbers.update({name: number for name, number in found.items() if number is not None})
        if self._scaler is not None:
            # the attribute, because the public get_scale() waits for the GPU
            tensor = getattr(self._scaler, "_scale", None)
            numbers[_SCALE_AFTER] = _held(tensor) if isinstance(tensor, torch.Tensor) else float(self._scaler.get_scale())
        return numbers

    def _read(self, *, wait: bool) -> list[Reading]:
        readings = []
        while self._waiting:
            flight = self._waiting[0].flight
            if wait:
                flight.wait()
            elif not flight.has_landed():
                break
            readings.append(self._finish(self._waiting.popleft()))
        return readings

    def _finish(self, pending: _Pending) -> Reading:
        values = pending.known | pending.flight.values()
        if series.LOSS in values:
            values[series.LOSS] /= pending.losses
        after, skipped = values.pop(_SCALE_AFTER, None), False
        if after is not None:
            before = after if self._scale is None else self._scale
            skipped = after < before or after == 0.0
            self._scale = after
            values[series.LOSS_SCALE], values[series.OVERFLOW] = before, float(skipped)
        return Reading(
            pending.step, values, StepFacts(pending.step, values.get(series.LOSS), skipped, has_scaler=self.has_scaler)
        )

    def _before_forward(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module.training:
            self._now.tokens += count_tokens(args, kwargs)

    def _after_forward(self, module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        del args
        if self._looking:  # no module inside was called: what is seen from outside has to do
            self._look(module, ())
        loss = loss_of(output) if module.training and self._from_forward else None
        if loss is not None:
            self._add(loss, is_mean=kwargs.get("num_items_in_batch") is None)

    def _add(self, loss: torch.Tensor, *, is_mean: bool) -> None:
        if _is_spread(loss):
            return
        one, now = _one(loss.detach()), self._now
        before = now.loss.value if isinstance(now.loss, Far) else now.loss
        now.loss = _held(one if before is None else _added(before, one))
        now.losses += 1
        now.is_mean = is_mean
        self._has_seen_loss = True

    def _look(self, module: torch.nn.Module, args: Any) -> None:
        """What the forward pass computes in, seen from inside it."""
        del args
        for hook in self._looking:
            hook.remove()
        self._looking = []
        weight = next((p for p in module.parameters() if p.is_floating_point()), None)
        kind = weight.device.type if weight is not None else "cpu"
        autocast = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if autocast else weight.dtype if weight is not None else torch.float32
        self.precision = Precision(short_name(dtype), autocast, self.has_scaler)


def short_name(dtype: torch.dtype) -> str:
    """`fp16` for torch.float16, and so on."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def _one(loss: torch.Tensor) -> torch.Tensor | float:
    """A loss as one number."""
    if loss.ndim:
        loss = loss.float().mean()
    read = _read_here(loss)
    # a copy where it stays: a CUDA graph writes the next loss into the same place
    return read.to(torch.float32, copy=True) if isinstance(read, torch.Tensor) else read


def _added(before: torch.Tensor | float, one: torch.Tensor | float) -> torch.Tensor | float:
    """Their sum in the precision the Trainer adds in, so that the loss is its loss to the last bit."""
    total = before + one
    return total if isinstance(total, torch.Tensor) else ctypes.c_float(total).value


def _read_here(value: torch.Tensor) -> torch.Tensor | float:
    """The number itself where it lies in this memory: one read is cheaper than the copies that keep a tensor."""
    return float(value.item()) if value.device.type == "cpu" and value.ndim == 0 else value


def _held(value: torch.Tensor | float) -> Number:
    return far(value) if isinstance(value, torch.Tensor) and value.device.type == "cuda" else value


def _is_spread(value: object) -> bool:
    """Whether it is a tensor of which each process has a part: to read it, all would have to take part."""
    return hasattr(value, "placements")


def _is_compiled(model: torch.nn.Module) -> bool:
    """Whether the model or something in it is compiled."""
    return any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())
