"""A training loop under watch: `watch`, and the `Run` that its block gets.

    with watch(model, optimizer, scaler=scaler, output_dir="out", save_every=500) as run:
        for step in run.steps(max_steps):           # or: for batch in run.batches(loader, epochs=3)
            ...                                     # the step, as it was
            run.step_ended(loss=loss, grad_norm=norm)

    take data -> (the script's step) -> step_ended -> the rest of the iteration -> boundary -> take data ...
                                                                                     |
                                              save, stop, or everything back in place and on from the step of a checkpoint

All that is done to the training is done at the boundary, where the loop comes back for its next step: the script's own code of
the iteration is over then, so what is saved is what the next step begins with. A rollback is done in place: the loop goes on and
is handed earlier steps.

Arguments that make no sense raise before the training starts. After that no error of LossGuard reaches the script, with one
exception: a rollback that broke off in the middle (`HalfLoaded`), because nothing sane could follow it.
"""

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from trainer_agent.config import Config
from trainer_agent.data.samples import DocumentOf
from trainer_agent.guest import ends
from trainer_agent.guest.harmless import go_on, quietly, tell
from trainer_agent.policy import Policy
from trainer_agent.wire import series
from trainer_agent.wire.messages import Scalar

from . import facts
from .accelerate import AcceleratedState, check_accelerator
from .beginning import Settings
from .run import Driver
from .state import HalfLoaded, State

__all__ = ["HalfLoaded", "Run", "watch"]

_open: "set[Run]" = set()
_ending = threading.Lock()


def watch(
    model: torch.nn.Module,
    optimizer: Any,
    scheduler: Any = None,
    scaler: Any = None,
    *,
    output_dir: str | os.PathLike[str],
    save_every: int | None = None,
    keep: int = 5,
    total_steps: int | None = None,
    resume: bool = False,
    also: Mapping[str, Any] | None = None,
    accelerator: Any = None,
    policy: Policy | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    url: str | None = None,
    token: str | None = None,
    project: str | None = None,
    name: str | None = None,
    run_id: str | None = None,
) -> "Run":
    """The training under watch. Objects that accelerate has prepared are taken as they are, with their scaler.

    Args:
        output_dir: for the checkpoints and the run's own files.
        save_every: saves a checkpoint every so many steps and at the last one; None: only where the script calls `run.save()`.
        keep: so many checkpoints are kept, and more where those would not be three that are fit to go back to (see `retention`).
        total_steps: how many steps are planned, for the page; also the end of `run.steps()` and `run.batches()` without one.
        resume: goes on from the newest checkpoint in `output_dir` that is fit, and takes its run up; begins anew where there is
            none.
        also: more things whose state belongs to the training, by name: a second optimizer, an average of the weights, a
            generator. With `state_dict()` and `load_state_dict()`, or random generators of Python, torch or NumPy.
        accelerator: checkpoints are saved by its `save_state` and loaded by its `load_state`, with all that is registered with
            it, so that they serve without LossGuard, too. Without it LossGuard saves the parts named here by itself.
        policy: what the run obeys, and what becomes of it when it is dead; the default stops a dead run.
        attributes: what the page shows of the run beyond what is seen of it.
        url, token, project, name: where to send, and as what; else `LOSSGUARD_*`, else the file of `lossguard login`.
        run_id: takes up this run.

    Raises:
        TypeError, ValueError: for arguments that make no sense, and for checkpoints that are nothing to go on from.
    """
    state = _state_of(model, optimizer, scheduler, scaler, also=also, accelerator=accelerator)
    for what, count in (("save_every", save_every), ("keep", keep), ("total_steps", total_steps)):
        facts.check_count(what, count)
    if isinstance(resume, str | os.PathLike):
        raise TypeError("resume is True or False: the training goes on from the newest checkpoint in output_dir that is fit")
    facts.check_attributes(attributes or {})
    if policy is not None and not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy, such as Policy(on_dead='hold'), not {policy!r}")
    settings = Settings(
        output_dir=Path(output_dir).absolute(),
        policy=policy or Policy(),
        config=Config.load(url, token, project, name),
        run_id=run_id,
        total_steps=total_steps,
        save_every=save_every,
        keep=keep,
        resume=resume,
        attributes=dict(attributes or {}),
    )
    return Run(Driver(state, settings))


def _state_of(
    model: torch.nn.Module, optimizer: Any, scheduler: Any, scaler: Any, *, also: Mapping[str, Any] | None, accelerator: Any
) -> State:
    """What is trained, with the scaler that accelerate has put into a prepared optimizer; without one that is switched off.

    Raises:
        TypeError, ValueError
    """
    is_prepared = hasattr(optimizer, "gradient_state")
    scaler = getattr(optimizer, "scaler", None) if scaler is None and is_prepared else scaler
    in_use = scaler is not None and (not hasattr(scaler, "is_enabled") or scaler.is_enabled())
    parts = (model, optimizer, scheduler, scaler if in_use else None, also if also is not None else {})
    state = State(*parts) if accelerator is None else AcceleratedState(*parts, accelerator)
    facts.check_state(state)
    if isinstance(state, AcceleratedState):
        check_accelerator(state)
    return state


