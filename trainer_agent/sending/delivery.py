"""Delivery: brings one spool to the server. One request at a time, each answer decides the next. No thread, no sleep.

    announcing -> sending        the server knows the incarnation, and says what it has
    sending    -> announcing     the server does not know it (any more)
    any        -> gone           it refuses to know it: nothing more is sent

`attempt` does one request and says how long to wait before the next: `AT_ONCE`, `NOTHING` (until something is written), or
seconds. A batch with a bad record is halved until the record is found (about log2 of the batch in extra requests), which is
then set aside.

After a request that failed, the next carries half as much, and again, four times at most: what a slow or broken line cannot
bring over whole it may bring over in parts.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from trainer_agent.guest.voice import Voice
from trainer_agent.recording.spool import Spool
from trainer_agent.wire import crash
from trainer_agent.wire.messages import Batch, Dropped, Reply

from . import backoff
from .batcher import Limits, cut
from .transport import Answer, Meaning, Transport

AT_ONCE = 0.0
NOTHING = float("inf")
MOST_HALVINGS = 4


class Stage(StrEnum):
    """Where a delivery stands."""

    ANNOUNCING = "announcing"
    SENDING = "sending"
    GONE = "gone"


class Delivery:
    """One spool on its way. Thread: one at a time."""

    def __init__(
        self,
        spool: Spool,
        transport: Transport,
        voice: Voice,
        on_reply: Callable[[Reply], object] = lambda _: None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.spool, self.stage = spool, Stage.ANNOUNCING
        self.failures = 0
        """Requests in a row that brought nothing forward."""
        self.last_answer: Answer | None = None
        self._transport, self._voice, self._on_reply, self._jitter = transport, voice, on_reply, jitter
        self._limits = Limits()
        self._suspect: int | None = None
        self._is_away = False
        self._was_announced_again = False

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to send now, or nobody to send it to."""
        return self.stage is Stage.GONE or (self.stage is Stage.SENDING and not self.spool.waiting)

    @property
    def is_start_refused(self) -> bool:
        """Whether the server took exception to the run's start itself, which sending again does not change."""
        answer = self.last_answer
        refusals = (Meaning.REFUSED_CONTENT, Meaning.TOO_LARGE)
        return self.stage is Stage.ANNOUNCING and answer is not None and answer.meaning in refusals

    def attempt(self) -> float:
        """One request; seconds until the next."""
        if self.stage is Stage.GONE:
            return NOTHING
        if self.stage is Stage.ANNOUNCING:
            crash.reach("announce.before_send")
            answer = self._transport.announce(self.spool.start)
            crash.reach("announce.answered")
            return self._react(answer, None)
        try:
            batch = self._next_batch()
        except OSError as error:  # too many open files, for one: what lies there is still there
            text = f"cannot be read now ({error.strerror}): its records wait there"
            self._voice.say("reading", f"{self.spool.directory} {text}")
            return self._fail(None)
        if batch is None:
            return NOTHING
        crash.reach("batch.before_send")
        answer = self._transport.send(batch)
        crash.reach("batch.answered")
        return self._react(answer, batch)

    def _next_batch(self) -> Batch | None:
        first = self.spool.next_seq
        if not self.spool.waiting:
            return None
        start = self.spool.start
        envelope = Batch(start.run_id, start.incarnation, start.rank, first, first, time.time())
        last = None if self._suspect is None else first + (self._suspect - first) // 2
        limits = self._limits
        for _ in range(min(self.failures, MOST_HALVINGS)):
            limits = limits.halved()
        batch = cut(envelope, self.spool.entries(first), replace(limits, last=last))
        while self.spool.damage:  # found while reading
            self._voice.say("damage", self.spool.damage.pop(0))
        return batch

    def _react(self, answer: Answer, batch: Batch | None) -> float:
        self.last_answer = answer
        self._tell(answer)
        match answer.meaning:
            case Meaning.TAKEN if answer.reply is not None:
                pause = self._taken(answer.reply, batch)
            case Meaning.OUT_OF_ORDER if answer.next_seq is not None:
                pause = self._move_to(answer.next_seq)
            case Meaning.TOO_LARGE if batch is not None:
                pause = self._too_large(batch, answer.detail)
            case Meaning.REFUSED_CONTENT if batch is not None:
                pause = self._refused(batch, answer.detail)
            case Meaning.GONE:
                pause = self._unknown()
            case Meaning.BUSY | Meaning.UNREACHABLE:
                pause = self._fail(answer.retry_after)
            case _:
                self.failures += 1
                pause = backoff.crawl(self._jitter)
        return pause

    def _taken(self, reply: Reply, batch: Batch | None) -> float:
        if batch is None:
            self.stage, self.failures = Stage.SENDING, 0
            self.spool.acknowledge(self._clamped(reply.next_seq))
            pause = AT_ONCE
        else:
            pause = self._move_to(reply.next_seq)
        self._on_reply(reply)
        return pause

    def _move_to(self, next_seq: int) -> float:
        """Goes on from where the server is. Only a step forward is progress, whatever the server says."""
        before, after = self.spool.next_seq, self._clamped(next_seq)
        self.spool.acknowledge(after)
        if self._suspect is not None and after > self._suspect:
            self._suspect = None
        if after <= before:
            return self._fail(None)
        self.failures = 0
        self._was_announced_again = False
        return AT_ONCE

    def _clamped(self, next_seq: int) -> int:
        return max(1, min(next_seq, self.spool.last_seq + 1))

    def _too_large(self, batch: Batch, detail: str) -> float:
        if _holds_one(batch):
            self._limits = Limits()
            return self._set_aside(batch, detail)
        self._limits = self._limits.halved()
        return AT_ONCE

    def _refused(self, batch: Batch, detail: str) -> float:
        if not _holds_one(batch):
            self._suspect = batch.last_seq
            return AT_ONCE
        return self._set_aside(batch, detail)

    def _set_aside(self, batch: Batch, detail: str) -> float:
        """Puts a `Dropped` in the place of the only record. If that too is refused, it is not the record's fault."""
        self._suspect = None
        if batch.records and isinstance(batch.records[0].record, Dropped):
            return self._fail(None)
        entry = next(iter(self.spool.entries(batch.first_seq)))
        self.spool.set_aside(entry, detail)
        self._voice.say(
            "quarantine", f"the server refused a record ({detail}); it is kept in {self.spool.directory}/quarantine.jsonl"
        )
        return AT_ONCE

    def _unknown(self) -> float:
        """The run or the incarnation is not known: announce it again; if that is refused too, it is gone."""
        if self.stage is Stage.SENDING and not self._was_announced_again:
            self.stage = Stage.ANNOUNCING
            self._was_announced_again = True
            return AT_ONCE
        self.stage = Stage.GONE
        text = "the server does not know this run: its records are not sent any more; training goes on; they stay in"
        self._voice.once(f"gone {self.spool.directory}", f"{text} {self.spool.directory}")
        return NOTHING

    def _fail(self, retry_after: float | None) -> float:
        self.failures += 1
        return backoff.delay(self.failures, self._jitter, retry_after)

    def _tell(self, answer: Answer) -> None:
        """Says once that the server is away, and once that it is back."""
        where = self.spool.directory
        if answer.meaning in (Meaning.BUSY, Meaning.UNREACHABLE):
            if not self._is_away:
                text = f"the server is away ({answer.detail}): training goes on, records wait in {where} and are sent later"
                self._voice.say("away", text)
            self._is_away = True
        elif answer.meaning is Meaning.TAKEN and self._is_away:
            self._is_away = False
            self._voice.say("back", f"the server is back; {self.spool.waiting} records are on their way")
        elif answer.meaning is Meaning.NOT_ALLOWED:
            self._voice.once(
                "token",
                f"the server refuses the token ({answer.detail}). Run `lossguard login URL`; records wait in {where}",
            )
        elif self.is_start_refused:
            text = f"the server refuses the start of this run ({answer.detail}): records wait in {where}"
            self._voice.once("start", text)
        elif answer.meaning is Meaning.NOT_LOSSGUARD:
            text = f"what answers is not a LossGuard server ({answer.detail}): check LOSSGUARD_URL; records wait in {where}"
            self._voice.once("not lossguard", text)


def _holds_one(batch: Batch) -> bool:
    """Whether there is a single record in it (a `Dropped` may take many numbers)."""
    return batch.first_seq == batch.last_seq or (len(batch.records) == 1 and not batch.columns)
