"""What is seen of a hand-written loop without a line in it: when it evaluates, and what its optimizer is about to do.

Two hooks, both public ones of torch: before a forward pass (is it one of an evaluation?), and before `optimizer.step()` (the
learning rate of this update, the norm of its gradients where the script tells none, and a tighter clipping where a rollback
ordered one). Nothing here waits for a GPU. Their errors go to `on_error` and no further.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from trainer_agent.measuring.own_hooks import ClosedHook, OwnHook
from trainer_agent.measuring.probes import Probes
from trainer_agent.wire.vocabulary import Phase


class StepClock:
    """Seconds that belong to steps: stands still while the script evaluates, saves or does anything else between two steps."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lost = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        """The time, less all pauses."""
        return (self._clock() if self._stopped_at is None else self._stopped_at) - self._lost

    def pause(self) -> None:
        """Stands still from now on."""
        if self._stopped_at is None:
            self._stopped_at = self._clock()

    def go_on(self) -> None:
        """Runs again."""
        if self._stopped_at is not None:
            self._lost += self._clock() - self._stopped_at
            self._stopped_at = None


class Hooks:
    """Thread: training."""

    def __init__(
        self, probes: Probes, clock: StepClock, *, set_phase: Callable[[Phase], None], on_error: Callable[[Exception], None]
    ) -> None:
        self.max_grad_norm: float | None = None
        """Gradients are clipped to this norm before each update, after the script's own clipping; None: they are not."""
        self.wants_norm = True
        """Whether the norm is measured here: as long as the script does not tell it."""
        self.norm: torch.Tensor | None = None
        """The norm measured before the last update, as the optimizer saw the gradients."""
        self._probes, self._clock = probes, clock
        self._set_phase, self._on_error = set_phase, on_error
        self._is_evaluating = self._has_updated = False
        self._handles: list[Any] = []

    def attach(self, model: torch.nn.Module, optimizer: Any) -> None:
        """Sets the hooks; an optimizer that takes none is looked at when the step ends."""
        is_compiled = hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
        before = (ClosedHook if is_compiled else OwnHook)(self._before_forward)
        self._handles.append(model.register_forward_pre_hook(before))
        add = getattr(optimizer, "register_step_pre_hook", None)
        if add is not None:
            self._handles.append(add(self._before_update))

    def detach(self) -> None:
        """Takes them off again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def has_updated(self) -> bool:
        """Whether an update was seen since the last `take_update`."""
        return self._has_updated

    def take_update(self, optimizer: Any) -> torch.Tensor | None:
        """The norm seen since the last call. Where no update was seen the learning rate is read now."""
        if not self._has_updated:
            self._probes.before_update(optimizer)
        norm, self.norm, self._has_updated = self.norm, None, False
        return norm

    def _before_forward(self, module: torch.nn.Module, args: Any) -> None:
        del args
        if torch.compiler.is_compiling():
            return
        is_evaluating = not module.training and not torch.is_grad_enabled()
        if is_evaluating is self._is_evaluating:
            return
        self._is_evaluating = is_evaluating
        (self._clock.pause if self._is_evaluating else self._clock.go_on)()
        self._set_phase(Phase.EVALUATING if self._is_evaluating else Phase.TRAINING)

    def _before_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        try:
            self._has_updated = True
            self._probes.before_update(optimizer)
            if self.wants_norm or self.max_grad_norm is not None:
                self._look_at_gradients(optimizer)
        except Exception as error:
            self.wants_norm = False
            self._on_error(error)

    def _look_at_gradients(self, optimizer: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"] if weight.grad is not None]
        scale = getattr(optimizer, "grad_scale", None)  # set by a GradScaler that leaves it to the optimizer to unscale
        norm = get_total_norm([weight.grad for weight in weights])
        self.norm = norm if scale is None else norm / scale
        if self.max_grad_norm is not None:
            clip_grads_with_norm_(weights, self.max_grad_norm, self.norm)
