"""The callback of a Trainer: takes each step, and does to the Trainer's control what the session decides.

No error of LossGuard reaches the training: it is said once on stderr, and the training goes on.
"""

# ruff: noqa: ARG002  the Trainer calls the methods of a callback with all of its arguments, by position and by name

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer_agent.commands.decisions import Act, Decision
from trainer_agent.commands.going_on import GoOn, stops_at_once
from trainer_agent.config import Config
from trainer_agent.data.leaving_out import NoSource, Source
from trainer_agent.guest.harmless import go_on, quietly
from trainer_agent.identity import new_run_id
from trainer_agent.measuring.probes import Probes
from trainer_agent.policy import Abilities, Policy
from trainer_agent.ranks import START_SECONDS, START_TOGETHER_SECONDS
from trainer_agent.training.opening import Facts, Opening, Parts, begin_session, meet, open_plan
from trainer_agent.training.session import Session
from trainer_agent.wire.vocabulary import Phase

from . import facts
from .saving import Guard, Limit, note_best, tell_missing_best


class LossGuardCallback(TrainerCallback):
    """Watches a Trainer, and stops and saves when told to. For `trainer.train()`; it cannot roll back (see `guarded_train`).

    The grad norm is seen at the steps the Trainer logs, and so is a loss that is computed outside the model, in which the
    Trainer's NaN filter may hide a NaN: use `guarded_train` there. A training that ends by an exception is told as failed
    when the process leaves, or begins another training in its folder.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        project: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._policy = policy or Policy()
        self._settings = (url, token, project, name)
        self._run_id = run_id
        self.session: Session | None = None
        self._limit = Limit()
        self._guard: Guard | None = None

    @quietly
    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Opens the run, or its next segment."""
        if self.session is None:
            self.session = self._open(args, state, kwargs["model"])
            self.session.expect_end()
        if self.session is None:
            return
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        self.session.attach(model, optimizer, look_inside=not args.torch_compile)
        self.session.know_tokenizer(kwargs.get("processing_class"))
        self._limit.take(args, self.session)
        note_best(self.session, args, state)
        self.session.segment_begins(state.global_step, model, {"max_grad_norm": args.max_grad_norm})
        _obey(self.session.decision, state, control)

    def _open(self, args: TrainingArguments, state: TrainerState, model: Any) -> Session:
        seen = facts.Setting(args, model)
        able = facts.bare_abilities(self._policy, args)
        return open_session(
            seen,
            able,
            self._policy,
            Config.load(*self._settings),
            self._run_id,
            total_steps=state.max_steps,
            resuming=state.global_step > 0,
            from_forward=True,
            source=NoSource(),
            where=_stopping,
            start_seconds=START_TOGETHER_SECONDS,
        )

    @quietly
    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Forgets what an unfinished step left behind."""
        if self.session is not None:
            self.session.probes.begin_step()

    @quietly
    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the learning rate that this update is made with."""
        if self.session is not None:
            self.session.forward_seen()
            self.session.probes.before_update(kwargs["optimizer"])

    @quietly
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the step, and does what is decided at its end."""
        if self.session is None:
            return
        decision = self.session.step_ended(state.global_step, kwargs["model"], saving=control.should_save)
        _obey(decision, state, control)
        self._announce(state, control)
        evaluating, saving = control.should_evaluate, control.should_save
        self.session.set_phase(Phase.EVALUATING if evaluating else Phase.SAVING if saving else _phase(decision.act))

    @quietly
    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """A training that is being stopped saves and evaluates no more at the end of its epoch."""
        if self.session is not None and _is_over(self.session.decision):
            control.should_evaluate = control.should_save = False
        elif self.session is not None:
            step, model, by_strategy = state.global_step, kwargs["model"], args.save_strategy == "epoch"
            control.should_save = self.session.epoch_ended(step, model, saving=control.should_save, on_all_ranks=by_strategy)
            self._announce(state, control)

    def _announce(self, state: TrainerState, control: TrainerControl) -> None:
        """Before the Trainer saves, unless a guard does this around the save itself."""
        if self._guard is not None:
            self._guard.before_evaluation(state)
        if self.session is None or not control.should_save or (self._guard is not None and self._guard.is_in):
            return
        if self.session.saving.announce(state.global_step):
            self.unsaved(state, control)

    def give_limit_back(self) -> None:
        """The Trainer's arguments have their limit on checkpoints again."""
        self._limit.give_back()

    def unsaved(self, state: TrainerState, control: TrainerControl) -> None:
        """A save that was due is not done, or came to nothing."""
        control.should_save = False
        if self.session is not None:
            decision = self.session.save_over(state.global_step)
            _obey(decision, state, control)
            self.session.set_phase(_phase(decision.act))

    @quietly
    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the metrics of an evaluation."""
        if self.session is not None:
            self.session.evaluated(facts.metrics_of(kwargs.get("metrics")), state.global_step)
            self.session.set_phase(Phase.SAVING if control.should_save else Phase.TRAINING)

    @quietly
    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Has the new checkpoint inspected. A pause in which it was ordered goes on."""
        if self.session is None:
            return
        note_best(self.session, args, state)
        self.session.saved(state.global_step)
        decision = self.session.save_over(state.global_step)
        _obey(decision, state, control)
        self.session.set_phase(_phase(decision.act))

    @quietly
    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes what the Trainer logs beyond the probes' own numbers."""
        if self.session is not None:
            unseen = self._unseen(self.session.probes)
            self.session.log(facts.logged(kwargs.get("logs"), state.epoch, unseen=unseen), state.global_step)
            self.session.probes.restart_clock()

    def _unseen(self, probes: Probes) -> frozenset[str]:
        """What only the Trainer's log tells: no callback sees the norm, nor a loss that is computed outside the model."""
        return frozenset({"grad_norm"} if probes.has_seen_loss else {"grad_norm", "loss"})

    @quietly
    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Says the last word of the run."""
        self.give_limit_back()
        tell_missing_best(args, state)
        if self.session is not None:
            session, self.session = self.session, None
            session.finished()


def _stopping(opening: Opening, output_dir: Path) -> GoOn | None:
    """A stop that an earlier process has begun is done after the first step: nothing of ours comes before it."""
    del output_dir
    return GoOn(stops=True) if opening.ranks.is_alone and stops_at_once(opening.journal.state) else None


def _is_over(decision: Decision) -> bool:
    return decision.stops or decision.act is Act.ROLL_BACK


def _obey(decision: Decision, state: TrainerState, control: TrainerControl) -> None:
    """Has the Trainer do what was decided."""
    if _is_over(decision):
        control.should_training_stop = True
        control.should_evaluate = False
        control.should_save = decision.saves
    elif decision.saves:
        control.should_save = True
    if decision.act is Act.ROLL_BACK:
        # else the Trainer would load its best checkpoint now, and with save_total_limit=1 remove all others
        state.best_model_checkpoint = None


def _phase(act: Act) -> Phase:
    return {Act.GO_ON: Phase.TRAINING, Act.SAVE: Phase.SAVING, Act.ROLL_BACK: Phase.ROLLING_BACK}.get(act, Phase.ENDING)


def open_session(
    seen: facts.Setting,
    able: Abilities,
    policy: Policy,
    config: Config,
    run_id: str | None,
    *,
    total_steps: int | None,
    resuming: bool,
    from_forward: bool,
    source: Source,
    where: Callable[[Opening, Path], GoOn | None] = lambda *_: None,
    start_seconds: float = START_SECONDS,
) -> Session:
    """Makes and begins the session of one training. All ranks call it. `where`: chooses the checkpoint it goes on from."""
    output_dir, args = Path(seen.args.output_dir or ".").absolute(), seen.args
    directory, own = output_dir / ".lossguard", seen.args.max_grad_norm
    opening = meet(directory, policy, lambda: run_id or new_run_id(directory, resuming=resuming), start_seconds=start_seconds)
    goes_on = where(opening, output_dir)
    parts = Parts(
        policy=policy,
        config=config,
        output_dir=output_dir,
        probes=Probes(from_forward=from_forward, on_error=go_on),
        plan=open_plan(directory, keep=opening.identity.is_restart, leads=opening.ranks.leads),
        source=source,
        set_max_grad_norm=lambda norm: setattr(args, "max_grad_norm", own if norm is None else norm),
    )
    return begin_session(opening, Facts("transformers", able, seen.attributes(), total_steps), parts, goes_on)
