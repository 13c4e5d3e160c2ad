import json
import threading
import time

import httpx2
import pytest
from figures import patience
from served import JSON, Served, batch, begin, utc_now

from server.services import access
from server.settings import Settings


class Listener:
    """Reads the stream of a client in a thread of its own."""

    def __init__(self, client):
        self.events, self.ended = [], threading.Event()
        self._changed = threading.Condition()
        self._client = client
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        name = ""
        try:
            with self._client.stream("GET", "/api/live", timeout=30) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        name = line[7:]
                    elif line.startswith("data: "):
                        with self._changed:
                            self.events.append((time.monotonic(), name, json.loads(line[6:])))
                            self._changed.notify_all()
        except (httpx2.HTTPError, httpx2.StreamError, RuntimeError, OSError):
            pass  # the test closed the client
        finally:
            self.ended.set()

    def wait_for(self, look, seconds=60.0):
        """The first event for which `look` holds."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(look(name, data) for _, name, data in self.events), seconds), self.events
            return next((at, data) for at, name, data in self.events if look(name, data))


def test_a_listener_is_told_all_revisions_and_then_those_that_move(served):
    begin(served, "live")
    browser = served.browser()
    listener = Listener(browser)
    _, hello = listener.wait_for(lambda name, data: name == "hello")
    before = hello["revisions"]["live"]
    with served.client("agent", **JSON) as agent:
        agent.post("/api/agent/batches", content=batch("live", {"train/loss": [0.5]}, first_seq=5))
        sent = time.monotonic()
    at, changed = listener.wait_for(lambda name, data: name == "changed" and "live" in data["revisions"])
    assert changed["revisions"]["live"] == before + 1
    assert at - sent < patience(2)
    with served.client("operator") as person:
        assert person.get("/api/runs/live").json()["revision"] == before + 1
        person.post("/api/webhooks", json={"name": "n", "url": "http://127.0.0.1:1/"})
    listener.wait_for(lambda name, data: name == "changed" and data["webhooks"])
    browser.close()


def test_hints_are_merged_to_four_a_second(served):
    begin(served, "busy")
    with served.client("operator") as person:
        listener = Listener(person)
        listener.wait_for(lambda name, data: name == "hello")
        with served.client("agent", **JSON) as agent:
            began = time.monotonic()
            for seq in range(5, 65):
                agent.post("/api/agent/batches", content=batch("busy", {"train/loss": [0.5]}, first_seq=seq))
            seconds = time.monotonic() - began
        last = served_revision(served, "busy")
        listener.wait_for(lambda name, data: data["revisions"].get("busy") == last)
        hints = [data for _, name, data in listener.events if name == "changed" and "busy" in data["revisions"]]
    assert len(hints) <= 4 * (seconds + 1)


def served_revision(served, run_id):
    with served.client("operator") as person:
        return person.get(f"/api/runs/{run_id}").json()["revision"]


def test_a_stream_ends_when_the_session_does(served, monkeypatch):
    monkeypatch.setattr("server.api.live.RECHECK_SECONDS", 0.1)
    browser = served.browser()
    listener = Listener(browser)
    listener.wait_for(lambda name, data: name == "hello")
    assert not listener.ended.wait(0.5)
    secret = dict(browser.cookies)[f"lossguard_{served.port}"]
    served.context.database.writer.submit(lambda c: access.sign_out(c, secret))
    assert listener.ended.wait(30)
    browser.close()


def test_a_listener_that_went_away_is_forgotten(served):
    with served.client("operator") as person, person.stream("GET", "/api/live") as answer:
        lines = answer.iter_lines()  # kept: dropping it closes the stream
        next(lines)
        assert len(served.context.bus._subscriptions) >= 1
    deadline = time.monotonic() + 60
    while served.context.bus._subscriptions and time.monotonic() < deadline:
        served.context.bus.ring({"x": 1})
        time.sleep(0.05)
    assert not served.context.bus._subscriptions


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_server_ends_at_once_with_open_streams_and_long_polls(new_database_url, tmp_path, backend):
    served = Served(Settings(data_dir=tmp_path, database_url=new_database_url(backend), port=0))
    with served:
        begin(served, "ending")
        clients = [served.client("operator") for _ in range(5)]
        listeners = [Listener(client) for client in clients]
        for listener in listeners:
            listener.wait_for(lambda name, data: name == "hello")
        agent = served.client("agent")
        statuses = []

        def poll():
            params = {"incarnation": "life-1", "wait": 30}
            statuses.append(agent.get("/api/agent/runs/ending/commands", params=params).status_code)

        polling = threading.Thread(target=poll)
        polling.start()
        polling.join(0.3)
        began = time.monotonic()
    assert time.monotonic() - began < 25, "it waited for them"
    polling.join(30)
    assert statuses == [200]
    assert all(listener.ended.wait(30) for listener in listeners)
    for client in [*clients, agent]:
        client.close()


def test_a_session_falls_asleep_and_ends_for_good(served):
    from datetime import timedelta

    from server.domain.access import SESSION_IDLE, SESSION_LIFE, Role, Session

    now = utc_now()
    session = Session(Role.OPERATOR, "browser", now, now, now + SESSION_LIFE)
    assert session.is_open(now + SESSION_IDLE - timedelta(seconds=1))
    assert not session.is_open(now + SESSION_IDLE)
    busy = Session(Role.OPERATOR, "browser", now, now + SESSION_LIFE, now + SESSION_LIFE)
    assert not busy.is_open(now + SESSION_LIFE)