class Run:
    """A training under watch, as `watch` gives it. Thread: training.

    Used with `with`, the run ends with the block, and as what the block was left by. Without, it ends with the process;
    a loop that is left by `break` is told so by `end()`.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._pid = os.getpid()
        _open.add(self)

    @property
    def step(self) -> int:
        """Steps that are done."""
        return self._driver.step

    @property
    def stopped(self) -> bool:
        """Whether the training was stopped, by a command or because it was dead; no loop gives another step then."""
        return self._driver.stopped

    @property
    def weight(self) -> float:
        """What the loss of the batch under way counts: 1, but in a step that has lost batches to an exclude.

        There the mean is over the batches that are left, so they count more than 1; one that was left empty is a stand-in, to be
        run so that no rank waits for another, and counts 0: its gradients are dropped, whatever they are.
        """
        return self._driver.weight

    @property
    def max_grad_norm(self) -> float | None:
        """The clipping that a rollback ordered, None without one. It is applied before each update, after the script's own."""
        return self._driver.max_grad_norm

    def steps(self, max_steps: int | None = None, *, random_batches: bool = False) -> Iterator[int]:
        """In place of `range(max_steps)`: the number of steps done before each step, up to `max_steps` in all; None: no end.

        After a rollback it gives the steps from the checkpoint on again, with the random state that was there; so a script that
        draws its batches at random inside the step draws the same ones. It begins where a resumed training stands.

        Args:
            random_batches: the batches are drawn at random inside the step, from the generators of Python, NumPy or torch
                themselves. Then a rollback can pass over a window of them: it goes on with what would have been drawn after it.

        Raises:
            TypeError, ValueError
        """
        facts.check_count("max_steps", max_steps, least=0)
        return self._driver.over_steps(max_steps, random_batches=random_batches)

    def batches(
        self,
        loader: Iterable[Any],
        max_steps: int | None = None,
        *,
        epochs: int | None = None,
        weighted: bool = False,
        document_of: DocumentOf = None,
    ) -> Iterator[Any]:
        """In place of the loops over epochs and loader: batch after batch, `epochs` times or up to `max_steps` steps in all.

        A step is over with the iteration in which `step_ended` is called. With objects that accelerate has prepared it is called
        in each iteration, and counts where the gradients are synchronised. The loader is told each epoch by `set_epoch`, if it
        has that. After a rollback it goes back to the batch where the checkpoint was, in the same order.

        Args:
            weighted: the script multiplies the loss of each batch by `run.weight` before its backward pass. Then a rollback can
                leave samples out also where a step is made of several batches, on one rank or on several.
            document_of: the key under which an item of the data names its document, or a function from a sample's number to the
                id; None looks for `document_id`.

        Raises:
            TypeError: the loader cannot begin again, as an iterator cannot.
        """
        if isinstance(loader, Iterator) or not isinstance(loader, Iterable):
            raise TypeError(
                f"batches takes the loader itself, which can begin again after a rollback, not a {type(loader).__name__}"
            )
        facts.check_count("max_steps", max_steps, least=0)
        facts.check_count("epochs", epochs, least=0)
        return self._driver.over_batches(loader, max_steps, epochs, weighted=weighted, document_of=document_of)

    @quietly
    def step_ended(self, loss: Any = None, grad_norm: Any = None) -> None:
        """The update is made. Reads nothing of a GPU.

        Args:
            loss: as it went into the gradient, a tensor or a number; the mean is taken where this is called for several
                micro-batches of one step.
            grad_norm: what `clip_grad_norm_` gave. Without it the norm is measured before each update, as the optimizer sees
                the gradients: then it costs one pass over them, and is missing where the scaler skips the step.
        """
        self._driver.take_step(loss, grad_norm)

    @quietly
    def log(self, values: Mapping[str, Any]) -> None:
        """Takes more numbers, such as `{"eval/loss": loss}`, under the steps that are done."""
        named = {}
        for key, value in values.items():
            try:
                named[series.normalise(key)] = float(value)
            except Exception as error:  # a key that is no text, a number that no float64 holds
                tell(error, f"so {key!r:.80} is not kept")
        self._driver.log(named)

    @quietly
    def save(self) -> None:
        """Saves a checkpoint: at the end of the step under way, or now when there is none."""
        self._driver.save_soon()

    @quietly
    def saved(self, directory: str | os.PathLike[str]) -> None:
        """Says that the script has written a checkpoint itself, to a folder of its own in `output_dir`.

        It is inspected, and shown with its verdict. A rollback can take it if it holds all that a rollback needs, the random
        states and the place in the data included; mostly it does not, and the page says what is missing. LossGuard never
        removes it. Of several ranks all may call this, or rank 0 alone.
        """
        self._driver.given(Path(directory))

    def end(self) -> None:
        """The run is over: finished, or stopped where it was. A second call does nothing."""
        self._end(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if os.getpid() != self._pid:
            return  # a forked child, which must not wait for a lock either
        with _ending:
            is_first = self in _open
            _open.discard(self)
        if is_first:
            try:
                self._driver.end(error)
            except Exception as problem:
                go_on(problem)

    def _leave(self) -> None:
        """At exit: a loop that came to its end is an end. For all others the monitor says what can be known."""
        if self._driver.is_through and ends.uncaught() is None:
            self.end()


def _at_exit() -> None:
    for run in list(_open):
        with suppress(Exception):
            run._leave()  # noqa: SLF001


atexit.register(_at_exit)
