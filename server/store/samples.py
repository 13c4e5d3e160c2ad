"""The batch ledger as it came from the agents: blocks of steps (`trainer_agent.wire.samples`), unpacked when asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from server.domain.samples import SampledStep, last_counting, most_recent_first, oldest_first
from trainer_agent.wire import samples as wire
from trainer_agent.wire.messages import StepSamples

from .tables import segments, step_samples
from .upserts import upsert

_c = step_samples.c
MOST_BYTES = 64 << 20
"""So much of blocks is looked at for one answer."""


@dataclass(frozen=True, slots=True)
class Window:
    """Steps that are asked for; `segment` None: those that count in the end."""

    segment: int | None = None
    from_step: int | None = None
    to_step: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Sought:
    """Steps, and whether there are more than these."""

    steps: list[SampledStep]
    truncated: bool


def save(connection: sa.Connection, run_id: str, rank: int, record: StepSamples, now: datetime) -> None:
    """Write a block down; the same one again changes nothing.

    Raises:
        NoBlock
    """
    body = wire.from_text(record.body)
    wire.sample_planes(body)  # that it can be read
    row = {
        "run_id": run_id,
        "segment": record.segment,
        "rank": rank,
        "first_step": record.first_step,
        "part": wire.part_of(body),
        "last_step": record.last_step,
        "at": now,
        "body": body,
    }
    upsert(connection, step_samples, [row])


def has_any(connection: sa.Connection, run_id: str) -> bool:
    """Whether it is recorded of the run which samples its steps have read."""
    return connection.execute(sa.select(_c.run_id).where(_c.run_id == run_id).limit(1)).first() is not None


def read(connection: sa.Connection, run_id: str, window: Window, *, most_steps: int, most_samples: int) -> Sought:
    """The steps of a window in order, the first ones where there are too many."""
    starts, count = _starts(connection, run_id), 0
    found: list[SampledStep] = []
    for step in _joined(_steps(connection, run_id, window, starts)):
        count += len(step.samples or step.documents or ())
        if len(found) == most_steps or (found and count > most_samples):
            return Sought(oldest_first(found), truncated=True)
        found.append(step)
    return Sought(oldest_first(found), truncated=False)


def read_step(connection: sa.Connection, run_id: str, window: Window, *, most_steps: int, most_samples: int) -> Sought:
    """The one step of a window as it counts; where it was rewound and not made again, as the newest segment made it."""
    sought = read(connection, run_id, window, most_steps=most_steps, most_samples=most_samples)
    newest = None if sought.steps or window.segment is not None else _newest_segment(connection, run_id, window)
    if newest is None:
        return sought
    return read(connection, run_id, replace(window, segment=newest), most_steps=most_steps, most_samples=most_samples)


def _newest_segment(connection: sa.Connection, run_id: str, window: Window) -> int | None:
    """The last one that has steps of the window."""
    for row in _blocks(connection, run_id, window, newest_first=True):
        if any(window.from_step == each.step for each in _rows(row.body)):
            return int(row.segment)
    return None


def find(connection: sa.Connection, run_id: str, what: int | str, window: Window, *, most_steps: int) -> Sought:
    """The steps that a sample (a number) or a document (a text) went into, newest first; each segment's own."""
    starts, weight = _starts(connection, run_id), 0
    found: list[SampledStep] = []
    for row in _blocks(connection, run_id, window, newest_first=True):
        weight += len(row.body)
        if weight > MOST_BYTES:
            return Sought(most_recent_first(found), truncated=True)
        if _holds(row.body, what):
            rows = (_step(row, each, starts) for each in _rows(row.body))
            found += [step for step in reversed(list(rows)) if _has(step, what) and _is_in(step, window)]
        if len(found) > most_steps:
            return Sought(most_recent_first(found[:most_steps]), truncated=True)
    return Sought(most_recent_first(found), truncated=False)


def _steps(connection: sa.Connection, run_id: str, window: Window, starts: dict[int, int]) -> Iterator[SampledStep]:
    weight = 0
    for row in _blocks(connection, run_id, window):
        weight += len(row.body)
        if weight > MOST_BYTES:
            return
        for each in _rows(row.body):
            step = _step(row, each, starts)
            if _is_in(step, window) and (window.segment is not None or not step.superseded):
                yield step


def _blocks(connection: sa.Connection, run_id: str, window: Window, *, newest_first: bool = False) -> Iterator[sa.Row]:  # type: ignore[type-arg]
    query = sa.select(step_samples).where(_c.run_id == run_id)
    if window.segment is not None:
        query = query.where(_c.segment == window.segment)
    if window.rank is not None:
        query = query.where(_c.rank == window.rank)
    if window.from_step is not None:
        query = query.where(_c.last_step >= window.from_step)
    if window.to_step is not None:
        query = query.where(_c.first_step <= window.to_step)
    order = (_c.segment, _c.rank, _c.first_step, _c.part)
    query = query.order_by(*(column.desc() for column in order)) if newest_first else query.order_by(*order)
    result = connection.execute(query.execution_options(yield_per=50))
    try:
        yield from result
    finally:
        result.close()  # whoever has enough stops reading


def _rows(block: bytes) -> list[wire.StepRow]:
    """The steps of a block; none where only its outline makes sense, which is all that was looked at when it came."""
    try:
        return wire.decode(block)
    except wire.NoBlock:
        return []


def _starts(connection: sa.Connection, run_id: str) -> dict[int, int]:
    rows = connection.execute(sa.select(segments.c.segment, segments.c.from_step).where(segments.c.run_id == run_id))
    return {row.segment: row.from_step for row in rows}


def _step(row: sa.Row, each: wire.StepRow, starts: dict[int, int]) -> SampledStep:  # type: ignore[type-arg]
    last = last_counting(starts, row.segment)
    return SampledStep(each.step, row.segment, row.rank, each.samples, each.documents, last is not None and each.step > last)


def _joined(steps: Iterator[SampledStep]) -> Iterator[SampledStep]:
    """Parts of a step that was too large for one block come one after the other."""
    held: SampledStep | None = None
    for step in steps:
        if held is not None and (held.segment, held.rank, held.step) == (step.segment, step.rank, step.step):
            both = None if held.samples is None or step.samples is None else held.samples + step.samples
            names = None if held.documents is None or step.documents is None else held.documents + step.documents
            held = SampledStep(held.step, held.segment, held.rank, both, names, held.superseded)
            continue
        if held is not None:
            yield held
        held = step
    if held is not None:
        yield held


def _is_in(step: SampledStep, window: Window) -> bool:
    return (window.from_step is None or step.step >= window.from_step) and (window.to_step is None or step.step <= window.to_step)


def _has(step: SampledStep, what: int | str) -> bool:
    return what in (step.samples or ()) if isinstance(what, int) else what in (step.documents or ())


def _holds(block: bytes, what: int | str) -> bool:
    """Whether it is worth unpacking a block."""
    if isinstance(what, str):
        return what in wire.documents_in(block)
    planes = np.frombuffer(wire.sample_planes(block), np.uint8).reshape(8, -1)
    folded = np.ascontiguousarray(planes.T).view("<u8").ravel()  # even: n / 2, odd: -(n + 1) / 2
    differences = np.where(folded & 1, -((folded + 1) >> 1).astype(np.int64), (folded >> 1).astype(np.int64))
    return bool((np.cumsum(differences) == what).any())
