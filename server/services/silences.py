"""Silences: made, ended by hand, ended because their time is up. What still fires then is told once."""

import secrets
from datetime import datetime, timedelta

from sqlalchemy import Connection

from server.domain import silences as domain
from server.domain.alerts import Told
from server.domain.events import Event, EventType
from server.domain.incidents import Incident, IncidentState
from server.domain.silences import Silence
from server.store import incidents as incident_store
from server.store import rules as rule_store
from server.store import runs as run_store
from server.store import silences as store
from server.store.touched import touch

from .errors import Conflict, Invalid, NotFound
from .recording import record

MOST_RUNNING = 1000


def start(
    connection: Connection,
    *,
    run_id: str | None,
    project: str | None,
    rule_id: str | None,
    hours: float,
    reason: str,
    by: str,
    now: datetime,
) -> Silence:
    """A new silence, from now on.

    Raises:
        Invalid: it names nothing, has no reason, or no end within 30 days; or too many run already.
        NotFound: there is no such run or rule.
    """
    if wrong := domain.problems(run_id, project, rule_id, hours, reason):
        said = "; ".join(f"{field}: {problem}" for field, problem in wrong.items())
        raise Invalid(said, "correct the named fields and send again")
    if run_id is not None and run_store.get(connection, run_id) is None:
        raise NotFound(f"there is no run {run_id[:64]}", "open the list of runs")
    if rule_id is not None and rule_store.read_rule(connection, rule_id) is None:
        raise NotFound(f"there is no rule {rule_id[:64]}", "read the list of rules")
    if len(store.running(connection)) >= MOST_RUNNING:
        raise Invalid(f"{MOST_RUNNING} silences are running already", "end those that are not needed any more")
    ends_at = now + timedelta(hours=hours)
    silence = Silence(f"s_{secrets.token_hex(8)}", run_id, project, rule_id, reason.strip(), by, now, ends_at)
    store.add_silence(connection, silence)
    _tell(connection, EventType.SILENCE_STARTED, silence, by, now)
    _touch(connection, silence)
    return silence


def end(connection: Connection, silence_id: str, by: str, now: datetime) -> Silence:
    """The silence, ended before its time.

    Raises:
        NotFound: there is no such silence.
        Conflict: it has ended already.
    """
    silence = store.read_silence(connection, silence_id)
    if silence is None:
        raise NotFound(f"there is no silence {silence_id[:64]}", "read the list of silences")
    if not store.end_silence(connection, silence_id, now, by):
        raise Conflict("this silence has ended already", "read the list of silences")
    _follow(connection, silence, by, now)
    return store.read_silence(connection, silence_id) or silence


def expire_due(connection: Connection, now: datetime) -> int:
    """End the silences whose time is up. How many."""
    ended = [each for each in store.over(connection, now) if store.end_silence(connection, each.silence_id, each.ends_at, "")]
    for silence in ended:
        _follow(connection, silence, "", now)
    return len(ended)


def _follow(connection: Connection, silence: Silence, by: str, now: datetime) -> None:
    """The silence is over: what it covered and fires still is news again, once, unless somebody has taken it on."""
    _tell(connection, EventType.SILENCE_ENDED, silence, by, now)
    for incident in sorted(incident_store.open_incidents(connection), key=lambda each: each.run_id):
        run = run_store.get(connection, incident.run_id)
        if run is not None and silence.covers_run(run.run_id, run.project):
            run_store.lock(connection, run.run_id)
            _make_news(connection, silence, incident, run.project, now)
    _touch(connection, silence)


def _make_news(connection: Connection, silence: Silence, seen: Incident, project: str, now: datetime) -> None:
    incident = incident_store.read_incident(connection, seen.run_id, seen.incident_id)
    if incident is None or not incident.is_open:
        return
    alerts = incident_store.unfinished(connection, incident.run_id, [incident.incident_id])
    if incident.state is IncidentState.TRIGGERED:
        again = [each.alert_id for each in alerts if each.is_open and each.told is Told.NAMED and silence.covers(each, project)]
        incident_store.set_told(connection, incident.run_id, again, None)
    incident_store.look_at(connection, incident, now)


def _tell(connection: Connection, what: EventType, silence: Silence, by: str, now: datetime) -> None:
    data = {
        "silence_id": silence.silence_id,
        "project": silence.project,
        "rule_id": silence.rule_id,
        "reason": silence.reason,
        "author": silence.author,
        "by": by,
        "ends_at": silence.ends_at.isoformat(),
        "text": f"Silence by {silence.author}: {silence.reason}",
    }
    record(connection, Event(what, now, silence.run_id, data=data))


def _touch(connection: Connection, silence: Silence) -> None:
    """The pages of the runs that it speaks of show it."""
    for incident in incident_store.open_incidents(connection):
        if silence.run_id in (None, incident.run_id):
            touch(connection, incident.run_id)
