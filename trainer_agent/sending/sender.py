"""Sender: the threads between the spool and the server.

There is no timer between batches: what gathered while one was under way is the next.

    lossguard-sender      announces this process, then sends what earlier ones of the run left, then its own (see `backlog`)
    lossguard-heartbeat   "alive" every 10 s and when the phase changes, also while the training is blocked; about every
                          second while records wait, so that the newest values are seen before those of an hour ago have gone
    lossguard-commands    the long poll, so that a click arrives at once (rank 0 only)

Commands and verdicts ride on every reply, so the long poll is a shortcut and never the only way. While the server is away, one
of the first two tries at a time (see `link`), and an answer to either lets all go on.
"""

import random
import threading
import time
from collections.abc import Callable

from trainer_agent.guest import lasting
from trainer_agent.guest.voice import Voice
from trainer_agent.recording.spool import Spool
from trainer_agent.wire.messages import Heartbeat, Reply
from trainer_agent.wire.vocabulary import Phase

from . import backoff, link
from .backlog import Backlog, Leftover, is_over
from .delivery import AT_ONCE, NOTHING, Delivery, Stage
from .transport import Answer, HttpTransport, Meaning

HEARTBEAT_SECONDS = 10.0
BEHIND_SECONDS = 0.75
PHASE_LOOK_SECONDS = 0.25
SOONEST_POLL_SECONDS = 0.2
LATEST_POLL_SECONDS = 1.5
"""Between polls the server answers at once without anything new."""
FLUSH_RETRY_SECONDS = 0.1
NEEDS_A_PERSON = frozenset({Meaning.NOT_ALLOWED, Meaning.NOT_LOSSGUARD, Meaning.GONE})


