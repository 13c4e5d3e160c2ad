"""Holds: put on a run by a person, lifted by one, or over when their time is."""

from datetime import datetime, timedelta

from sqlalchemy import Connection

from server.domain import holds as domain
from server.domain.commands import SERVER, Hand
from server.domain.events import Event, EventType
from server.domain.holds import Hold
from server.domain.runs import ENDED
from server.store import runs as run_store
from server.store.runs import Run

from . import countdowns
from .errors import Conflict, Invalid, NotFound
from .recording import record


def put(connection: Connection, run_id: str, by: Hand, now: datetime, *, hours: float, reason: str) -> Hold:
    """The run's hold; one that it had before gives way. A countdown that is running is withdrawn.

    Raises:
        NotFound: there is no such run.
        Conflict: the run has ended.
        Invalid: the time or the reason makes no sense.
    """
    if not 0 < hours <= domain.MAX_HOURS:
        raise Invalid(f"hours is {hours:g}", f"give a number above 0 and up to {domain.MAX_HOURS:g}")
    if not reason.strip() or len(reason) > domain.MAX_REASON:
        raise Invalid("the reason is missing or too long", "say in a few words why nothing is to be done by itself")
    run = _locked(connection, run_id)
    if run.state in ENDED:
        raise Conflict(f"the run is {run.state}: nothing is done to it any more", "nothing needs to be done")
    hold = Hold(by.name, now, now + timedelta(hours=hours), reason.strip())
    look_at = min(hold.until, run.look_at) if run.look_at is not None else hold.until
    run_store.update(connection, run_id, {"hold": domain.to_parsed(hold), "look_at": look_at})
    countdowns.withdraw(connection, run_id, f"{by.name} holds automatic actions: {hold.reason}", now)
    record(connection, _told(EventType.HOLD_STARTED, run, hold, by, now))
    return hold


def lift(connection: Connection, run_id: str, by: Hand, now: datetime) -> None:
    """End the run's hold before its time. What fires still is acted on from now.

    Raises:
        NotFound: there is no such run.
        Conflict: nothing holds it.
    """
    run = _locked(connection, run_id)
    hold = domain.in_force(run.hold, now)
    if hold is None:
        raise Conflict("nothing holds the automatic actions of this run", "look at the run as it is now")
    _end(connection, run.run_id, _told(EventType.HOLD_LIFTED, run, hold, by, now))


def end_over(connection: Connection, run: Run, now: datetime) -> None:
    """End the hold of a locked run, where its time is over."""
    hold = domain.from_parsed(run.hold)
    if hold is not None and not hold.lasts(now):
        _end(connection, run.run_id, _told(EventType.HOLD_OVER, run, hold, SERVER, now))


def _end(connection: Connection, run_id: str, event: Event) -> None:
    run_store.update(connection, run_id, {"hold": None})
    record(connection, event)
    countdowns.take_up(connection, run_id, event.at)


def _locked(connection: Connection, run_id: str) -> Run:
    run = run_store.lock(connection, run_id)
    if run is None:
        raise NotFound("there is no such run", "open the list of runs")
    return run


_SAID = {
    EventType.HOLD_STARTED: "{by} holds automatic actions until {until:%Y-%m-%d %H:%M} UTC: {reason}",
    EventType.HOLD_LIFTED: "{by} lifted the hold: what rules do is done again",
    EventType.HOLD_OVER: "The hold is over: what rules do is done again",
}


def _told(what: EventType, run: Run, hold: Hold, by: Hand, now: datetime) -> Event:
    text = _SAID[what].format(by=by.name, until=hold.until, reason=hold.reason)
    data = {"by": by.name, "place": by.place, "until": hold.until.isoformat(), "reason": hold.reason, "text": text}
    return Event(what, now, run.run_id, run.step, run.segment, data)
