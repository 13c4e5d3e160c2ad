"""Incidents: alerts join and leave them, people take them on, and messages go out when they are due.

`join` and `leave` only mark an incident as one to look at; `look` decides what is said now and when to look again. It is called
at the end of each batch, in the transaction that stored it, and by the worker for whatever time brings. So a message is told
of everything that happened with it: the countdown that began, all alerts of the step.

The row of the run is locked meanwhile, so of several server processes one looks; an incident is saved by compare-and-set, and
a message's delivery ids follow from the incident and the number of the message: none is sent twice.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from server.domain import grouping, incidents
from server.domain.alerts import Alert, Told
from server.domain.events import Event, EventType
from server.domain.grouping import Member, Pace, Plan, Saying
from server.domain.incidents import Incident, IncidentInput, IncidentState
from server.domain.inhibition import inhibited
from server.domain.silences import Silence
from server.store import incidents as store
from server.store import runs as run_store
from server.store import silences as silence_store
from server.store.runs import Run
from server.store.touched import touch
from trainer_agent.wire.vocabulary import RunState

from .errors import Conflict, Invalid, NotFound
from .incident_messages import message
from .recording import record, record_once

_ALIVE = frozenset({RunState.CREATED, RunState.RUNNING, RunState.PAUSED})
"""A lost run is none of them: its alerts are not repeated until it is heard again."""


def join(connection: Connection, alert: Alert, now: datetime) -> None:
    """An alert fires that concerns people: it joins the open incident of its run, or opens one. It must be stored already."""
    if not alert.concerns_people:
        return
    incident = store.open_incident(connection, alert.run_id)
    if incident is None:
        incident = _opened(connection, alert, now)
        store.add_incident(connection, incident)
    else:
        graver = incidents.is_graver(alert.severity, incident.severity)
        worse = replace(incident, severity=alert.severity, title=alert.title) if graver else incident
        first = min((incident.segment, incident.first_step), (alert.segment, alert.onset_step))
        _save(connection, replace(worse, segment=first[0], first_step=first[1], notify_at=now))
    store.assign(connection, alert, incident.incident_id)


def _opened(connection: Connection, alert: Alert, now: datetime) -> Incident:
    """The incident that begins with this alert. Its id follows from the alert's: made again, it is the same."""
    before = store.newest(connection, alert.run_id)
    last = incidents.Talk() if before is None else before.talk
    state = incidents.step(None, IncidentInput.ALERT)
    assert state is not None
    digest = hashlib.sha256(json.dumps([alert.run_id, alert.alert_id]).encode()).hexdigest()[:24]
    return Incident(
        run_id=alert.run_id,
        incident_id=f"i_{digest}",
        number=1 if before is None else before.number + 1,
        state=state,
        severity=alert.severity,
        title=alert.title,
        first_step=alert.onset_step,
        segment=alert.segment,
        opened_at=now,
        notify_at=now,
        talk=incidents.Talk(spoken_at=last.spoken_at, urgent_at=last.urgent_at),
    )


def leave(connection: Connection, alert: Alert, now: datetime) -> None:
    """An alert is over, and stored so: the incident is resolved if it was the last. `alert` may be older than its incident."""
    incident = store.open_incident(connection, alert.run_id) if alert.concerns_people else None
    if incident is None:
        return
    rest = store.unfinished(connection, alert.run_id, [incident.incident_id])
    room = _Room(connection, alert.run_id, now)
    hushed = [each.alert.alert_id for each in room.members(rest) if grouping.is_hushed(each)]
    store.set_told(connection, alert.run_id, hushed, Told.HUSHED)
    if any(each.is_open for each in rest):
        _save(connection, replace(incident, notify_at=now))
        return
    state = incidents.step(incident.state, IncidentInput.OVER) or incident.state
    over = replace(incident, state=state, resolved_at=now, closed_because=alert.closed_because, notify_at=now)
    _save(connection, over)


