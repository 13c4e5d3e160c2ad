"""Events, as a run's page shows them."""

from datetime import datetime
from typing import Any

from server.store.events import StoredEvent

from .deps import Out


class EventOut(Out):
    """One thing that happened."""

    event_id: int
    type: str
    at: datetime
    run_id: str | None
    step: int | None
    segment: int | None
    data: dict[str, Any]


def event_out(stored: StoredEvent) -> EventOut:
    """An event as the API shows it."""
    event = stored.event
    return EventOut(
        event_id=stored.event_id,
        type=event.type.value,
        at=event.at,
        run_id=event.run_id,
        step=event.step,
        segment=event.segment,
        data=event.data,
    )
