"""The catalogue of everything that can happen.

One append-only table holds these; it feeds the live page, the webhooks, the audit trail and the chart marks. `data` is strict
JSON (non-finite numbers as strings) and carries what a person needs to read the event without looking elsewhere.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """Dotted: noun, then what happened to it."""

    RUN_STARTED = "run.started"
    RUN_SEGMENT_STARTED = "run.segment_started"
    RUN_LOST = "run.lost"
    RUN_FOUND = "run.found"
    RUN_FINISHED = "run.finished"
    RUN_FAILED = "run.failed"
    RUN_STOPPED = "run.stopped"
    RUN_INCARNATION_ENDED = "run.incarnation_ended"
    """How an earlier process of a run ended, learned while a newer one speaks for it."""
    RUN_LIVES = "run.lives"
    """A process that was called killed speaks: it lives after all, and what was told of its end is taken back."""
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_UNABLE = "run.unable"
    RUN_RANK_FAILED = "run.rank_failed"
    RUN_RECORDS_DROPPED = "run.records_dropped"
    RUN_RESUME_CHECKED = "run.resume_checked"
    """The first steps after a resume were compared with the stored curve."""
    CHECKPOINT_CHANGED = "checkpoint.changed"
    CHECKPOINT_SAVE_FAILED = "checkpoint.save_failed"
    CHECKPOINT_PINNED = "checkpoint.pinned"
    CHECKPOINT_UNPINNED = "checkpoint.unpinned"
    ALERT_FIRING = "alert.firing"
    ALERT_RESOLVED = "alert.resolved"
    ALERT_REWOUND = "alert.rewound"
    INCIDENT_FIRING = "incident.firing"
    """People are told of an incident, of alerts that joined it, or once more."""
    INCIDENT_ACKNOWLEDGED = "incident.acknowledged"
    INCIDENT_RESOLVED = "incident.resolved"
    SILENCE_STARTED = "silence.started"
    SILENCE_ENDED = "silence.ended"
    HOLD_STARTED = "hold.started"
    """A person has said that nothing is done to the run by itself for a time."""
    HOLD_LIFTED = "hold.lifted"
    HOLD_OVER = "hold.over"
    COUNTDOWN_STARTED = "countdown.started"
    COUNTDOWN_ENDED = "countdown.ended"
    COMMAND_QUEUED = "command.queued"
    COMMAND_DELIVERED = "command.delivered"
    COMMAND_RUNNING = "command.running"
    COMMAND_SUCCEEDED = "command.succeeded"
    COMMAND_FAILED = "command.failed"
    COMMAND_UNCONFIRMED = "command.unconfirmed"
    COMMAND_REJECTED = "command.rejected"
    COMMAND_CANCELLED = "command.cancelled"
    COMMAND_EXPIRED = "command.expired"
    COMMAND_SUPERSEDED = "command.superseded"
    RULE_CHANGED = "rule.changed"
    RULE_FAILED = "rule.failed"
    """A rule could not be judged, and is judged no more until it is changed."""
    RULE_NOTED = "rule.noted"
    """What a rule cannot do on a run: see `domain/rule_notes.py`."""
    WEBHOOK_CHANGED = "webhook.changed"
    WEBHOOK_DISABLED = "webhook.disabled"
    WEBHOOK_TEST = "webhook.test"


ENDS = (EventType.RUN_FINISHED, EventType.RUN_FAILED, EventType.RUN_STOPPED, EventType.RUN_INCARNATION_ENDED)
"""The events that say how a process of a run ended; their `incarnation` says which. `RUN_LIVES` takes one back."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `run_id` is None for what concerns no run (webhook and rule changes)."""

    type: EventType
    at: datetime
    run_id: str | None = None
    step: int | None = None
    segment: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
