"""Which endpoint wants which event, what it is told, and when a delivery is tried again.

    waiting -> waiting      the attempt failed and another is due: the schedule below, or what the receiver asked for
    waiting -> succeeded    a 2xx answer
    waiting -> failed       the last attempt failed, or the receiver said 410 (gone), which also disables the endpoint

An event reaches an endpoint at least once, always under the same delivery id; neither order nor uniqueness is promised.

Source: Standard Webhooks 1.0, sections "Deliverability and reliability" and "Webhook payloads".
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from trainer_agent.wire.codec import to_json
from trainer_agent.wire.vocabulary import Severity

from .events import Event, EventType
from .wording.event_words import NO_LINK
from .wording.words import LANGUAGES

RETRY_DELAYS = (
    timedelta(0),
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=10),
)
"""Before attempt 1, 2, 3 ... An attempt past the end is not made."""
JITTER = 0.2
"""Each delay is stretched or shortened by up to this share, so that a receiver that comes back is not hit by all at once."""
RETRY_AFTER_LIMIT = timedelta(hours=1)
LEASE = timedelta(seconds=30)
"""How long an attempt may be out before it is taken for lost and made again. Longer than any attempt lasts."""
MAX_TEXT = 2_000
MAX_ALERT_BYTES = 12_000
"""Of the list of alerts in a message: with all else it stays under the 20 kB that receivers must be able to take."""
OTHER_LANGUAGES = LANGUAGES[1:]
_OF_INCIDENTS = ("incident", "alerts", "alert_count", "done", "next", "repeat")
"""What a message about an incident says beside what every message does."""

_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}

SENT_AS: dict[EventType, Severity | None] = {
    EventType.INCIDENT_FIRING: None,
    EventType.INCIDENT_RESOLVED: None,
    EventType.RUN_FAILED: Severity.CRITICAL,
    EventType.RUN_STOPPED: Severity.WARNING,
    EventType.RUN_FINISHED: Severity.INFO,
    EventType.RUN_INCARNATION_ENDED: Severity.WARNING,
    EventType.RUN_LIVES: Severity.WARNING,
    EventType.RUN_RESUME_CHECKED: None,
    EventType.CHECKPOINT_CHANGED: None,
    EventType.CHECKPOINT_SAVE_FAILED: None,
    EventType.COUNTDOWN_STARTED: Severity.WARNING,
    EventType.COMMAND_SUCCEEDED: Severity.WARNING,
    EventType.COMMAND_FAILED: Severity.CRITICAL,
    EventType.COMMAND_UNCONFIRMED: Severity.CRITICAL,
    EventType.RULE_FAILED: Severity.WARNING,
    EventType.WEBHOOK_TEST: Severity.CRITICAL,
}
"""The events that leave the server, and how loud each is. None: as loud as it says itself, and silent where it says nothing.

