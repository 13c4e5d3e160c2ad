"""Numbered entries into one columnar batch. Pure.

The limits are kept by an upper bound of what each part can weigh as JSON, so a batch is never encoded twice. At least one entry
is always taken: whether it is too large on its own is for the server to say.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainer_agent.recording.entries import Entry, Points, clip, last_seq
from trainer_agent.wire import codec
from trainer_agent.wire.messages import MAX_BATCH_BYTES, MAX_BATCH_POINTS, Batch, Column, Dropped, Numbered

_POINT_BYTES = 84
"""seq and step of 16 digits, time and value of 24 characters, four commas."""
_COLUMN_BYTES = 240
_ENVELOPE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one batch may hold. `last` bounds the numbers, when a bad record is being looked for."""

    points: int = MAX_BATCH_POINTS
    bytes: int = MAX_BATCH_BYTES
    last: int | None = None

    def halved(self) -> "Limits":
        """Half the points and bytes, at least one point."""
        return replace(self, points=max(1, self.points // 2), bytes=max(1, self.bytes // 2))


def cut(envelope: Batch, entries: Iterable[Entry], limits: Limits) -> Batch | None:
    """As many entries as the limits allow, from `envelope.first_seq` on; None when there is none.

    Args:
        envelope: run, incarnation, rank, `first_seq` and `sent_at`; the rest is filled in.
        entries: from `first_seq` on, in order, without holes.
    """
    taken: list[Entry] = []
    columns: set[tuple[str, int]] = set()
    points, weight = 0, _ENVELOPE_BYTES
    for whole in entries:
        if limits.last is not None and whole.seq > limits.last:
            break
        entry = clip(whole, envelope.first_seq, limits.last or last_seq(whole))
        points += len(entry.values) if isinstance(entry, Points) else 0
        weight += _weight(entry, columns)
        if taken and (points > limits.points or weight > limits.bytes):
            break
        taken.append(entry)
    if not taken:
        return None
    records = tuple(entry for entry in taken if isinstance(entry, Numbered))
    return replace(envelope, last_seq=last_seq(taken[-1]), columns=_columns(taken), records=records)


def _columns(entries: list[Entry]) -> tuple[Column, ...]:
    """Points by series and segment, each oldest first."""
    gathered: dict[tuple[str, int], list[tuple[int, int, float, float]]] = {}
    for entry in entries:
        if isinstance(entry, Points):
            for name, value in zip(entry.names, entry.values, strict=True):
                rows = gathered.setdefault((name, entry.segment), [])
                rows.append((entry.seq, entry.step, entry.time, value))
    return tuple(_column(series, segment, rows) for (series, segment), rows in gathered.items())


def _column(series: str, segment: int, rows: list[tuple[int, int, float, float]]) -> Column:
    seq, step, time, value = zip(*rows, strict=True)
    return Column(series, segment, seq, step, time, value)


def _weight(entry: Entry, columns: set[tuple[str, int]]) -> int:
    """Upper bound of what an entry adds to the JSON; `columns` are those begun, and is added to."""
    if isinstance(entry, Points):
        begun = len(columns)
        columns.update((name, entry.segment) for name in entry.names)
        return len(entry.values) * _POINT_BYTES + (len(columns) - begun) * _COLUMN_BYTES
    return 96 + len(entry.record.reason) * 6 if isinstance(entry.record, Dropped) else 32 + len(codec.encode(entry))
