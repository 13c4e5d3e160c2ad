"""LossGuard in the Trainer of transformers.

    from trainer_agent.hf import guarded_train
    guarded_train(trainer)                      # in place of trainer.train()

    trainer.train() -> stopped for a rollback -> trainer.train(resume_from_checkpoint=target) -> ... -> the last TrainOutput

A rollback is the Trainer's own resume, in the same process: only that brings model, optimizer, scheduler, scaler, RNG and data
position back bit by bit through public doors. `LossGuardCallback` alone watches, stops and saves; it cannot call `train()` again,
so it cannot roll back, and says so.

No error of LossGuard reaches the training: it is said once on stderr, and the training goes on. Errors of the training pass
through unchanged.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import TrainOutput

from . import ends, hf_facts
from .config import Config
from .data_plan import CannotSkip, Cut, cut_for, shape_of
from .harmless import go_on, last_word, quietly, tell
from .hf_callback import LossGuardCallback, open_session
from .hf_saving import Guard, tell_missing_best
from .policy import Policy
from .probes import Probes
from .session import Session
from .wire.vocabulary import EndReason

__all__ = ["LossGuardCallback", "guarded_train"]


def guarded_train(
    trainer: Trainer,
    policy: Policy | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    project: str | None = None,
    name: str | None = None,
    run_id: str | None = None,
    resume_from_checkpoint: str | bool | None = None,
) -> TrainOutput:
    """Trains under watch; what `trainer.train()` gives, of its last part where the run was rolled back.

    Args:
        policy: what the run obeys, and what becomes of it when it is dead; the default stops a dead run.
        url, token, project, name: where to send, and as what; else `LOSSGUARD_*`, else the file of `lossguard login`. With
            none of them training goes on all the same, and the spool keeps what was seen.
        run_id: takes up this run; else a training that resumes in its output directory takes up the run it finds there.

    Raises:
        TypeError, ValueError: for arguments that make no sense, before the training starts.
        Exception: whatever the training raises, unchanged.
    """
    policy = _checked(trainer, policy)
    config = Config.load(url, token, project, name)
    try:
        driver = _Driver(trainer, policy, config, run_id, resuming=bool(resume_from_checkpoint))
    except Exception as error:
        tell(error, "so this training is not watched")
        return trainer.train(resume_from_checkpoint=resume_from_checkpoint)
    return driver.train(resume_from_checkpoint)


def _checked(trainer: object, policy: object) -> Policy:
    if not isinstance(trainer, Trainer):
        raise TypeError(f"guarded_train takes a transformers.Trainer, not a {type(trainer).__name__}")
    if any(isinstance(callback, LossGuardCallback) for callback in trainer.callback_handler.callbacks):
        raise ValueError("guarded_train brings its own callback: leave LossGuardCallback out of the trainer's callbacks")
    if policy is None:
        return Policy()
    if not isinstance(policy, Policy):
        raise TypeError(f"policy must be a Policy, such as Policy(on_dead='hold'), not {policy!r}")
    return policy


class _DriverCallback(LossGuardCallback):
    """The callback of a driver: the session is the driver's, and outlives one `train()`."""

    def __init__(self, session: Session, guard: Guard) -> None:
        super().__init__()
        self.session = session
        self._guard = guard

    def _unseen(self, probes: Probes) -> frozenset[str]:  # noqa: ARG002  the driver's answer is the same for all
        """Nothing: the driver hands the norm and the loss to the probes."""
        return frozenset()

    def on_train_end(  # the driver says how the run ended
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  as it is called
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Nothing is over yet."""
        tell_missing_best(args, state)


class _Driver:
    """Calls `train()`, and calls it again after a rollback. All it changes on the trainer is undone at the end."""

    def __init__(self, trainer: Trainer, policy: Policy, config: Config, run_id: str | None, *, resuming: bool) -> None:
        self._trainer = trainer
        self._undo: list[Callable[[], None]] = []
        self._loader: Any = None
        self._max_grad_norm = trainer.args.max_grad_norm
        seen = hf_facts.Setting(trainer.args, trainer.model, trainer.accelerator)
        able = hf_facts.driver_abilities(policy, trainer)
        self._session = open_session(
            seen,
            able,
            policy if able.acts else Policy.watch_only(),
            config,
            run_id,
            total_steps=hf_facts.total_steps(trainer),
            resuming=resuming,
            from_forward=False,
            cutter=self._cut,
        )

    def train(self, resume: str | bool | None) -> TrainOutput:  # noqa: FBT001  handed on as the Trainer takes it
        """Trains to the end, over any number of rollbacks."""
        try:
            self._put_in()
            while True:
                output = self._trainer.train(resume_from_checkpoint=resume)
                target = self._session.take_target()
                if target is None:
                    break
                resume = str(target.directory)
                if target.payload.max_grad_norm is not None:
                    self._trainer.args.max_grad_norm = target.payload.max_grad_norm
        except BaseException as error:
            self._close(functools.partial(self._session.end, *ends.of(error)))
            raise
        self._close(self._session.finished)
        return output

    @quietly
    def _put_in(self) -> None:
        guard = Guard(self._trainer, self._session, lambda: callback.unsaved(self._trainer.state, self._trainer.control))
        callback = _DriverCallback(self._session, guard)
        self._undo.append(callback.give_limit_back)
        self._trainer.add_callback(callback)
        self._undo.append(guard.put_in())
        self._undo.append(lambda: self._trainer.remove_callback(callback))
        probes = self._session.probes
        self._watch(self._trainer, "training_step", probes.take_loss)
        self._watch(self._trainer.accelerator, "clip_grad_norm_", probes.take_norm)
        self._watch(self._trainer, "get_train_dataloader", self._take_loader)

    def _watch(self, owner: Any, name: str, see: Callable[[Any], None]) -> None:
        """Lets `see` look at what a public method gives. The method's own errors pass; those of `see` do not."""
        original = getattr(owner, name)
        own = name in vars(owner)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                see(result)
            except Exception as error:
                go_on(error)
            return result

        setattr(owner, name, watched)
        self._undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))

    def _take_loader(self, loader: Any) -> None:
        self._loader = loader
        self._session.plan.install(loader)

    def _cut(self, first: int, last: int) -> Cut:
        if self._loader is None:
            raise CannotSkip("the order of the data is not known yet")
        return cut_for(first, last, shape_of(self._loader, self._trainer.args.gradient_accumulation_steps))

    def _close(self, say: Callable[[], None]) -> None:
        self._trainer.args.max_grad_norm = self._max_grad_norm
        for undo in reversed(self._undo):
            with suppress(Exception):  # somebody else took it out already
                undo()
        last_word(say, functools.partial(self._session.end, EndReason.FINISHED))
