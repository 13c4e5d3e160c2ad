import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from figures import patience
from receiver import Receiver, answer, hang
from standardwebhooks.webhooks import Webhook

from server.domain.events import Event, EventType
from server.domain.webhooks import LEASE
from server.outbound.addresses import Policy
from server.outbound.signing import new_secret
from server.outbound.wakeups import Bus
from server.outbound.watchdog import Watchdog
from server.services import webhooks as service
from server.services.recording import record
from server.settings import Settings
from server.store import webhooks as store
from server.worker import DUTIES, Worker
from trainer_agent.wire.vocabulary import Severity

INSIDE = Policy(everything_inside=True)


def utc_now():
    return datetime.now(UTC)


@pytest.fixture
def work(database, tmp_path):
    """Starts workers, and ends them with the test."""
    started = []

    def begin(policy=INSIDE, scale=0.002, now=utc_now):
        settings = Settings(data_dir=tmp_path, webhook_retry_scale=scale)
        worker = Worker(database.writer, Bus(), settings, lambda: policy, now, watchdog=Watchdog(None, (), lambda: policy))
        worker.start()
        started.append(worker)
        return worker

    yield begin
    for worker in started:
        worker.stop()


def add(database, url, severity=Severity.INFO, name="hook"):
    secret = new_secret()
    return database.writer.submit(
        lambda c: service.create(
            c, name=name, url=url, secret=secret, minimum_severity=severity, project=None, by="me", now=utc_now()
        )
    )


def tell(database, type_=EventType.RUN_FAILED, run_id="run-1", at=None):
    event = Event(type_, at or utc_now(), run_id, 7, 1, {"text": "it failed"})
    return database.writer.submit(lambda c: record(c, event))


def deliveries(database, webhook_id):
    with database.reading() as connection:
        return store.deliveries_of(connection, webhook_id, 100)


