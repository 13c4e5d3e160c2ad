"""Makes the message about an incident out of what is stored."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from server.domain import wording
from server.domain.alerts import Alert, Told
from server.domain.events import Event, EventType
from server.domain.grouping import Member, Saying
from server.domain.incidents import Incident, gravest_first
from server.domain.wording.messages import Said, data_of

from .alert_words import Teller

MOST_ALERTS = 50
"""Named in one message; all are counted. What of these does not fit into the body is left out there."""

_TYPES = {
    Saying.FIRING: EventType.INCIDENT_FIRING,
    Saying.REPEAT: EventType.INCIDENT_FIRING,
    Saying.RESOLVED: EventType.INCIDENT_RESOLVED,
}


def message(
    connection: Connection,
    incident: Incident,
    saying: Saying,
    heard: Sequence[Member],
    now: datetime,
    *,
    also: Sequence[Incident] = (),
) -> tuple[Event, list[str]]:
    """The event that tells of an incident (of `also` too, where several are over), and the ids of the alerts that are new in it.

    `heard` are the alerts of which a message may speak; those that are over and were told are only named when all is over.
    """
    news = [each.alert for each in heard if each.is_news]
    known = [each.alert for each in heard if each.alert.told is Told.NAMED and (each.alert.is_open or saying is Saying.RESOLVED)]
    alerts = gravest_first([*news, *known]) if saying is Saying.RESOLVED else [*gravest_first(news), *gravest_first(known)]
    worst = alerts[0]
    teller = Teller(connection, incident.run_id, now)
    said = [Said(each, _both(each), is_new=each.told is None) for each in alerts[:MOST_ALERTS]]
    others = [each.number for each in also]
    data = data_of(incident, saying, said, teller.done(worst), teller.following(worst), count=len(alerts), others=others)
    step = worst.resolved_step if saying is Saying.RESOLVED else worst.firing_step
    event = Event(_TYPES[saying], now, incident.run_id, step, worst.segment, data)
    return event, [each.alert_id for each in news]


def _both(alert: Alert) -> tuple[str, str]:
    texts = wording.texts(alert)
    return texts["en"], texts["zh"]
