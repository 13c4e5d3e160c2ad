"""When an incident is spoken of, and what is said then: forty rules on one step are one message, not forty.

saying     when
---------  ------------------------------------------------------------------------------------------------------------
firing     an alert waits to be told. With a critical one at once (the next such message at least `URGENT_SPACING` later);
           else `GROUP_WAIT` after the first began to wait, and `SPACING` after the last message of the run that was not urgent
resolved   the last alert has recovered, and somebody was told of the incident or is to be: `GROUP_WAIT`, `SPACING`, as above.
           Where its firing was not told yet, this one message tells both
repeat     `REPEAT_AFTER` the last message that reached somebody, while something told still fires, the run is alive and nobody
           has taken it on

An alert waits to be told from its firing on, unless it is silenced or inhibited; those wait for the silence to end or the
inhibitor to be over, and are told of if they still fire then. An alert that a rewind or a changed rule has ended is told no
more, and nobody is told "resolved" of it; one that the end of its run has ended is told at once, as having fired.

A *late* message is one whose alerts fired while the trainer was cut off. As long as batches still bring records that are old,
the next may end what this one began: it waits, `LATE_WAIT` from batch to batch and `LATE_AT_MOST` in all, so that what opened
and closed meanwhile is one summary.

The run's last times of speaking are carried by its newest incident. All times are the server's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from trainer_agent.wire.vocabulary import Severity

from .alerts import Alert, CloseReason, Told
from .incidents import Incident, IncidentState, Talk

GROUP_WAIT: Final = timedelta(seconds=5)
SPACING: Final = timedelta(seconds=60)
URGENT_SPACING: Final = timedelta(seconds=5)
REPEAT_AFTER: Final = timedelta(hours=4)
LATE_WAIT: Final = timedelta(seconds=5)
LATE_AT_MOST: Final = timedelta(seconds=60)

QUIET_ENDS: Final = frozenset({CloseReason.REWOUND, CloseReason.RULE_CHANGED})


class Saying(StrEnum):
    """What a message says."""

    FIRING = "firing"
    RESOLVED = "resolved"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class Member:
    """An alert of an incident, and what keeps it from being told now."""

    alert: Alert
    is_silenced: bool = False
    is_inhibited: bool = False

    @property
    def is_heard(self) -> bool:
        """Whether a message may speak of it now."""
        return not (self.is_silenced or self.is_inhibited)

    @property
    def is_news(self) -> bool:
        """Whether it waits to be told."""
        return self.is_heard and self.alert.told is None and self.alert.closed_because not in QUIET_ENDS


@dataclass(frozen=True, slots=True)
class Pace:
    """When messages of the run went out last: urgent ones, and all others."""

    spoken_at: datetime | None = None
    urgent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be said of an incident next, from when on, and what is new in it. Nothing: `saying` and `at` are None."""

    saying: Saying | None = None
    at: datetime | None = None
    is_urgent: bool = False
    news: tuple[Alert, ...] = ()

    def is_due(self, now: datetime) -> bool:
        """Whether it is to be said now."""
        return self.at is not None and self.at <= now


NOTHING: Final = Plan()


def noted(incident: Incident, members: Iterable[Member], now: datetime, *, is_late: bool = False) -> Incident:
    """The incident, with since when something waits to be told. `is_late`: a batch of old records has just been taken."""
    talk = incident.talk
    waits = any(each.is_news for each in members) or _is_to_resolve(incident)
    since = (talk.since or now) if waits else None
    talk = replace(talk, since=since, not_before=None if since is None else talk.not_before)
    if is_late and since is not None:
        until = min(now + LATE_WAIT, since + LATE_AT_MOST)
        talk = replace(talk, not_before=until, is_late=talk.messages == 0)
    return replace(incident, talk=talk)


def _is_to_resolve(incident: Incident) -> bool:
    talk = incident.talk
    return not incident.is_open and incident.closed_because is CloseReason.RECOVERED and talk.messages > 0 and not talk.is_done


def plan(incident: Incident, members: Sequence[Member], pace: Pace, *, is_alive: bool) -> Plan:
    """What will be said next of a `noted` incident, if nothing else happens."""
    news = tuple(each.alert for each in members if each.is_news)
    if incident.talk.is_done:
        return NOTHING
    if news and (incident.is_open or incident.closed_because is CloseReason.RUN_ENDED):
        return _firing(incident.talk, news, pace)
    if incident.is_open:
        return _repeat(incident, members, pace) if is_alive else NOTHING
    told = any(each.is_heard and each.alert.told is Told.NAMED for each in members)
    if news or (_is_to_resolve(incident) and told):
        return Plan(Saying.RESOLVED, _unhurried(incident.talk, pace), news=news)
    return NOTHING


def _firing(talk: Talk, news: tuple[Alert, ...], pace: Pace) -> Plan:
    if any(_is_urgent(alert) for alert in news):
        after = None if pace.urgent_at is None else pace.urgent_at + URGENT_SPACING
        return Plan(Saying.FIRING, _latest(talk.since, talk.not_before, after), is_urgent=True, news=news)
    return Plan(Saying.FIRING, _unhurried(talk, pace), news=news)


def _is_urgent(alert: Alert) -> bool:
    return alert.severity is Severity.CRITICAL and (alert.is_open or alert.closed_because is CloseReason.RUN_ENDED)


def _unhurried(talk: Talk, pace: Pace) -> datetime | None:
    after = None if pace.spoken_at is None else pace.spoken_at + SPACING
    return _latest(None if talk.since is None else talk.since + GROUP_WAIT, talk.not_before, after)


def _repeat(incident: Incident, members: Iterable[Member], pace: Pace) -> Plan:
    talk = incident.talk
    still = any(each.is_heard and each.alert.told is Told.NAMED and each.alert.is_open for each in members)
    if incident.state is not IncidentState.TRIGGERED or talk.in_flight or talk.repeat_from is None or not still:
        return NOTHING
    after = None if pace.spoken_at is None else pace.spoken_at + SPACING
    return Plan(Saying.REPEAT, _latest(talk.repeat_from + REPEAT_AFTER, after))


def _latest(*times: datetime | None) -> datetime | None:
    return max((each for each in times if each is not None), default=None)


def is_hushed(member: Member) -> bool:
    """Whether an alert is over without ever having been told, and is not to be: nothing of it is news later."""
    alert = member.alert
    over = not alert.is_open and alert.told is None
    return over and (not member.is_heard or alert.closed_because in QUIET_ENDS)


def said(incident: Incident, saying: Saying, *, is_queued: bool) -> Incident:
    """The incident after a message of it went out. `is_queued`: whether any endpoint is to hear it.

    A repeat that nobody is to hear is the last: there is nobody to call again.
    """
    talk = incident.talk
    nobody = saying is Saying.REPEAT and not is_queued
    talk = Talk(
        messages=talk.messages + 1,
        spoken_at=talk.spoken_at,
        urgent_at=talk.urgent_at,
        in_flight=is_queued and incident.is_open,
        repeat_from=None if nobody else talk.repeat_from,
        is_done=not incident.is_open,
    )
    return replace(incident, talk=talk)


def reached(incident: Incident, at: datetime) -> Incident:
    """The incident after a message of it has reached somebody."""
    return replace(incident, notified_at=at, talk=replace(incident.talk, in_flight=False, repeat_from=at))


def given_up(incident: Incident, at: datetime) -> Incident:
    """The incident after a message of it was given up: the next is a repeat, in its time. One that got through counts more."""
    if not incident.talk.in_flight:
        return incident
    return replace(incident, talk=replace(incident.talk, in_flight=False, repeat_from=at))