def acknowledge(connection: Connection, run_id: str, incident_id: str, now: datetime, *, by: str, note: str) -> Incident:
    """A person takes the incident on: it is not repeated any more. A second one's word changes nothing but the note.

    Raises:
        NotFound: there is no such incident.
        Conflict: it is resolved.
        Invalid: the note is too long.
    """
    if len(note) > incidents.MAX_NOTE:
        raise Invalid(f"note is longer than {incidents.MAX_NOTE} characters", "write it shorter")
    run_store.lock(connection, run_id)
    incident = store.read_incident(connection, run_id, incident_id)
    if incident is None:
        raise NotFound(f"this run has no incident {incident_id[:64]}", "look at the run as it is now")
    if not incident.is_open:
        raise Conflict(f"incident {incident.number} is resolved already", "look at it as it is now")
    if incident.state is IncidentState.ACKNOWLEDGED and note in ("", incident.note):
        return incident
    taken = _taken_on(incident, by, note, now)
    _save(connection, taken)
    who = f"Incident {incident.number} acknowledged by {by}" + (f": {note}" if note else "")
    data = {"incident_id": incident_id, "number": incident.number, "by": by, "note": note, "title": incident.title, "text": who}
    record(connection, Event(EventType.INCIDENT_ACKNOWLEDGED, now, run_id, incident.first_step, incident.segment, data))
    return store.read_incident(connection, run_id, incident_id) or taken


def _taken_on(incident: Incident, by: str, note: str, now: datetime) -> Incident:
    state = incidents.step(incident.state, IncidentInput.ACKNOWLEDGE) or incident.state
    if incident.state is IncidentState.ACKNOWLEDGED:
        return replace(incident, note=note)
    return replace(incident, state=state, acknowledged_at=now, acknowledged_by=by, note=note, notify_at=now)


def tell_due(connection: Connection, now: datetime) -> int:
    """Look at every incident of which something may be due. How many messages went out."""
    return sum(_look_alone(connection, run_id, now) for run_id in store.runs_to_look_at(connection, now))


def _look_alone(connection: Connection, run_id: str, now: datetime) -> int:
    """Not when another server process is busy with the run: it looks itself at the end of what it does."""
    if run_store.lock(connection, run_id, wait=False) is None:
        return 0
    return look(connection, run_id, now)


def look(connection: Connection, run_id: str, now: datetime, *, is_late: bool = False) -> int:
    """Say what is due of the run's incidents, and write down when to look again. How many messages went out.

    `is_late`: a batch out of a backlog was just taken, and more follows. The run is locked by the caller.
    """
    waiting = store.waiting(connection, run_id)
    if not waiting or not (is_late or any(each.notify_at is not None and each.notify_at <= now for each in waiting)):
        return 0
    room = _Room(connection, run_id, now)
    return room.speak(waiting, is_late=is_late)


def delivered(connection: Connection, run_id: str, incident_id: str, at: datetime, *, has_reached: bool) -> None:
    """A message about an incident has reached somebody, or was given up: the next repeat counts from here."""
    run_store.lock(connection, run_id)
    incident = store.read_incident(connection, run_id, incident_id)
    if incident is None or not incident.is_open:
        return
    after = grouping.reached(incident, at) if has_reached else grouping.given_up(incident, at)
    if after != incident:
        _save(connection, replace(after, notify_at=at))


def _save(connection: Connection, incident: Incident) -> None:
    if not store.save_incident(connection, incident):
        raise Conflict("another server process has changed this incident at the same moment", "send it again")
    touch(connection, incident.run_id)


