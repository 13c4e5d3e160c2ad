"""One hand-written training as it runs: takes its numbers, and does to it at each boundary what the session decides.

take -> (the script) -> close_step -> go on | save | stop | put everything back -> take ...
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from trainer_agent.checkpoints.directories import is_given_id
from trainer_agent.checkpoints.trash import is_there
from trainer_agent.commands.decisions import Act, Decision
from trainer_agent.data import randomness
from trainer_agent.data.plan import DataPlan
from trainer_agent.data.samples import DocumentOf
from trainer_agent.data.weightless import Weightless
from trainer_agent.guest import ends
from trainer_agent.guest.harmless import go_on, last_word, unwatched
from trainer_agent.guest.voice import Voice
from trainer_agent.training.run_segments import Attributes
from trainer_agent.training.session import Session
from trainer_agent.wire.vocabulary import EndReason, Phase

from . import facts
from .back import Back
from .batches import Batches
from .beginning import Opened, Settings, begin, take_up
from .data import END, Draws, Feed
from .folder import Folder
from .hooks import Hooks, StepClock
from .numbers import StepNumbers
from .source import LoopSource
from .state import State, Stored, Where, step_in
from .together import Together

T = TypeVar("T")


class Driver:
    """Thread: training."""

    def __init__(self, state: State, settings: Settings) -> None:
        self.step, self._voice = 0, Voice()
        self.stopped = self.is_through = False
        self._state, self._settings = state, settings
        self._folder, self._clock = Folder(settings.output_dir), StepClock()
        self._feed: Feed = Draws(random_batches=False)
        self._loop = 0
        self._in_loop = self._wants_save = False
        self._numbers = StepNumbers()
        opened = take_up(state, settings, self._folder)
        self._ranks, self._plan, self._jumps, self._stored = opened.ranks, opened.plan, opened.jumps, opened.stored
        self._together = Together(self._ranks, self._folder, state)
        self._back = Back(state, self._ranks, self._together, self._jumps)
        self.step = self._stored.step if self._stored is not None else 0
        self._source = LoopSource(lambda: self._feed, lambda: self._loop, self._ranks.world_size, self._jumps)
        self._hooks: Hooks | None = None
        self._session, self._hooks = self._begin(opened)

    def _begin(self, opened: Opened) -> tuple[Session | None, Hooks | None]:
        if opened.opening is None:
            return None, None
        try:
            session = begin(self._state, self._settings, opened, self._clock, self._source, set_max_grad_norm=self._clip_at)
        except Exception as error:
            unwatched(error)
            return None, None
        session.rotation.keep = self._settings.keep
        return session, Hooks(session.probes, self._clock, set_phase=session.set_phase, on_error=go_on)

    @property
    def _has_updated(self) -> bool:
        """An update was seen, if not told: a script that forgets to tell must not run for ever."""
        return self._hooks is not None and self._hooks.has_updated

    @property
    def weight(self) -> float:
        """What the loss of the batch under way counts."""
        return self._feed.weight

    def _clip_at(self, norm: float | None) -> None:
        if self._hooks is not None:
            self._hooks.max_grad_norm = norm

    @property
    def max_grad_norm(self) -> float | None:
        """The clipping that a rollback ordered."""
        return self._hooks.max_grad_norm if self._hooks is not None else None

    # --- the loop

    def over_steps(self, max_steps: int | None, *, random_batches: bool) -> Iterator[int]:
        """Step after step."""
        return self._over(Draws(random_batches=random_batches), max_steps)

    def over_batches(
        self,
        loader: Any,
        max_steps: int | None,
        epochs: int | None,
        *,
        weighted: bool = False,
        document_of: DocumentOf = None,
    ) -> Iterator[Any]:
        """Batch after batch."""
        plan = self._plan if not self._loop else DataPlan(None)  # whose places are of the first loop
        feed = Batches(loader, epochs, plan, weighted=weighted, document_of=document_of)
        if self._session is not None:
            feed.see = self._session.ledger.saw
        return self._over(feed, max_steps)

    def _over(self, feed: Feed, max_steps: int | None) -> Iterator[Any]:
        limit = self._settings.total_steps if max_steps is None else max_steps
        self._loop_begins(feed)
        try:
            while not self.stopped and (limit is None or self.step < limit):
                item = feed.take(self.step)
                if item is END:
                    break
                if feed.weight:
                    yield item
                else:
                    with Weightless(self._state.model, facts.plain(self._state.optimizer)):
                        yield item
                if self._numbers.is_over or feed.kind == Draws.kind or self._has_updated:
                    self._close_step(limit)
            self.is_through = True
        finally:
            self._in_loop = False
            feed.let_go()
            self._close_left_step()

    def _loop_begins(self, feed: Feed) -> None:
        self._loop += 1
        self._feed, self._in_loop, self.is_through = feed, True, False
        stored = self._stored
        if stored is not None and stored.where.loop == self._loop:
            self._stored = None
            if stored.where.kind == feed.kind:
                self._put_data_back(stored)
            else:
                self._voice.once("resume", f"the checkpoint was saved in a loop over {stored.where.kind}: the data begin anew")
        feed.note(self.step)
        if self._loop == 1:
            self._try(self._attach)
            self._try(self._segment_begins)
            self.stopped = self._session is not None and self._session.stops_at_once
        self._clock.go_on()

    def _attach(self, session: Session) -> None:
        self._attach_probes(session)
        if self._hooks is not None:
            self._hooks.attach(self._state.model, facts.plain(self._state.optimizer))

    def _attach_probes(self, session: Session) -> None:
        is_compiled = hasattr(self._state.model, "_orig_mod")
        scaler = SimpleNamespace(scaler=self._state.scaler)
        session.attach(self._state.model, self._state.optimizer, scaler_of=scaler, look_inside=not is_compiled)

    def _segment_begins(self, session: Session) -> None:
        session.segments.data_modes = self._source.modes()
        session.segment_begins(self.step, self._state.stored_model, self._attributes())

    def _attributes(self) -> Attributes:
        return {} if self.max_grad_norm is None else {"max_grad_norm": self.max_grad_norm}

    # --- numbers

    def take_step(self, loss: Any, norm: Any) -> None:
        """The numbers of a step, or of one of its micro-batches."""
        shared = getattr(self._state.optimizer, "gradient_state", None)
        is_over = shared is None or bool(shared.sync_gradients)
        if is_over:
            self._clock.pause()
        self._numbers.take(loss if self._feed.weight else None, norm, is_over=is_over)

    def log(self, values: dict[str, float]) -> None:
        """More numbers, under the steps that are done."""
        if self._session is not None:
            self._session.log(values, self.step + self._numbers.is_over)

    # --- the boundary

    def _close_step(self, limit: int | None) -> None:
        self._clock.pause()
        self.step += 1
        every = self._settings.save_every
        due = self._wants_save or (every is not None and (self.step % every == 0 or self.step == limit))
        self._feed.note(self.step)
        decision = self._decide(saving=due)
        if decision.saves or (due and decision.act is Act.GO_ON):
            self._save()
            decision = self._try(lambda session: session.save_over(self.step)) or decision
        if decision.act is Act.ROLL_BACK:
            self._roll_back()
        elif decision.stops:
            self.stopped = True
        else:
            self._jump()
        self._clock.go_on()

    def _close_left_step(self) -> None:
        """The loop was left in the middle of an iteration: its numbers count, and nothing is done any more."""
        if self._numbers.is_over:
            self.step += 1
            self._decide(saving=False, leaving=True)

    def _decide(self, *, saving: bool, leaving: bool = False) -> Decision:
        self._try(lambda session: self._numbers.hand_over(session.probes, self._hooks, self._state.optimizer))
        self._numbers.forget()
        ended = self._try(lambda s: s.step_ended(self.step, self._state.model, saving=saving, leaving=leaving))
        return ended or Decision()

    def _try(self, ask: Callable[[Session], T]) -> T | None:
        """The session's answer; None where there is no session or it failed, which has been said then."""
        if self._session is None:
            return None
        try:
            return ask(self._session)
        except Exception as error:
            go_on(error)
            return None

    # --- saving

    def given(self, directory: Path) -> None:
        """The script has written a checkpoint itself."""
        path = directory.absolute()
        step = step_in(path) or self.step + (self._numbers.is_over or self._has_updated)
        if path.parent.resolve() != self._folder.path.resolve() or not is_given_id(path.name):
            self._voice.say("given", f"{directory} is not shown: it must lie in {self._folder.path}, not named checkpoint-N")
        elif not is_there(path):
            self._voice.say("given", f"{directory} is not shown: there is no such folder")
        else:
            self._try(lambda session: session.given(path, step))

    def save_soon(self) -> None:
        """Saves at the next boundary; now, when no loop is under way."""
        if self._in_loop:
            self._wants_save = True
        else:
            self._save()

    def _save(self) -> None:
        self._wants_save = False
        problem = facts.cannot_save(self._state)
        if problem:
            self._voice.once("cannot save", f"no checkpoint is saved: {problem}")
            return
        self._try(lambda session: session.set_phase(Phase.SAVING))
        where = Where(self._feed.place(), self._loop, self._feed.kind)
        if self._together.write(self.step, where, self._ready_to_save):
            self._try(lambda session: session.saved(self.step))
        else:
            self._say_unsaved(self._together.failure)
        self._try(lambda session: session.set_phase(Phase.TRAINING))

    def _ready_to_save(self) -> str:
        """Why nothing is to be written now. Rank 0 alone is asked."""
        return self._try(lambda session: session.saving.make_ready(self.step)) or ""

    def _say_unsaved(self, problem: str) -> None:
        if self._session is None:
            self._voice.say("save", f"no checkpoint of step {self.step}, the training goes on: {problem}")
        self._try(lambda session: session.saving.failed(self.step, problem))

    # --- going back

    def _roll_back(self) -> None:
        """Touches the training once nothing stands in the way on any rank."""
        target = self._try(lambda session: session.take_target())
        stored, problem = self._back.load(target, self._loop, self._feed.kind)
        if target is None or stored is None:
            self._try(lambda session: session.rollback_failed(problem))
            return
        self._put_data_back(stored)
        self._try(self._attach_probes)
        self._try(self._segment_begins)

    def _put_data_back(self, stored: Stored) -> None:
        """Data, random state and step as they were. Whatever the loader raises is the script's own."""
        self._feed.go_to(stored.where.place)
        randomness.restore(stored.rng)
        self.step = stored.step
        self._jump()

    def _jump(self) -> None:
        """Where draws are passed over, they go on from what came after them."""
        after = self._jumps.after(self.step) if self._feed.kind == Draws.kind else None
        if after is not None:
            randomness.restore(after)

    # --- the end

    def end(self, error: BaseException | None) -> None:
        """The last word."""
        session, self._session = self._session, None
        if self._hooks is not None:
            self._hooks.detach()
        if session is None:
            return
        reason, detail = ends.of(error)
        say = session.finished if reason is EndReason.FINISHED else partial(session.end, reason, detail)
        last_word(say, partial(session.end, EndReason.FINISHED))
