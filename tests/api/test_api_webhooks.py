import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from served import JSON, begin
from standardwebhooks.webhooks import Webhook

from server.outbound.addresses import Policy

sys.path.append(str(Path(__file__).parents[1] / "outbound"))
from receiver import Receiver, answer


def make(person, url, **more):
    answer_ = person.post("/api/webhooks", json={"name": "hook", "url": url, **more})
    assert answer_.status_code == 201, answer_.text
    return answer_.json()


def deliveries(person, hook):
    return person.get(f"/api/webhooks/{hook['webhook_id']}/deliveries").json()["deliveries"]


def until(look, seconds=15.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about in time")


def test_a_secret_is_shown_once_and_never_again(served):
    with served.client("operator") as person:
        hook = make(person, "http://127.0.0.1:1/hook")
        assert hook["secret"].startswith("whsec_")
        assert hook["secret_hint"] == hook["secret"][-4:]
        path = f"/api/webhooks/{hook['webhook_id']}"
        texts = [person.get("/api/webhooks").text, person.put(path, json={"name": "b"}).text, person.post(f"{path}/test").text]
        assert not any(hook["secret"] in text for text in texts)
        assert person.delete(path).status_code == 204
        assert person.get(f"{path}/deliveries").status_code == 404


def test_a_test_message_arrives_signed_and_is_in_the_log(served):
    with Receiver([answer(200, b"a secret of the receiver")]) as receiver, served.client("operator") as person:
        hook = make(person, receiver.url)
        queued = person.post(f"/api/webhooks/{hook['webhook_id']}/test")
        assert (queued.status_code, queued.json()["state"]) == (202, "waiting")
        (request,) = receiver.wait_for(1)
        told = Webhook(hook["secret"]).verify(request.body, request.headers)
        assert (told["type"], told["data"]["link"]) == ("webhook.test", None)
        assert "LOSSGUARD_PUBLIC_URL" in told["data"]["link_note"]
        (delivery,) = until(lambda: [each for each in deliveries(person, hook) if each["state"] == "succeeded"])
        assert delivery["delivery_id"] == request.headers["webhook-id"]
        assert [(each["number"], each["status"], each["error"]) for each in delivery["attempts"]] == [(1, 200, None)]
        everything = person.get("/api/webhooks").text + person.get(f"/api/webhooks/{hook['webhook_id']}/deliveries").text
        assert "secret of the receiver" not in everything
        person.delete(f"/api/webhooks/{hook['webhook_id']}")


def test_a_nan_loss_pages_the_receiver_with_the_name_of_the_number(served):
    with Receiver([answer(200)]) as receiver, served.client("operator") as person:
        hook = make(person, receiver.url, minimum_severity="critical")
        begin(served, "paged", {"train/loss": [1.0, float("nan")]})
        (request,) = receiver.wait_for(1)
        told = Webhook(hook["secret"]).verify(request.body, request.headers)
        assert (told["type"], told["data"]["alert_count"]) == ("incident.firing", 1)
        assert (told["data"]["value"], told["data"]["step"], told["data"]["severity"]) == ("NaN", 2, "critical")
        assert (told["data"]["run_name"], told["data"]["project"]) == ("name of paged", "project")
        assert told["data"]["rule"] == "Loss is not finite"
        (delivery,) = person.get(f"/api/webhooks/{hook['webhook_id']}/deliveries").json()["deliveries"]
        assert delivery["title"] == told["data"]["title"]
        person.delete(f"/api/webhooks/{hook['webhook_id']}")


FORBIDDEN = [
    "http://127.0.0.1/",
    "http://localhost:9/",
    "http://[::1]/",
    "http://0x7f000001/",
    "http://10.0.0.1/",
    "http://169.254.169.254/",
    "http://[::ffff:127.0.0.1]/",
    "ftp://example.org/",
    "http://user:pw@example.org/",
    "example.org",
    "http://exa\nmple.org/",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_a_url_that_may_not_be_called_is_refused_when_it_is_saved(strict, url):
    with strict.client("operator", **JSON) as person:
        refused = person.post("/api/webhooks", json={"name": "n", "url": url})
        assert (refused.status_code, refused.json()["problems"][0]["where"]) == (422, "url")
        assert person.get("/api/webhooks").json() == {"webhooks": []}
        assert person.get("/api/me").json()["private_webhooks_allowed"] is False


def test_a_change_of_the_url_is_checked_too(served):
    with served.client("operator") as person:
        hook = make(person, "http://127.0.0.1:1/hook")
        path = f"/api/webhooks/{hook['webhook_id']}"
        assert person.put(path, json={"url": "http://169.254.169.254/"}).status_code == 422
        assert person.put(path, json={"url": f"http://127.0.0.1:{served.port}/api/health"}).status_code == 422
        assert person.get("/api/webhooks").json()["webhooks"][0]["url"] == "http://127.0.0.1:1/hook"
        person.delete(path)


def test_the_own_port_is_never_a_target(served):
    assert served.context.policy() == Policy(everything_inside=True, own_port=served.port)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "n"},
        {"name": "", "url": "https://e.example"},
        {"name": "n", "url": "https://e.example", "secret": "mine"},
        {"name": "n", "url": "https://e.example", "enabled": False},
        {"name": "n", "url": "https://e.example", "minimum_severity": "loud"},
        {"name": "n", "url": "https://e.example", "minimum_severity": None},
        {"name": "n", "url": "https://e.example/" + "x" * 2000},
        {"name": "n" * 257, "url": "https://e.example"},
        {"name": 5, "url": "https://e.example"},
        {"name": "n", "url": "https://e.example", "project": ""},
    ],
)
def test_a_bad_endpoint_is_refused(strict, body):
    with strict.client("operator") as person:
        assert person.post("/api/webhooks", json=body).status_code == 422
        assert person.get("/api/webhooks").json() == {"webhooks": []}


@pytest.mark.parametrize(
    "body",
    [
        {"webhook_id": "x"},
        {"secret": "x"},
        {"name": None},
        {"url": None},
        {"enabled": None},
        {"enabled": 1},
        {"disabled_because": ""},
    ],
)
def test_a_bad_change_is_refused(served, body):
    with served.client("operator") as person:
        hook = make(person, "http://127.0.0.1:1/hook")
        path = f"/api/webhooks/{hook['webhook_id']}"
        assert person.put(path, json=body).status_code == 422
        assert person.put(path, json={}).status_code == 200
        off = person.put(path, json={"enabled": False, "project": "p", "minimum_severity": "info"}).json()
        assert (off["enabled"], off["project"], off["minimum_severity"]) == (False, "p", "info")
        assert person.put(path, json={"project": None}).json()["project"] is None
        person.delete(path)


def test_saving_an_endpoint_does_not_wait_for_a_name_server_that_hangs(strict, monkeypatch):
    released = threading.Event()

    really = socket.getaddrinfo

    def hang(host, *more, **others):
        if host != "hook.example":
            return really(host, *more, **others)
        released.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    with strict.client("operator") as person:
        monkeypatch.setattr(socket, "getaddrinfo", hang)
        monkeypatch.setattr("server.outbound.webhooks.check.__defaults__", (0.2,))
        began = time.monotonic()
        made = person.post("/api/webhooks", json={"name": "n", "url": "https://hook.example/"})
        released.set()
        assert made.status_code == 201
        assert time.monotonic() - began < 30
        person.delete(f"/api/webhooks/{made.json()['webhook_id']}")
