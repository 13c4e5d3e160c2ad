"""A Trainer's whole training under watch, rollbacks and all: `guarded_train`.

    trainer.train() -> stopped for a rollback -> trainer.train(resume_from_checkpoint=target) -> ... -> the last TrainOutput

A rollback is the Trainer's own resume, in the same process: only that brings model, optimizer, scheduler, scaler, RNG and data
position back bit by bit through public doors. `LossGuardCallback` alone watches, stops and saves; it cannot call `train()` again,
so it cannot roll back, and says so.

No error of LossGuard reaches the training: it is said once on stderr, and the training goes on. Errors of the training pass
through unchanged.
"""

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import TrainOutput

from trainer_agent.commands.going_on import GoOn, NothingFit, as_told
from trainer_agent.config import Config
from trainer_agent.data.samples import DocumentOf
from trainer_agent.guest import ends
from trainer_agent.guest.harmless import go_on, last_word, quietly, unwatched
from trainer_agent.guest.wrapping import wrap
from trainer_agent.measuring.probes import Probes
from trainer_agent.policy import Policy
from trainer_agent.training.opening import Opening, where_to_go_on
from trainer_agent.training.session import Session
from trainer_agent.wire import crash
from trainer_agent.wire.vocabulary import EndReason

from . import facts
from .ahead import FetchedAhead
from .callback import LossGuardCallback, open_session
from .data import TrainerData, modes_of
from .samples import TrainerSamples
from .saving import Guard, tell_missing_best

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
    resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
    document_of: DocumentOf = None,
) -> TrainOutput:
    """Trains under watch; what `trainer.train()` gives, of its last part where the run was rolled back.

    Args:
        policy: what the run obeys, and what becomes of it when it is dead; the default stops a dead run.
        url, token, project, name: where to send, and as what; else `LOSSGUARD_*`, else the file of `lossguard login`. With
            none of them training goes on all the same, and the spool keeps what was seen.
        run_id: takes up this run; else a training that resumes in its output directory takes up the run it finds there.
        resume_from_checkpoint: True goes on from the newest checkpoint of the run that is fit, or from the target of a rollback
            that broke off; where there is none the training begins anew. A path is taken at its word.
        document_of: the key under which an item of the data names its document, or a function from a sample's number to the id;
            None looks for `document_id`.

    Raises:
        TypeError, ValueError: for arguments that make no sense, and for checkpoints that are nothing to go on from, before the
            training starts.
        Exception: whatever the training raises, unchanged.
    """
    policy = _checked(trainer, policy)
    config = Config.load(url, token, project, name)
    resume = os.fspath(resume_from_checkpoint) if isinstance(resume_from_checkpoint, os.PathLike) else resume_from_checkpoint
    try:
        driver = _Driver(trainer, policy, config, run_id, document_of, resume=resume)
    except NothingFit:
        raise
    except Exception as error:
        unwatched(error)
        return trainer.train(resume_from_checkpoint=resume)
    return driver.train()


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

    def __init__(self, session: Session, guard: Guard, ahead: FetchedAhead) -> None:
        super().__init__()
        self.session = session
        self._guard = guard
        self._ahead = ahead

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The checkpoint is whole only with the random states of what was fetched ahead."""
        self._ahead.keep(Path(args.output_dir or ".") / f"checkpoint-{state.global_step}")
        super().on_save(args, state, control, **kwargs)

    def _unseen(self, probes: Probes) -> frozenset[str]:  # noqa: ARG002  the driver's answer is the same for all
        """Nothing: the driver hands the norm and the loss to the probes."""
        return frozenset()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:  # noqa: ARG002  as it is called
        """The driver says how the run ended."""
        tell_missing_best(args, state)


class _Driver:
    """Calls `train()`, and calls it again after a rollback. All it changes on the trainer is undone at the end."""

    def __init__(
        self,
        trainer: Trainer,
        policy: Policy,
        config: Config,
        run_id: str | None,
        document_of: DocumentOf = None,
        *,
        resume: str | bool | None,
    ) -> None:
        self._trainer, self._resume = trainer, resume
        self._undo: list[Callable[[], None]] = []
        self._data = TrainerData(trainer, document_of)
        self._max_grad_norm = trainer.args.max_grad_norm
        seen = facts.Setting(trainer.args, trainer.model, trainer.accelerator)
        modes, because = modes_of(trainer)
        able = replace(facts.driver_abilities(policy, trainer), modes=modes, modes_because=because)
        self._session = open_session(
            seen,
            able,
            policy,
            config,
            run_id,
            total_steps=facts.total_steps(trainer),
            resuming=bool(resume),
            from_forward=False,
            source=self._data,
            where=self._where_to_go_on,
        )
        self._samples = TrainerSamples(trainer, self._session.ledger, document_of)
        self._ahead = FetchedAhead(trainer, trainer.args.process_index)

    def _where_to_go_on(self, opening: Opening, output_dir: Path) -> GoOn | None:
        """Chooses the checkpoint to go on from where the script leaves that to us; None where it does not."""
        resume = self._resume
        if isinstance(resume, str):
            return as_told(opening.journal, output_dir, resume)
        if not resume or opening.ranks.problem or facts.cannot_go_back(self._trainer):
            return None
        scaler = self._trainer.accelerator.scaler
        found = where_to_go_on(opening, output_dir, needs_scaler=scaler is not None and scaler.is_enabled())
        self._resume = None if found.directory is None else str(found.directory)
        return found

    def train(self) -> TrainOutput:
        """Trains to the end, over any number of rollbacks."""
        try:
            self._put_in()
            while True:
                resume = self._resume
                self._ahead.resume(Path(resume) if isinstance(resume, str) else None)
                output = self._trainer.train(resume_from_checkpoint=resume)
                target = self._session.take_target()
                if target is None:
                    break
                self._resume = str(target.directory)
        except BaseException as error:
            self._close(functools.partial(self._session.end, *ends.of(error)))
            raise
        self._close(self._session.finished)
        return output

    @quietly
    def _put_in(self) -> None:
        guard = Guard(self._trainer, self._session, lambda: callback.unsaved(self._trainer.state, self._trainer.control))
        callback = _DriverCallback(self._session, guard, self._ahead)
        self._undo.append(callback.give_limit_back)
        self._trainer.add_callback(callback)
        self._undo.append(guard.put_in())
        self._undo.append(lambda: self._trainer.remove_callback(callback))
        probes = self._session.probes
        self._undo.append(self._data.watch())
        self._undo.append(self._samples.watch())
        self._undo.append(self._ahead.watch())
        self._watch(self._trainer, "training_step", probes.take_loss)
        self._watch(self._trainer.accelerator, "clip_grad_norm_", probes.take_norm)
        self._watch(self._trainer, "get_train_dataloader", self._take_loader)
        self._watch(self._trainer, "get_train_dataloader", self._samples.take_loader)
        self._watch(self._trainer, "get_train_dataloader", self._ahead.take_loader)
        self._watch(self._trainer, "get_batch_samples", lambda given: self._ahead.used(len(given[0])))
        self._watch(self._trainer, "create_scheduler", lambda _: self._between_model_and_optimizer())
        if self._session.stops_at_once:
            self._hold_back_data()

    def _watch(self, owner: Any, name: str, see: Callable[[Any], None]) -> None:
        """Lets `see` look at what a public method gives. The method's own errors pass; those of `see` do not."""

        def watched(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            try:
                see(result)
            except Exception as error:
                go_on(error)
            return result

        self._undo.append(wrap(owner, name, watched))

    def _between_model_and_optimizer(self) -> None:
        """The Trainer has loaded the weights of a checkpoint, and not yet its optimizer."""
        if self._session.is_on_its_way_back:
            crash.reach("rollback.half_loaded")

    def _hold_back_data(self) -> None:
        """No step is made: the Trainer gets no batches, and ends as it was told when it began."""
        self._undo.append(wrap(self._trainer, "get_batch_samples", lambda *_, **__: ([], None)))

    def _take_loader(self, loader: Any) -> None:
        self._data.take_loader(loader, self._session.plan)

    def _close(self, say: Callable[[], None]) -> None:
        self._trainer.args.max_grad_norm = self._max_grad_norm
        for undo in reversed(self._undo):
            with suppress(Exception):  # somebody else took it out already
                undo()
        last_word(say, functools.partial(self._session.end, EndReason.FINISHED))
