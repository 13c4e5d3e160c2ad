"""Writer: the thread that empties the ring into the spool, every 10 ms, and gives each entry its number.

Numbers are given here and nowhere else, so what the ring lost or what cannot be sent becomes a counted `Dropped` in its place
and the numbers have no hole. Values are checked here too, not on the training thread; nothing is asked of a tensor, which could
wait for a GPU.
"""

import math
import numbers
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainer_agent.guest import lasting
from trainer_agent.guest.voice import Voice
from trainer_agent.wire import codec, series
from trainer_agent.wire.messages import MAX_BATCH_POINTS, Numbered, SegmentStarted

from .entries import Entry, Points, dropped
from .ring import Lost, Ring
from .spool import Spool

ROUND_SECONDS = 0.010
TEND_SECONDS = 0.5
PIECE = 256
PAUSE_SECONDS = 0.0005
"""After a piece of so many entries the thread sleeps for a moment: without that it would keep the training thread from the
interpreter for as long as Python lets it, 5 ms at a time, while it works off what gathered before a disk that was stuck."""
MOST_LATEST = 100
MOST_NAMES = 10_000
MOST_SETS = 100
MOST_VALUES = MAX_BATCH_POINTS
"""Of one call: one number of the journal stands for it, so it has to fit into a batch."""
_ONLY_FLOATS = frozenset({float})


class Mark:
    """Put into the ring to learn the number of the last entry before it, once that is in the spool."""

    def __init__(self) -> None:
        self.seq = 0
        self.is_reached = threading.Event()