class Sender:
    """Sends one process's spool. `on_reply` takes each reply and says whether it brought something new."""

    def __init__(
        self,
        spool: Spool,
        transport: HttpTransport,
        voice: Voice,
        heartbeat: Callable[[], Heartbeat],
        on_reply: Callable[[Reply], bool],
    ) -> None:
        self.delivery = Delivery(spool, transport, voice, on_reply)
        self._spool, self._transport, self._voice = spool, transport, voice
        self._heartbeat, self._on_reply = heartbeat, on_reply
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._announced = threading.Event()
        self._flushing = 0
        self._attempts = 0
        self._answer: Answer | None = None
        self._link = link.LinkState()
        self._heard = 0
        self._has_given_up = False
        loops = [("sender", self._send), ("heartbeat", self._beat)]
        if spool.start.rank == 0:
            loops.append(("commands", self._poll))
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=f"lossguard-{name}", daemon=True) for name, loop in loops
        ]

    def start(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Something was written. Thread: writer."""
        with self._changed:
            self._changed.notify_all()

    def flush(self, seq: int, deadline: float, is_ending: bool = False) -> bool:  # noqa: FBT001, FBT002  named at the one call
        """Whether the server has everything up to `seq` before the monotonic `deadline`.

        At the end of a run a server that cannot be reached twice is not waited for.
        """
        with self._changed:
            self._flushing += 1
            began = self._attempts
            self._changed.notify_all()
            while self._spool.next_seq <= seq and not self._is_vain(began, is_ending) and time.monotonic() < deadline:
                self._changed.wait(max(0.0, deadline - time.monotonic()))
            self._flushing -= 1
        return self._spool.next_seq > seq

    def stop(self, timeout_seconds: float) -> bool:
        """Ends the threads, whatever they wait for; whether they have ended within the limit."""
        deadline = time.monotonic() + timeout_seconds
        self._stop.set()
        self._announced.set()
        self._transport.cut()
        self.wake()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        self._transport.close()
        return True

    def _is_vain(self, began: int, is_ending: bool) -> bool:  # noqa: FBT001
        answer = self._answer
        if self._has_given_up or answer is None:
            return self._has_given_up
        if answer.meaning is Meaning.GONE:
            return self.delivery.stage is Stage.GONE  # or the run is about to be announced again, which may bring it back
        if answer.meaning in NEEDS_A_PERSON or self.delivery.is_start_refused:
            return True
        return is_ending and answer.meaning is Meaning.UNREACHABLE and self._attempts >= began + 2

    def _guarded(self, loop: Callable[[], None]) -> None:
        if not lasting.outlive(loop, self._stop.is_set, self._tell) and loop == self._send:
            with self._changed:
                self._has_given_up = True
                self._changed.notify_all()

    def _tell(self, error: BaseException, is_last: bool) -> None:  # noqa: FBT001
        what = f"internal error while sending ({type(error).__name__}: {error})"
        if is_last:
            self._voice.once("given up", f"{what} again and again: sending stops; training goes on, records stay on disk")
        else:
            self._voice.say("sender", f"{what}; training goes on")

    def _send(self) -> None:
        backlog = Backlog(self._spool, lambda spool: Leftover(spool, self._transport, self._voice), self._voice)
        try:
            for delivery in backlog.older:
                self._bring(delivery, lambda each: each.stage is not Stage.ANNOUNCING)
            self._bring(self.delivery, lambda each: each.stage is not Stage.ANNOUNCING)
            for delivery in backlog.older:
                self._bring(delivery, is_over)
                delivery.let_go()
            while not self._stop.is_set():
                pause = self._attempt(self.delivery)
                self._rest(backlog.attempt_other(self._attempt) if pause == NOTHING else pause)
        finally:
            backlog.close()

    def _bring(self, delivery: Delivery, is_there: Callable[[Delivery], bool]) -> None:
        """Tries until the delivery is where it is wanted, or will never be."""
        while not is_there(delivery) and not self._stop.is_set():
            pause = self._attempt(delivery)
            if pause == NOTHING or delivery.is_start_refused:
                return
            self._rest(pause)

    def _attempt(self, delivery: Delivery) -> float:
        """One request, if there is something to send, as soon as the link allows it; seconds until the next."""
        if delivery.is_done or not self._may_go(hurries=True):
            return NOTHING
        pause = delivery.attempt() if delivery is self.delivery else self._attempt_leftover(delivery)
        is_ours = delivery.spool.start.run_id == self._spool.start.run_id
        if is_ours and pause != NOTHING and delivery.last_answer is not None and self._learn(delivery.last_answer):
            pause = AT_ONCE  # the link makes it wait
        with self._changed:
            self._attempts += 1
            if is_ours:
                self._answer = delivery.last_answer
            if self.delivery.stage is Stage.SENDING:
                self._announced.set()
            self._changed.notify_all()
        return pause

    def _attempt_leftover(self, delivery: Delivery) -> float:
        """One request for what another process left. Whatever is wrong with it must not hold up what this one has to send."""
        try:
            pause = delivery.attempt()
            delivery.spool.tend()
        except Exception as error:
            folder = delivery.spool.directory
            self._voice.say("leftover", f"{folder} cannot be sent ({type(error).__name__}: {error}); it stays where it is")
            return NOTHING
        return pause

    def _rest(self, pause: float) -> None:
        """Waits for the pause to pass, for something to send, for somebody in a hurry, or for the end."""
        if pause == AT_ONCE:
            return
        until = time.monotonic() + min(pause, 3600.0)
        with self._changed:
            while not self._stop.is_set() and (now := time.monotonic()) < until:
                if pause == NOTHING and self._spool.waiting and self.delivery.stage is not Stage.GONE:
                    return
                self._changed.wait(max(0.0, until - now))

    def _may_go(self, *, may_try: bool = True, hurries: bool = False) -> bool:
        """Waits until this thread may ask the server; False at the end. Without `may_try` only when the server answers."""
        with self._changed:
            while not self._stop.is_set():
                now = time.monotonic()
                wait = self._link.wait_seconds(now)
                if hurries and self._flushing and self._may_hurry():
                    wait = min(wait, max(0.0, self._link.failed_at + FLUSH_RETRY_SECONDS - now))
                if self._link.is_up or (may_try and not wait):
                    self._link = link.step(self._link, link.Tried(), now, random.random)
                    return True
                self._changed.wait(wait if may_try else None)
        return False

    def _learn(self, answer: Answer) -> bool:
        """Takes what an answer says about the link; whether it says that the server is away."""
        what: link.Input = link.Heard()
        if answer.meaning in (Meaning.BUSY, Meaning.UNREACHABLE):
            what = link.Failed(answer.retry_after)
        elif answer.meaning in (Meaning.NOT_ALLOWED, Meaning.NOT_LOSSGUARD):
            what = link.Refused()
        with self._changed:
            self._link = link.step(self._link, what, time.monotonic(), random.random)
            self._heard += self._link.is_up
            self._changed.notify_all()
        return not self._link.is_up

    def _may_hurry(self) -> bool:
        answer = self._answer
        return answer is not None and answer.meaning in (Meaning.BUSY, Meaning.UNREACHABLE) and answer.retry_after is None

    def _beat(self) -> None:
        self._announced.wait()
        failures = 0
        while self._may_go():
            if self.delivery.stage is Stage.GONE:
                return
            beat, was_up = self._heartbeat(), self._link.is_up
            answer = self._transport.beat(beat)
            self._hear(answer)
            if answer.meaning is Meaning.TAKEN:
                failures = 0
                self._rest_until_news(beat.phase)
            else:
                failures = self._failed_alone(answer, failures + was_up)

    def _rest_until_news(self, told: Phase) -> None:
        """Waits for the next heartbeat: sooner when the phase changes or records wait. Looks: the training wakes nobody."""
        began, newest = time.monotonic(), self._spool.last_seq
        while not self._stop.wait(PHASE_LOOK_SECONDS) and time.monotonic() < began + HEARTBEAT_SECONDS:
            is_behind = self._spool.next_seq <= newest and time.monotonic() >= began + BEHIND_SECONDS - PHASE_LOOK_SECONDS
            if is_behind or self._heartbeat().phase is not told:
                return

    def _poll(self) -> None:
        self._announced.wait()
        start, failures, spacing = self._spool.start, 0, SOONEST_POLL_SECONDS
        while self._may_go(may_try=False) and self.delivery.stage is not Stage.GONE:
            began = time.monotonic()
            answer = self._transport.poll(start.run_id, start.incarnation, start.rank)
            if self._hear(answer) or time.monotonic() - began > 1.0:
                spacing = SOONEST_POLL_SECONDS
            else:
                spacing = min(LATEST_POLL_SECONDS, spacing * 2)
            if answer.meaning is Meaning.TAKEN:
                failures = 0
                self._stop.wait(spacing)
            else:
                failures = self._failed_alone(answer, failures + 1)

    def _failed_alone(self, answer: Answer, failures: int) -> int:
        """Waits after a request that failed, a second time by itself while others do not; gives `failures` back."""
        if answer.meaning is Meaning.GONE:
            self._rest_until_heard(backoff.crawl(random.random))
        else:
            self._stop.wait(backoff.delay(failures, random.random) if failures > 1 else SOONEST_POLL_SECONDS)
        return failures

    def _hear(self, answer: Answer) -> bool:
        """Takes the answer to a heartbeat or a poll; whether it brought something new."""
        self._learn(answer)
        return answer.reply is not None and self._on_reply(answer.reply)

    def _rest_until_heard(self, seconds: float) -> None:
        """Waits, until the server is heard on another way (but a little in any case)."""
        until = time.monotonic() + seconds
        self._stop.wait(SOONEST_POLL_SECONDS)
        with self._changed:
            heard = self._heard
            while not self._stop.is_set() and self._heard == heard and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