class _Room:
    """One run with what decides on its messages: read once."""

    def __init__(self, connection: Connection, run_id: str, now: datetime) -> None:
        self.connection, self.run_id, self.now = connection, run_id, now
        run: Run | None = run_store.get(connection, run_id)
        self.project = "" if run is None else run.project
        self.is_alive = run is not None and run.state in _ALIVE
        self._silences: tuple[Silence, ...] = tuple(
            each for each in silence_store.running(connection) if each.is_active(now) and each.covers_run(run_id, self.project)
        )

    def members(self, alerts: Sequence[Alert]) -> tuple[Member, ...]:
        """The alerts with what keeps each from being told now."""
        return tuple(
            Member(each, any(silence.covers(each, self.project) for silence in self._silences), inhibited(each, alerts))
            for each in alerts
        )

    def speak(self, waiting: Sequence[Incident], *, is_late: bool) -> int:
        """Send what is due, the most pressing first, until nothing is; then write down when to look again."""
        newest = store.newest(self.connection, self.run_id) or waiting[-1]
        pace = Pace(newest.talk.spoken_at, newest.talk.urgent_at)
        members = {each.incident_id: self._members_of(each) for each in waiting}
        noted = [grouping.noted(each, members[each.incident_id], self.now, is_late=is_late) for each in waiting]
        sent = 0
        while True:
            plans = [(each, grouping.plan(each, members[each.incident_id], pace, is_alive=self.is_alive)) for each in noted]
            due = sorted((each for each in plans if each[1].is_due(self.now)), key=_pressing)
            if not due:
                break
            incident, plan = due[0]
            also = _together(incident, plan, plans)
            noted = self._say(noted, members, incident, plan, also)
            pace = Pace(pace.spoken_at, self.now) if plan.is_urgent else Pace(self.now, pace.urgent_at)
            sent += 1
        self._write(waiting, plans, pace, newest)
        return sent

    def _members_of(self, incident: Incident) -> tuple[Member, ...]:
        """The alerts that decide on the next message: all of a resolved one, those not done with of an open one."""
        ids = [incident.incident_id]
        read = store.unfinished if incident.is_open else store.alerts_of
        return self.members(read(self.connection, self.run_id, ids))

    def _say(
        self,
        noted: Sequence[Incident],
        members: dict[str, tuple[Member, ...]],
        incident: Incident,
        plan: Plan,
        also: Sequence[Incident],
    ) -> list[Incident]:
        """Send one message; the incidents after it, and their members in `members`."""
        assert plan.saying is not None
        about = (incident, *also)
        heard = [each for one in about for each in members[one.incident_id] if each.is_heard]
        event, named = message(self.connection, incident, plan.saying, heard, self.now, also=also)
        key = (self.run_id, incident.incident_id, str(incident.talk.messages + 1))
        is_queued = record_once(self.connection, event, key)
        store.set_told(self.connection, self.run_id, named, Told.NAMED)
        for one in about:
            members[one.incident_id] = tuple(_named(each, named) for each in members[one.incident_id])
        ids = {one.incident_id for one in about}
        saying = plan.saying
        return [grouping.said(each, saying, is_queued=is_queued) if each.incident_id in ids else each for each in noted]

    def _write(self, before: Sequence[Incident], plans: Sequence[tuple[Incident, Plan]], pace: Pace, newest: Incident) -> None:
        """Keep what has changed. The newest incident of the run carries when it was last spoken of."""
        known = {each.incident_id: each for each in (*before, newest)}
        after = {incident.incident_id: replace(incident, notify_at=plan.at) for incident, plan in plans}
        last = after.get(newest.incident_id, newest)
        talk = replace(last.talk, spoken_at=pace.spoken_at, urgent_at=pace.urgent_at)
        after[newest.incident_id] = replace(last, talk=talk)
        for incident_id, incident in after.items():
            if incident != known[incident_id]:
                _save(self.connection, incident)


def _pressing(each: tuple[Incident, Plan]) -> tuple[bool, int, int]:
    incident, plan = each
    return not plan.is_urgent, list(Saying).index(plan.saying or Saying.REPEAT), incident.number


def _together(incident: Incident, plan: Plan, plans: Sequence[tuple[Incident, Plan]]) -> list[Incident]:
    """The other incidents whose end is told with that of `incident`: one message, however many were over meanwhile."""
    if plan.saying is not Saying.RESOLVED:
        return []
    return [each for each, other in plans if other.saying is Saying.RESOLVED and each.incident_id != incident.incident_id]


def _named(member: Member, named: Sequence[str]) -> Member:
    return replace(member, alert=replace(member.alert, told=Told.NAMED)) if member.alert.alert_id in named else member
