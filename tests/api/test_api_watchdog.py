"""The ping to the watchdog outside: it comes while the server does its work, and stays away when its process merely lives."""

import sqlite3
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from conftest import settings
from pydantic import ValidationError
from served import JSON, Served, batch, begin

from server import worker
from server.outbound import watchdog
from server.outbound.addresses import Policy
from server.outbound.watchdog import Watchdog
from server.services import evaluation, liveness
from server.settings import Settings

sys.path.append(str(Path(__file__).parents[1] / "outbound"))

from receiver import Receiver, answer, hang

QUIET_SECONDS = 2.0
"""More than enough for several pings, had they not stopped."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watchdog, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "AGAIN_SECONDS", 0.1)


@contextmanager
def watched(new_database_url, tmp_path_factory, backend="sqlite", answers=None):
    with Receiver(answers or [answer(200)]) as receiver:
        url = f"{receiver.url}?secret=whatever"
        with Served(settings(new_database_url, tmp_path_factory, backend, watchdog_url=url)) as served:
            yield served, receiver


def comes(receiver: Receiver) -> bool:
    """Whether more pings come."""
    receiver.wait_for(len(receiver.received) + 3)
    return True


def stays_away(receiver: Receiver) -> bool:
    time.sleep(1.0)  # what was on its way has arrived
    before = len(receiver.received)
    time.sleep(QUIET_SECONDS)
    return len(receiver.received) == before


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_pings_come_while_the_server_does_its_work_with_and_without_batches(new_database_url, tmp_path_factory, backend):
    with watched(new_database_url, tmp_path_factory, backend) as (served, receiver):
        assert comes(receiver)
        begin(served, "run-1")
        assert comes(receiver)
    first = receiver.received[0]
    assert (first.line, first.body) == ("GET /hook?secret=whatever HTTP/1.1", b"")


def in_place_of(monkeypatch, duty, act):
    """Has the worker do `act` under the name of one of its duties."""
    monkeypatch.setattr(act, "__name__", duty.__name__)
    monkeypatch.setattr(act, "__module__", duty.__module__)
    monkeypatch.setattr(worker, "DUTIES", tuple(act if each is duty else each for each in worker.DUTIES))


def test_a_blocked_duty_keeps_the_ping_away(new_database_url, tmp_path_factory, monkeypatch):
    go_on, look = threading.Event(), liveness.look_due

    def blocked(connection, now):
        go_on.wait(60)
        return look(connection, now)

    with watched(new_database_url, tmp_path_factory) as (_, receiver):
        assert comes(receiver)
        in_place_of(monkeypatch, look, blocked)
        assert stays_away(receiver)
        go_on.set()
        assert comes(receiver)


@pytest.mark.parametrize("error", [RuntimeError, worker.PutOff])
def test_a_duty_that_is_not_done_keeps_the_ping_away(new_database_url, tmp_path_factory, monkeypatch, error, caplog):
    ill, look, times = threading.Event(), liveness.look_due, []

    def ailing(connection, now):
        if ill.is_set():
            times.append(now)
            raise error(f"at {now}")
        return look(connection, now)

    monkeypatch.setattr(worker, "SETTLED_SECONDS", 0.5)
    in_place_of(monkeypatch, look, ailing)
    with watched(new_database_url, tmp_path_factory) as (_, receiver):
        assert comes(receiver)
        ill.set()
        assert stays_away(receiver)
        assert len(times) > 1
        ill.clear()
        assert comes(receiver)
        time.sleep(1.0)
    by_worker = [record.getMessage() for record in caplog.records if record.name == "server.worker"]
    said = [each for each in by_worker if "liveness" in each]
    assert said == ([] if error is worker.PutOff else ["liveness.look_due failed", "liveness.look_due works again"])


def test_batches_that_nobody_can_judge_keep_the_ping_away_until_one_is(new_database_url, tmp_path_factory, monkeypatch):
    with watched(new_database_url, tmp_path_factory) as (served, receiver):
        begin(served, "run-1")
        assert comes(receiver)
        judge = evaluation.judge_points
        monkeypatch.setattr(evaluation, "judge_points", lambda *_, **__: 1 / 0)
        more = batch("run-1", {"train/loss": [2.0, 1.0]}, first_seq=5)
        with served.client("agent", **JSON) as agent:
            assert agent.post("/api/agent/batches", content=more).status_code == 500
            assert stays_away(receiver)
            monkeypatch.setattr(evaluation, "judge_points", judge)
            assert agent.post("/api/agent/batches", content=more).status_code == 200
        assert comes(receiver)


def test_a_batch_that_is_wrong_or_breaks_off_is_no_fault_of_the_server(new_database_url, tmp_path_factory):
    with watched(new_database_url, tmp_path_factory) as (served, receiver):
        with served.client("agent", **JSON) as agent:
            assert agent.post("/api/agent/batches", content=b"no batch").status_code == 422
            text = {"Content-Type": "text/plain"}
            assert agent.post("/api/agent/batches", content=b"no batch", headers=text).status_code == 415
        assert comes(receiver)


def test_a_writer_that_is_stuck_keeps_the_ping_away(new_database_url, tmp_path_factory):
    go_on = threading.Event()
    with watched(new_database_url, tmp_path_factory) as (served, receiver):
        assert comes(receiver)
        stuck = threading.Thread(target=served.context.database.writer.submit, args=(lambda _: go_on.wait(60),))
        stuck.start()
        assert stays_away(receiver)
        with served.client() as anybody:
            assert anybody.get("/api/health").status_code == 200, "the process lives"
        go_on.set()
        stuck.join()
        assert comes(receiver)


def test_a_database_that_takes_no_write_keeps_the_ping_away(new_database_url, tmp_path_factory):
    with watched(new_database_url, tmp_path_factory) as (served, receiver):
        assert comes(receiver)
        with closing(sqlite3.connect(served.settings.database.removeprefix("sqlite:///"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert stays_away(receiver)
        assert comes(receiver)


def test_a_watchdog_that_hangs_keeps_nothing_from_being_done(new_database_url, tmp_path_factory):
    with watched(new_database_url, tmp_path_factory, answers=[hang]) as (served, receiver):
        receiver.wait_for(3)
        begin(served, "run-1")


class Pinged:
    """A watchdog without a server: pings are counted, and answered as told."""

    def __init__(self, monkeypatch, *errors):
        self.count, errors = 0, list(errors)

        class Attempt:
            def __init__(self, error):
                self.error = error

        def attempt(*_):
            self.count += 1
            return Attempt(errors.pop(0) if errors else None)

        class Now(threading.Thread):
            def start(self):
                self.run()

        monkeypatch.setattr(watchdog.exchange, "attempt", attempt)
        monkeypatch.setattr(watchdog.threading, "Thread", Now)
        monkeypatch.setattr(watchdog, "EVERY_SECONDS", 60.0)
        monkeypatch.setattr(watchdog, "AGAIN_SECONDS", 5.0)


def test_what_is_missing_is_named_and_asked_for_sooner_than_the_next_ping(monkeypatch, clock):
    pinged, dog = Pinged(monkeypatch), Watchdog("https://watch.example/secret", ("a", "b"), Policy)
    dog.worked("a")
    assert dog.is_due(0.0)
    assert dog.ping(0.0, clock()) == ["b"]
    assert not dog.is_due(4.9)
    dog.worked("b")
    assert dog.is_due(5.0)
    assert dog.ping(5.0, clock()) == []
    assert (pinged.count, dog.is_due(64.9), dog.is_due(65.0)) == (1, False, True)
    assert dog.ping(65.0, clock()) == ["a", "b"], "what was done before the last ping counts for that one"


def test_what_failed_last_is_missing_though_it_was_done_before_and_what_works_again_is_not(monkeypatch, clock):
    Pinged(monkeypatch)
    dog = Watchdog("https://watch.example/secret", ("a",), Policy)
    dog.worked("a")
    dog.failed("batches")
    dog.failed("a")
    assert dog.ping(0.0, clock()) == ["a", "batches"]
    dog.worked("a")
    dog.worked("batches")
    assert dog.ping(5.0, clock()) == []


def test_it_is_said_once_that_there_are_no_pings_and_never_where_they_would_go(monkeypatch, clock, caplog):
    Pinged(monkeypatch, "answered 404", "answered 404")
    dog = Watchdog("https://watch.example/secret", ("a",), Policy)
    for second in range(3):
        dog.ping(second, clock())
    for second in range(3, 6):
        dog.worked("a")
        dog.ping(second, clock())
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "no ping to the watchdog: not done, or failing: a",
        "the watchdog was not reached: answered 404",
        "the watchdog is pinged again",
    ]


def test_without_an_address_there_is_nothing_to_do():
    assert not Watchdog(None, worker.EXPECTED, Policy).is_due(1e9)
    assert Settings(watchdog_url="").watchdog_url is None


def test_an_address_that_is_none_is_refused_at_the_start():
    with pytest.raises(ValidationError, match="LOSSGUARD_WATCHDOG_URL must begin with"):
        Settings(watchdog_url="watch.example/ping")


def test_each_duty_has_a_name_of_its_own():
    assert len(set(worker.EXPECTED)) == len(worker.EXPECTED)
