"""What a message about an incident says: its alerts, the gravest in full, and what was done and is to be done about that one.

The old keys (`title`, `text`, `series`, `value`, `limit`, `rule_name`) are those of the gravest alert that the message is about,
so that a receiver which knows only those reads on. Everything in words is there in both languages; `webhooks.body` takes one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.domain.alerts import Alert
from server.domain.grouping import Saying
from server.domain.incidents import Incident, gravest

from .words import Both

MOST_TITLES = 5
"""Of the other alerts, named in the text; all are in the list."""


@dataclass(frozen=True, slots=True)
class Said:
    """One alert in words. `is_new`: no message has named it before."""

    alert: Alert
    texts: Both
    is_new: bool = False


def data_of(
    incident: Incident,
    saying: Saying,
    alerts: Sequence[Said],
    done: Both,
    following: Both,
    *,
    count: int,
    others: Sequence[int] = (),
) -> dict[str, Any]:
    """The data of the event.

    `alerts` come in the order in which they are read, what the message is about first, at least one; `count` is how many there
    are. `done` and `following` are of the first. `others` are the numbers of the incidents that the message speaks of beside
    this one.
    """
    worst = alerts[0].alert
    about = [each.alert.severity for each in alerts if each.is_new] or [each.alert.severity for each in alerts]
    return {
        "incident": {"id": incident.incident_id, "number": incident.number, "state": incident.state, "also": list(others)},
        "title": worst.title,
        "severity": incident.severity if saying is Saying.RESOLVED else gravest(about),
        "text": _text(incident, saying, alerts, count, 0),
        "alert_id": worst.alert_id,
        "rule_id": worst.rule_id,
        "rule_name": worst.rule_name,
        "series": worst.series,
        "rank": worst.rank,
        "value": worst.value,
        "limit": worst.limit,
        "onset_step": worst.onset_step,
        "alerts": [_alert(each) for each in alerts],
        "alert_count": count,
        "done": done[0],
        "next": following[0],
        "repeat": saying is Saying.REPEAT,
        "zh": {"text": _text(incident, saying, alerts, count, 1), "done": done[1], "next": following[1]},
    }


def _alert(said: Said) -> dict[str, Any]:
    alert = said.alert
    return {
        "alert_id": alert.alert_id,
        "title": alert.title,
        "rule": alert.rule_name,
        "rule_id": alert.rule_id,
        "severity": alert.severity,
        "state": alert.state,
        "is_new": said.is_new,
        "series": alert.series,
        "rank": alert.rank,
        "segment": alert.segment,
        "step": alert.firing_step if alert.firing_step is not None else alert.onset_step,
        "onset_step": alert.onset_step,
        "resolved_step": alert.resolved_step,
        "value": alert.value,
        "limit": alert.limit,
        "text": said.texts[0],
        "zh": {"text": said.texts[1]},
    }


def _text(incident: Incident, saying: Saying, alerts: Sequence[Said], count: int, language: int) -> str:
    return f"{_opening(incident, saying)[language]}{alerts[0].texts[language]}{_rest(alerts, count)[language]}"


def _opening(incident: Incident, saying: Saying) -> Both:
    talk = incident.talk
    if saying is Saying.REPEAT:
        return "Still firing: ", "仍在触发："
    if talk.messages:
        return ("Over: ", "已解除：") if saying is Saying.RESOLVED else ("More alerts: ", "新增告警：")
    if saying is Saying.RESOLVED:
        return _OVER_LATE if talk.is_late else ("Fired and over again: ", "触发后已解除：")
    return ("While the trainer was cut off: ", "训练进程断线期间：") if talk.is_late else ("", "")


_OVER_LATE: Both = ("Fired and over again while the trainer was cut off: ", "训练进程断线期间触发，后已解除：")


def _rest(alerts: Sequence[Said], count: int) -> Both:
    """How many more there are, the first of them by their titles."""
    more = count - 1
    if more <= 0:
        return "", ""
    named = [each.alert.title for each in alerts[1 : 1 + MOST_TITLES]]
    unnamed = more - len(named)
    en = ", ".join(named) + (f" and {unnamed} more" if unnamed else "")
    zh = "、".join(named) + ("等" if unnamed else "")
    return f". With it {more} more {'alert' if more == 1 else 'alerts'}: {en}", f"。另有 {more} 条告警：{zh}"