def until(look, seconds=60.0):
    """What `look` gives, once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about in time")


def ended(database, endpoint, state):
    return until(lambda: [each for each in deliveries(database, endpoint.webhook_id) if each.status.state == state])


def test_a_receiver_that_answers_500_twice_gets_the_same_id_three_times(database, work):
    with Receiver([answer(500), answer(500), answer(200)]) as receiver:
        endpoint = add(database, receiver.url)
        tell(database)
        work()
        requests = receiver.wait_for(3)
        (delivery,) = ended(database, endpoint, "succeeded")
    assert {request.headers["webhook-id"] for request in requests} == {delivery.delivery_id}
    assert len({request.body for request in requests}) == 1
    for request in requests:
        told = Webhook(endpoint.secret).verify(request.body, request.headers)
        assert (told["type"], told["data"]["text"], told["data"]["step"]) == ("run.failed", "it failed", 7)
    assert [attempt.status for attempt in delivery.attempts] == [500, 500, 200]
    assert [attempt.error for attempt in delivery.attempts] == ["answered 500", "answered 500", None]
    assert delivery.status.next_attempt_at is None


def test_loopback_is_not_called_without_the_setting_and_the_log_says_why(database, work):
    with Receiver([answer(200)]) as receiver:
        endpoint = add(database, receiver.url)
        tell(database)
        work(policy=Policy())
        (delivery,) = until(lambda: [d for d in deliveries(database, endpoint.webhook_id) if d.attempts])
        assert receiver.received == []
    assert "loopback" in delivery.attempts[0].error
    assert delivery.status.state == "waiting"


def test_a_stuck_endpoint_delays_nobody_and_has_two_attempts_out_at_most(database, work):
    with Receiver([hang]) as stuck, Receiver([answer(200)]) as good:
        add(database, stuck.url, name="stuck")
        endpoint = add(database, good.url, name="good")
        for _ in range(10):
            tell(database)
        began = time.monotonic()
        worker = work()
        good.wait_for(10)
        assert time.monotonic() - began < patience(10)
        until(lambda: len(ended(database, endpoint, "succeeded")) == 10)
        assert len(stuck.received) == 2
        worker.stop()


def test_messages_of_one_endpoint_follow_each_other_without_a_round_of_the_worker(database, work, monkeypatch):
    monkeypatch.setattr("server.worker.TICK_SECONDS", 600.0)
    monkeypatch.setattr(Worker, "wake", lambda _: None)
    with Receiver([answer(200)]) as receiver:
        endpoint = add(database, receiver.url)
        for _ in range(10):
            tell(database)
        work()._woken.set()
        receiver.wait_for(10)
        until(lambda: len(ended(database, endpoint, "succeeded")) == 10)
    sent = [request.headers["webhook-id"] for request in receiver.received]
    assert len(set(sent)) == 10, "each once"


def test_gone_switches_the_endpoint_off_and_the_rest_is_given_up(database, work):
    with Receiver([answer(410)]) as receiver:
        endpoint = add(database, receiver.url)
        for _ in range(5):
            tell(database)
        work()
        assert len(until(lambda: ended(database, endpoint, "failed"))) >= 1
        until(lambda: all(each.status.state == "failed" for each in deliveries(database, endpoint.webhook_id)))
        assert len(receiver.received) <= 2
    with database.reading() as connection:
        after = store.endpoint(connection, endpoint.webhook_id)
    assert (after.enabled, after.disabled_because) == (False, "the receiver answered 410: it is gone")


def test_an_attempt_whose_end_was_never_written_down_is_made_again_under_the_same_id(database, work, clock):
    with Receiver([answer(200)]) as receiver:
        endpoint = add(database, receiver.url)
        tell(database, at=clock())
        # The process took the delivery, sent it, and died before it could say so.
        (taken,) = database.writer.submit(lambda c: service.take_due(c, clock(), {}, 2))
        assert database.writer.submit(lambda c: service.take_due(c, clock(), {}, 2)) == []
        clock.advance(LEASE.total_seconds() + 1)
        work(now=clock)
        (request,) = receiver.wait_for(1)
        ended(database, endpoint, "succeeded")
    assert request.headers["webhook-id"] == taken.delivery.delivery_id


def test_an_end_of_the_process_leaves_the_waits_as_they_were(database, clock):
    add(database, "https://hook.example/")
    tell(database, at=clock())
    (taken,) = database.writer.submit(lambda c: service.take_due(c, clock(), {}, 2))
    from server.domain.webhooks import Attempt

    attempt = Attempt(clock(), 500, "answered 500", 0.1)
    database.writer.submit(lambda c: service.finish_attempt(c, taken.delivery.delivery_id, attempt, clock(), jitter=0, scale=1))
    clock.advance(4.9)
    assert database.writer.submit(lambda c: service.take_due(c, clock(), {}, 2)) == []
    clock.advance(0.2)
    (again,) = database.writer.submit(lambda c: service.take_due(c, clock(), {}, 2))
    assert again.delivery.delivery_id == taken.delivery.delivery_id
    assert again.delivery.status.attempt_count == 1


def test_the_event_and_its_deliveries_are_stored_together_or_not_at_all(database, clock):
    endpoint = add(database, "https://hook.example/")

    def broken(connection):
        record(connection, Event(EventType.RUN_FAILED, clock(), "run-1"))
        raise RuntimeError("after the event")

    with pytest.raises(RuntimeError):
        database.writer.submit(broken)
    assert deliveries(database, endpoint.webhook_id) == []


def test_a_removed_endpoint_takes_its_deliveries_along(database, clock):
    endpoint = add(database, "https://hook.example/")
    tell(database)
    database.writer.submit(lambda c: service.remove(c, endpoint.webhook_id, "me", utc_now()))
    assert deliveries(database, endpoint.webhook_id) == []
    assert database.writer.submit(lambda c: service.take_due(c, utc_now() + timedelta(days=9), {}, 2)) == []


def test_a_duty_that_fails_stops_neither_the_others_nor_the_deliveries(database, work, monkeypatch, caplog):
    done = threading.Event()

    def broken(connection, now):
        raise RuntimeError("this duty is broken")

    def sound(connection, now):
        done.set()
        return 0

    monkeypatch.setattr("server.worker.DUTIES", (broken, sound))
    with Receiver([answer(200)]) as receiver:
        add(database, receiver.url)
        tell(database)
        work()
        receiver.wait_for(1)
    assert done.wait(30)
    assert "this duty is broken" in caplog.text


def test_the_duties_are_those_that_time_brings():
    names = [duty.__name__ for duty in DUTIES]
    assert names == ["mark_overdue", "look_due", "expire_due", "run_due", "expire_due", "tell_due"]
    assert DUTIES[-1].__module__ == "server.services.incidents"  # last: what the others made fire is told in the same round


def test_a_worker_ends_at_once_while_an_attempt_hangs(database, work):
    with Receiver([hang]) as receiver:
        add(database, receiver.url)
        tell(database)
        worker = work()
        receiver.wait_for(1)
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began < patience(2)
