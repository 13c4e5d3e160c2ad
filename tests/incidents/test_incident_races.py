"""Two server processes on one database, and a server that is killed in between: no message twice, none missing."""

import threading

import pytest
import sqlalchemy as sa
from incidents_kit import Scene, an_alert

from server.domain.events import Event, EventType
from server.services import incidents, transitions
from server.services.recording import record_once
from server.store import runs as run_store
from server.store.database import Database
from server.store.tables import deliveries
from trainer_agent.wire.vocabulary import Severity


@pytest.fixture
def two_servers(new_database_url, clock):
    """Two writers on one PostgreSQL, a run with an endpoint in it."""
    url = new_database_url("postgresql")
    first = Database.open(url)
    first.migrate()
    second = Database.open(url)
    first.writer.submit(lambda c: Scene(c, clock).endpoint())
    yield first, second
    first.close()
    second.close()


def queued(database):
    with database.reading() as connection:
        return connection.execute(sa.select(deliveries.c.delivery_id, deliveries.c.body).order_by(deliveries.c.event_id)).all()


def at_once(*acts):
    """Do all of them at the same moment; what each raised, if anything."""
    gate, errors = threading.Barrier(len(acts)), []

    def run(act):
        gate.wait()
        try:
            act()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return errors


def test_two_servers_that_look_at_the_same_moment_send_one_message(two_servers, clock, figure):
    first, second = two_servers
    rounds = 20
    for number in range(rounds):
        alert = an_alert(f"{number}", Severity.CRITICAL)
        first.writer.submit(lambda c, alert=alert: transitions.fire(c, alert, clock(), is_new=True))
        now = clock.advance(10)
        looks = [lambda s=s, now=now: s.writer.submit(lambda c: incidents.tell_due(c, now)) for s in (first, second)]
        assert at_once(*looks) == []
        first.writer.submit(lambda c, now=now: incidents.tell_due(c, now))  # where each had left it to the other
    bodies = [row.body for row in queued(first)]
    sent = sum(f'"alert_id":"a_{number}"' in body for number, body in enumerate(bodies))
    figure("R19", "messages of 20 alerts, two servers looking at once", len(bodies), at_most=rounds, at_least=rounds)
    assert sent == rounds


def test_a_message_that_is_queued_cannot_be_queued_again(two_servers, clock):
    first, second = two_servers
    event = Event(EventType.INCIDENT_FIRING, clock(), "run", 7, 1, {"severity": "critical", "text": "t"})
    key = ("run", "i_1", "1")
    assert first.writer.submit(lambda c: record_once(c, event, key))
    with pytest.raises(sa.exc.IntegrityError):
        second.writer.submit(lambda c: record_once(c, event, key))
    assert first.writer.submit(lambda c: record_once(c, event, ("run", "i_1", "2")))
    assert len(queued(first)) == 2


def test_a_server_leaves_a_run_alone_that_another_is_busy_with(two_servers, clock):
    first, second = two_servers
    first.writer.submit(lambda c: transitions.fire(c, an_alert("one", Severity.CRITICAL), clock(), is_new=True))
    now = clock.advance(30)
    held, told = threading.Event(), threading.Event()

    def take(connection):
        run_store.lock(connection, "run")  # as a batch does, until its unit ends
        held.set()
        told.wait(60)

    thread = threading.Thread(target=lambda: first.writer.submit(take))
    thread.start()
    assert held.wait(60)
    assert second.writer.submit(lambda c: incidents.tell_due(c, now)) == 0
    told.set()
    thread.join(60)
    assert second.writer.submit(lambda c: incidents.tell_due(c, now)) == 1


def test_a_server_that_dies_before_the_commit_leaves_nothing_and_the_next_sends_the_same_id(new_database_url, clock, monkeypatch):
    database = Database.open(new_database_url("sqlite"))
    database.migrate()
    database.writer.submit(lambda c: Scene(c, clock).endpoint())
    database.writer.submit(lambda c: transitions.fire(c, an_alert("one", Severity.CRITICAL), clock(), is_new=True))
    ids = []

    def dies(connection):
        incidents.tell_due(connection, clock())
        ids.extend(connection.execute(sa.select(deliveries.c.delivery_id)).scalars())
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        database.writer.submit(dies)
    assert queued(database) == []
    database.writer.submit(lambda c: incidents.tell_due(c, clock()))
    assert [row.delivery_id for row in queued(database)] == ids
    database.close()
