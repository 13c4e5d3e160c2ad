"""A segment begins: it is written down once, and the run goes on where it says. Rank 0 speaks for all ranks."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from server.domain.events import Event, EventType
from server.services.errors import Invalid
from server.services.recording import record
from server.store import runs as run_store
from server.store import segments as store
from server.store.runs import Incarnation, Run
from trainer_agent.wire.messages import SegmentStarted
from trainer_agent.wire.vocabulary import SegmentCause


def start(connection: Connection, run: Run, life: Incarnation, wire: SegmentStarted, now: datetime) -> Run | None:
    """The run where the segment goes on from, or as it was where the segment comes late; None when the segment is known already.

    Raises:
        Invalid: another incarnation has announced it.
    """
    if not _is_opened(connection, run, life, wire, now):
        return None
    if wire.segment >= run.segment:
        begun: dict[str, Any] = {"segment": wire.segment, "step": wire.from_step, "phase_since": now}
        # the latest values are of steps left behind
        run_store.update(connection, run.run_id, {**begun, "latest": {}, **_data_modes(wire)})
        run = replace(run, **begun)
    record(connection, Event(EventType.RUN_SEGMENT_STARTED, now, run.run_id, run.step, run.segment, _said(wire)))
    return run


def _is_opened(connection: Connection, run: Run, life: Incarnation, wire: SegmentStarted, now: datetime) -> bool:
    """Write the segment down; False when it is known already.

    The segment of a rollback is fixed in its command. A process that was killed in the middle of it may have announced it,
    and the next one, which has read that in the journal, announces it again: it is one segment, of the later of the two.
    """
    known = store.get(connection, run.run_id, wire.segment)
    if known is None:
        store.insert(connection, run.run_id, life.incarnation, wire, now)
        return True
    if known.incarnation == life.incarnation:
        return False
    if known.command_id is None or known.command_id != wire.command_id or wire.cause is not SegmentCause.ROLLBACK:
        raise Invalid(
            f"segment {wire.segment} was announced by another incarnation",
            f"number segments on from {run.segment}, the newest the server knows",
        )
    is_later = run_store.is_newer(connection, run.run_id, life.incarnation, known.incarnation)
    if is_later:
        store.take_over(connection, run.run_id, wire.segment, life.incarnation, now)
    return is_later


def _data_modes(wire: SegmentStarted) -> dict[str, object]:
    """What a rollback can do with the data from now on, where it is known only now."""
    return {} if wire.data_modes is None else {"data_modes": wire.data_modes, "data_modes_because": wire.data_modes_because}


def _said(wire: SegmentStarted) -> dict[str, object]:
    told = {name: getattr(wire, name) for name in ("cause", "from_step", "parent", "command_id", "checkpoint_id", "attributes")}
    return {**told, "text": f"Segment {wire.segment} goes on from step {wire.from_step} ({wire.cause})"}