An alert and a lost run are told by their incident, so neither is told by itself."""


class DeliveryState(StrEnum):
    """Where one event on its way to one endpoint stands."""

    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook goes, and what it wants to hear of."""

    webhook_id: str
    name: str
    url: str
    secret: str
    minimum_severity: Severity
    project: str | None
    enabled: bool
    disabled_because: str
    created_at: datetime
    language: str = "en"
    """In which it is told: `en` or `zh`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try. `status` is None when no answer came, and `error` then says in a few words why; it is None on success."""

    at: datetime
    status: int | None
    error: str | None
    seconds: float
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """What decides on the next attempt. `attempt_count` counts those made."""

    state: DeliveryState = DeliveryState.WAITING
    attempt_count: int = 0
    next_attempt_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The next status, and whether the endpoint asked never to be called again."""

    status: DeliveryStatus
    endpoint_gone: bool = False


def step(status: DeliveryStatus, attempt: Attempt, now: datetime, jitter: float, scale: float = 1.0) -> DeliveryOutcome:
    """The delivery after `attempt`.

    `jitter` in -1 .. 1 comes from outside, so that this stays a function; `scale` shortens every wait.
    """
    if status.state is not DeliveryState.WAITING:
        return DeliveryOutcome(status)
    count = status.attempt_count + 1
    if attempt.status is not None and 200 <= attempt.status < 300:
        return DeliveryOutcome(DeliveryStatus(DeliveryState.SUCCEEDED, count))
    gone = attempt.status == 410
    if gone or count >= len(RETRY_DELAYS):
        return DeliveryOutcome(DeliveryStatus(DeliveryState.FAILED, count), endpoint_gone=gone)
    wait = _delay(count, attempt.retry_after, jitter) * scale
    return DeliveryOutcome(DeliveryStatus(DeliveryState.WAITING, count, now + wait))


def _delay(attempts_made: int, retry_after: timedelta | None, jitter: float) -> timedelta:
    if retry_after is not None:
        return min(max(retry_after, timedelta(0)), RETRY_AFTER_LIMIT)
    return RETRY_DELAYS[attempts_made] * (1 + JITTER * max(-1.0, min(1.0, jitter)))


def severity_of(event: Event) -> Severity | None:
    """How loud `event` is for the outside; None when it stays inside."""
    if event.type not in SENT_AS:
        return None
    said = SENT_AS[event.type] or event.data.get("severity")
    return None if said is None else Severity(said)


def wants(endpoint: Endpoint, event: Event, project: str | None) -> bool:
    """Whether `endpoint` is to be told of `event` of a run in `project`.

    A test goes to the endpoint it was asked for, enabled or not, and to no other.
    """
    if event.type is EventType.WEBHOOK_TEST:
        return event.data.get("webhook_id") == endpoint.webhook_id
    severity = severity_of(event)
    if severity is None or not endpoint.enabled or _RANK[severity] < _RANK[endpoint.minimum_severity]:
        return False
    return endpoint.project is None or endpoint.project == project


def body(event_id: int, event: Event, run_name: str | None, project: str | None, language: str = "en") -> dict[str, Any]:
    """What a receiver reads, as strict JSON; the link is added when it is sent, by `with_link`.

    What an event says in words it may say again under its language, `zh`; what of it is not there is told in English.
    """
    said = _in_language(to_json(event.data), language)
    about = {name: said[name] for name in _OF_INCIDENTS if name in said}
    if "alerts" in about:
        about["alerts"] = _fitting([_in_language(each, language) for each in about["alerts"]])
    return {
        "type": event.type.value,
        "timestamp": event.at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "data": {
            "event_id": event_id,
            "run_id": event.run_id,
            "run_name": run_name,
            "project": project,
            "title": str(said.get("title") or event.type.value),
            "severity": (severity_of(event) or Severity.INFO).value,
            "text": str(said.get("text") or said.get("reason") or said.get("outcome") or "")[:MAX_TEXT],
            "step": event.step,
            "series": said.get("series"),
            "value": said.get("value"),
            "limit": said.get("limit"),
            "rule": said.get("rule_name") or said.get("rule"),
            "rule_id": said.get("rule_id"),
            **about,
        },
    }


def _in_language(said: dict[str, Any], language: str) -> dict[str, Any]:
    """`said` in the words of a language, without the others."""
    translated = said.get(language)
    words = translated if isinstance(translated, dict) else {}
    return {name: value for name, value in said.items() if name not in OTHER_LANGUAGES} | words


def _fitting(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the alerts, from the first on, as fit into a message; `alert_count` says how many there are."""
    left, fitting = MAX_ALERT_BYTES, []
    for each in alerts:
        left -= len(json.dumps(each))
        if left < 0:
            break
        fitting.append(each)
    return fitting


def with_link(told: dict[str, Any], public_url: str | None, language: str = "en") -> dict[str, Any]:
    """`told` with the link to the page, or with the words that say why there is none."""
    run_id, incident = told["data"]["run_id"], told["data"].get("incident")
    path = f"/runs/{run_id}" if run_id else "/webhooks"
    if incident:
        path += f"/incidents/{incident['id']}"
    link = f"{public_url.rstrip('/')}{path}" if public_url else None
    note = None if public_url else NO_LINK[LANGUAGES.index(language)]
    return {**told, "data": {**told["data"], "link": link, "link_note": note}}