class Writer:
    """Owns the spool's files. Thread: its own; `latest`, `segment`, `step` and `dropped` may be read on any."""

    def __init__(self, ring: Ring, spool: Spool, voice: Voice, on_written: Callable[[], None]) -> None:
        self.latest: dict[str, float] = {}
        """Newest values of `segment`; those of a stretch that was left behind are nobody's newest."""
        self.segment = 1
        self.step: int | None = None
        self.dropped = 0
        self.unusable = 0
        """Values that were no numbers, or had no usable name."""
        self._ring, self._spool, self._voice, self._on_written = ring, spool, voice, on_written
        self._seq = 0
        self._names: set[str] = set()
        self._usable_sets: set[tuple[str, ...]] = set()
        """The series of whole calls, each checked before: most calls bring the same ones."""
        self._marks: list[Mark] = []
        self._tend_at = 0.0
        self._is_stopping = False
        self.has_given_up = False
        """Whether its thread has ended by errors of its own: nothing is recorded any more."""
        self._thread = threading.Thread(target=self._run, name="lossguard-spool", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Lets the thread write what is left; whether it has within the limit."""
        self._is_stopping = True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.has_given_up = not lasting.outlive(self._rounds, lambda: self._is_stopping, self._tell)

    def _tell(self, error: BaseException, is_last: bool) -> None:  # noqa: FBT001
        what = f"internal error in the spool's thread ({type(error).__name__}: {error})"
        if is_last:
            self._voice.once("given up", f"{what} again and again: nothing more is recorded; training goes on")
        else:
            self._voice.say("thread", f"{what}; training goes on")

    def _rounds(self) -> None:
        while not self._is_stopping:
            time.sleep(ROUND_SECONDS)  # and no Event.wait, which costs the interpreter ten times as much
            if not self._ring.is_empty or time.monotonic() >= self._tend_at:
                self._round_guarded()
        self._round_guarded(is_last=True)

    def _round_guarded(self, *, is_last: bool = False) -> None:
        try:
            self._round(is_last=is_last)
        except Exception as error:
            self._voice.say(
                "writer", f"internal error while writing the spool ({type(error).__name__}: {error}); training goes on"
            )

    def _round(self, *, is_last: bool = False) -> None:
        drained = self._ring.drain(is_last=is_last)
        for start in range(0, len(drained), PIECE):
            if start:
                time.sleep(PAUSE_SECONDS)
            self._write([entry for raw in drained[start : start + PIECE] if (entry := self._take_guarded(raw)) is not None])
        if not drained and self._spool.trouble:
            self._write([])
        if self._spool.trouble:
            text = "are kept in memory as far as it is bounded; free some space"
            self._voice.say("disk", f"{self._spool.directory} cannot be written ({self._spool.trouble}): records {text}")
        now = time.monotonic()
        if now >= self._tend_at:
            self._tend_at = now + TEND_SECONDS
            self._spool.tend()
        for mark in self._marks:
            mark.is_reached.set()
        self._marks.clear()

    def _write(self, entries: list[Entry]) -> None:
        if entries or self._spool.trouble:
            self._spool.write(entries)
            self._on_written()

    def _take_guarded(self, raw: Any) -> Entry | None:
        """One strange entry must not take the others of its round along."""
        try:
            return self._take(raw)
        except Exception as error:
            self._voice.say("entry", f"an entry was dropped ({type(error).__name__}: {error})")
            return self._drop(1, "it could not be read")

    def _take(self, raw: Any) -> Entry | None:
        """The numbered entry of what lay in the ring; None for a mark."""
        if isinstance(raw, Lost):
            return self._drop(raw.count, "the training was faster than the spool")
        if len(raw) == 5:
            return self._points(*raw[1:]) or self._drop(1, "no usable number in it")
        item = raw[1]
        if isinstance(item, Mark):
            item.seq = self._seq
            self._marks.append(item)
            return None
        if isinstance(item, SegmentStarted):
            self.latest, self.segment, self.step = {}, item.segment, item.from_step
        record = self._sendable(item)
        return self._drop(1, "a record that cannot be sent") if record is None else Numbered(self._number(), record)

    def _number(self, count: int = 1) -> int:
        first, self._seq = self._seq + 1, self._seq + count
        return first

    def _drop(self, count: int, reason: str) -> Entry:
        self.dropped += count
        first = self._number(count)
        return dropped(first, self._seq, time.time(), reason)

    def _points(self, when: float, segment: int, step: object, given: Mapping[Any, Any] | None) -> Points | None:
        if (number := _whole(step)) is None or not 0 <= number <= codec.MAX_STEP:
            self._voice.say("step", f"log(): the step ({type(step).__name__}) is not a whole number from 0 up; dropped")
            return None
        if given is None:
            self._voice.say("values", "log() wants a mapping of series names to numbers; dropped")
            return None
        kept = given if self._is_plain(given) else self._usable(given)
        if not kept:
            return None
        if len(kept) > MOST_VALUES:
            self._voice.say("many", f"log(): {len(kept)} values in one call are more than {MOST_VALUES}; dropped")
            return None
        self.step = number
        self._note_latest(kept)
        return Points(self._number(), when, segment, number, tuple(kept), tuple(kept.values()))

    def _note_latest(self, kept: Mapping[str, float]) -> None:
        """The newest values for the heartbeats, of so many series as these can carry."""
        if len(self.latest) + len(kept) <= MOST_LATEST or kept.keys() <= self.latest.keys():
            self.latest.update(kept)
        else:
            self.latest.update(list(kept.items())[: MOST_LATEST - len(self.latest)])
            self.latest.update((name, kept[name]) for name in self.latest.keys() & kept.keys())

    def _is_plain(self, given: Mapping[Any, Any]) -> bool:
        """Whether all is as it nearly always is: floats, under names that came together before."""
        return tuple(given) in self._usable_sets and _ONLY_FLOATS.issuperset(map(type, given.values()))

    def _usable(self, given: Mapping[Any, Any]) -> dict[str, float]:
        """Those that may travel; the others are counted."""
        kept = {name: number for name, value in given.items() if (number := self._number_of(name, value)) is not None}
        self.unusable += len(given) - len(kept)
        if len(kept) == len(given) and len(self._usable_sets) < MOST_SETS:
            self._usable_sets.add(tuple(kept))
        return kept

    def _number_of(self, name: Any, value: Any) -> float | None:
        """The value as a float, or None when it may not travel; said once a minute."""
        if name not in self._names and not self._is_new_name(name):
            text = "is not group/name in lower case, such as train/loss; dropped"
            self._voice.say("name", f"log(): {name!r:.80} {text}")
            return None
        if type(value) is float:
            return value
        try:
            if isinstance(value, numbers.Real):  # numpy's scalars too; a tensor is not one, and asking it could wait for a GPU
                number = float(value)
                if not math.isinf(number) or value == number:  # else it was finite, and wider than a float64
                    return number
        except (OverflowError, ValueError, TypeError):
            pass
        kind = type(value).__name__
        self._voice.say("value", f"log(): {name} is a {kind}, not a number that a float64 can hold; dropped (pass a float)")
        return None

    def _is_new_name(self, name: object) -> bool:
        if not isinstance(name, str) or not series.is_valid(name):
            return False
        if len(self._names) < MOST_NAMES:
            self._names.add(name)
        return True

    def _sendable(self, record: Any) -> Any:
        """The record as the server will read it, its texts cleaned where need be; None when it cannot travel."""
        try:
            travelled = codec.to_json(Numbered(1, record))
            try:
                return codec.decode(Numbered, codec.encode(travelled)).record
            except ValueError:
                return codec.from_json(Numbered, _cleaned(travelled)).record
        except Exception as error:
            self._voice.say("record", f"a {type(record).__name__} cannot be sent ({error}); dropped")
            return None


def _whole(step: object) -> int | None:
    if type(step) is int:
        return step
    return int(step) if isinstance(step, numbers.Integral) and not isinstance(step, bool) else None


def _cleaned(value: Any) -> Any:
    """JSON whose texts have no NUL and no lone surrogates, and are not too long."""
    if isinstance(value, str):
        return value[:60_000].replace("\x00", " ").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value
