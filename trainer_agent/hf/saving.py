"""Stands around the saves of a Trainer, and in the place of its rotation.

    save due -> room? -> what lies there moved away -> (the Trainer saves) -> saved | the disk failed it: nothing of it is left
                  |                                                              |
               withheld                                        any other error goes on its way, as without us

The Trainer rotates blindly: by number or by time of change, among whatever lies in the folder, at once after a save that nobody
has looked into, and with `save_total_limit=1` at its end all but the best. So its limit is taken over for as long as the training
is under watch, and `rotation` removes in its place. A `_save_checkpoint` that meets a full disk would end the training; it is the
one private name that is touched here, and where it is missing saves are as they are without us.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerState, TrainingArguments

from trainer_agent.checkpoints.disk_space import disk_fault
from trainer_agent.guest.harmless import go_on
from trainer_agent.guest.interrupts import is_of_handler
from trainer_agent.guest.voice import Voice
from trainer_agent.guest.wrapping import wrap
from trainer_agent.training.session import Session

SAVE = "_save_checkpoint"
Best = tuple[float | None, int | None, str | None]


class Limit:
    """The user's limit on checkpoints: ours while it is taken, the arguments' own again afterwards."""

    def __init__(self) -> None:
        self._args: TrainingArguments | None = None
        self._limit: int | None = None

    def take(self, args: TrainingArguments, session: Session) -> None:
        """From now on the Trainer removes nothing. Taken again, it stays as it was first."""
        if self._args is None and (args.process_index == 0 or not args.save_on_each_node):
            self._args, self._limit = args, args.save_total_limit
            args.save_total_limit = None
        session.rotation.keep = self._limit

    def give_back(self) -> None:
        """The arguments have their limit again."""
        args, self._args = self._args, None
        if args is not None:
            args.save_total_limit = self._limit


def note_best(session: Session, args: TrainingArguments, state: TrainerState) -> None:
    """Has the best checkpoint kept: the one the Trainer will load at its end, and the one that is about to become it."""
    step, path = state.best_global_step, state.best_model_checkpoint
    best = {f"checkpoint-{step}"} if step else set()
    if path is not None and Path(path).absolute().parent == Path(args.output_dir or ".").absolute():
        best.add(Path(path).name)
    session.rotation.best = frozenset(best)


def tell_missing_best(args: TrainingArguments, state: TrainerState) -> None:
    """Says that the best checkpoint is not where the Trainer takes it to be, which passes over that."""
    path = state.best_model_checkpoint
    if args.load_best_model_at_end and path is not None and not Path(path).is_dir():
        Voice().once("best", f"the best checkpoint {path} is gone: the model keeps the weights of its last step")


class Guard:
    """Around the saves of one Trainer. `failed` is called at each that came to nothing, in the place of its callbacks."""

    def __init__(self, trainer: Trainer, session: Session, failed: Callable[[], None]) -> None:
        self._trainer, self._session, self._saving, self._failed = trainer, session, session.saving, failed
        self._best: Best = (None, None, None)
        self._is_unsaved = False
        self._problem = ""
        self.is_in = False
        """Whether it stands around them: not where several processes each write a part of a checkpoint."""

    def put_in(self) -> Callable[[], None]:
        """Stands around the Trainer's saves; what takes it out again."""
        trainer, handler = self._trainer, self._trainer.callback_handler
        if not hasattr(trainer, SAVE) or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            return lambda: None
        self._session.saving.ranks_wait()
        around_save, around_told = wrap(trainer, SAVE, self._guarded), wrap(handler, "on_save", self._told)
        self.is_in = True

        def take_out() -> None:
            around_told()
            around_save()

        return take_out

    def before_evaluation(self, state: TrainerState) -> None:
        """Keeps what is the best so far, for where the checkpoint of a new best comes to nothing."""
        self._best = (state.best_metric, state.best_global_step, state.best_model_checkpoint)

    def _guarded(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        step = self._trainer.state.global_step
        self._is_unsaved, self._problem = False, ""
        withheld = self._asked(lambda: self._saving.begin(step))
        result = None
        if not withheld:
            result = self._saved(save, *args, **kwargs)
        if withheld or self._asked(lambda: self._saving.end(step, self._problem)):
            self._undo(step)
        return result

    def _asked(self, ask: Callable[[], str]) -> str:
        """The answer; none where an error of our own is in the way, as the save is the Trainer's and goes on."""
        try:
            return ask()
        except Exception as error:
            go_on(error)
            return ""

    def _saved(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self._catching_weights():
                return save(*args, **kwargs)
        except BaseException as error:
            if not self._is_the_disks(error):
                self._saving.give_up()
                raise
            return None

    @contextmanager
    def _catching_weights(self) -> Iterator[None]:
        """Rank 0 writes the weights before all ranks meet: a disk that fails it there must not keep it from meeting them."""
        if self._saving.is_alone:
            yield
            return
        undo = wrap(self._trainer, "save_model", self._weights)
        try:
            yield
        finally:
            undo()

    def _weights(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return save(*args, **kwargs)
        except Exception as error:
            if not self._is_the_disks(error):
                raise
            return None

    def _is_the_disks(self, error: BaseException) -> bool:
        fault = "" if is_of_handler(error) else disk_fault(error)
        self._problem = self._problem or fault
        return bool(fault)

    def _undo(self, step: int) -> None:
        """The Trainer has no checkpoint of this step, so it is not its best either."""
        state = self._trainer.state
        if state.best_global_step == step:
            state.best_metric, state.best_global_step, state.best_model_checkpoint = self._best
        self._is_unsaved = True

    def _told(self, tell: Callable[..., Any], args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """The callbacks hear of checkpoints that are there."""
        is_unsaved, self._is_unsaved = self._is_unsaved, False
        if not is_unsaved:
            return tell(args, state, control, **kwargs)
        control.should_save = False
        try:
            self._failed()
        except Exception as error:
            go_on(error)
        return control
