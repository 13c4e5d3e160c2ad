"""Segments, as a run's page shows them."""

from datetime import datetime
from typing import Any

from server.store.segments import Segment

from .deps import Out


class SegmentOut(Out):
    """A stretch of the run between starts or rollbacks."""

    segment: int
    from_step: int
    last_step: int | None
    cause: str
    parent: int | None
    command_id: str | None
    checkpoint_id: str | None
    started_at: datetime
    attributes: dict[str, Any]
    resume_findings: list[str] | None
    """What the check of its first steps found; null where there was no check (yet)."""


def segment_out(segment: Segment, findings: list[str] | None) -> SegmentOut:
    """A segment as the API shows it. `findings`: of its resume check."""
    return SegmentOut(
        segment=segment.segment,
        from_step=segment.from_step,
        last_step=segment.last_step,
        cause=segment.cause.value,
        parent=segment.parent,
        command_id=segment.command_id,
        checkpoint_id=segment.checkpoint_id,
        started_at=segment.started_at,
        attributes=segment.attributes,
        resume_findings=findings,
    )
