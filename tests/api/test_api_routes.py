import json
import math
import struct

import pytest
from served import JSON, batch, begin, start

from trainer_agent.wire.codec import decode, encode
from trainer_agent.wire.messages import Heartbeat, Reply
from trainer_agent.wire.vocabulary import Phase


def test_the_server_says_that_it_is_there(served):
    with served.client() as nobody:
        assert nobody.get("/api/health").json()["status"] == "ok"


def test_an_agent_starts_a_run_and_sends_points_and_people_see_them(served):
    begin(served, "seen", {"train/loss": [3.0, 2.0, 1.0], "train/grad_norm": [1.0, math.inf, 2.0]})
    with served.client("operator") as person:
        summary = next(run for run in person.get("/api/runs").json()["runs"] if run["run_id"] == "seen")
        assert (summary["name"], summary["state"], summary["step"]) == ("name of seen", "running", 3)
        assert summary["sparkline"] == [3.0, 2.0, 1.0]
        assert summary["latest"]["train/loss"] == {"value": 1.0, "step": 3}
        detail = person.get("/api/runs/seen").json()
    assert [each["segment"] for each in detail["segments"]] == [1]
    assert detail["capabilities"] == ["stop", "rollback"]
    norm = next(each for each in detail["series"] if each["series"] == "train/grad_norm")
    assert (norm["nonfinite_count"], norm["first_nonfinite_step"], norm["max"]) == (1, 2, 2.0)
    assert detail["proposal"]["target"] is None
    assert [event["type"] for event in detail["events"]][-1] == "run.started"


def test_after_a_rollback_the_heartbeat_is_ahead_of_higher_steps_that_were_left_behind(served):
    begin(served, "back", {"train/loss": [3.0, 2.0, 9.0, 9.5], "train/grad_norm": [1.0] * 4})
    beat = Heartbeat("back", "life-1", 0, 0.0, Phase.TRAINING, step=3, segment=2, latest={"train/loss": 1.5})
    with served.client("agent", **JSON) as agent, served.client("operator") as person:
        assert agent.post("/api/agent/heartbeats", content=encode(beat)).status_code == 200
        latest = person.get("/api/runs/back").json()["latest"]
    assert latest["train/loss"] == {"value": 1.5, "step": 3}
    assert latest["train/grad_norm"] == {"value": 1.0, "step": 4}


def test_one_nan_among_good_values_is_named_in_json_and_marked_for_the_chart(served):
    begin(served, "nan", {"train/loss": [1.0, math.nan, -math.inf, 4.0]})
    with served.client("operator") as person:
        points = person.get("/api/runs/nan/points", params={"series": "train/loss"}).json()["points"]
        raw = person.get("/api/runs/nan/series", params={"name": "train/loss"})
        alerts = person.get("/api/alerts", params={"open": "true"}).json()["alerts"]
    assert [point["value"] for point in points] == [1.0, "NaN", "-Infinity", 4.0]
    assert raw.headers["content-type"] == "application/octet-stream"
    header, curves = unpack(raw.content)
    assert header["traces"] == [{"segment": 1, "rank": 0, "superseded": False, "n": len(curves[0][0]), "count": 4}]
    assert [(mark["step"], mark["value"]) for mark in header["nonfinite"]] == [(2, "NaN"), (3, "-Infinity")]
    steps, values = curves[0]
    assert steps == (1.0, 2.0, 4.0)
    assert math.isnan(values[1])
    fired = next(alert for alert in alerts if alert["run_id"] == "nan" and alert["rule_id"] == "loss-not-finite")
    assert (fired["value"], fired["state"], fired["onset_step"]) == ("NaN", "recovering", 2)


def unpack(raw: bytes):
    (length,) = struct.unpack_from("<I", raw)
    assert (4 + length) % 8 == 0
    header, at, curves = json.loads(raw[4 : 4 + length]), 4 + length, []
    for trace in header["traces"]:
        halves = [struct.unpack_from(f"<{trace['n']}d", raw, at + 8 * trace["n"] * half) for half in (0, 1)]
        curves.append(halves)
        at += 16 * trace["n"]
    assert at == len(raw)
    return header, curves


def test_a_batch_sent_twice_is_stored_once_and_one_out_of_order_says_what_is_expected(served):
    begin(served, "twice")
    with served.client("agent", **JSON) as agent, served.client("operator") as person:
        again = agent.post("/api/agent/batches", content=batch("twice", {"train/loss": [3.0, 2.0, 1.0]}))
        assert decode(Reply, again.content).next_seq == 5
        early = agent.post("/api/agent/batches", content=batch("twice", {"train/loss": [9.0]}, first_seq=9))
        assert (early.status_code, early.json()["next_seq"]) == (409, 5)
        points = person.get("/api/runs/twice/points", params={"series": "train/loss"}).json()["points"]
    assert [point["value"] for point in points] == [3.0, 2.0, 1.0]


def test_a_reply_names_the_page(served):
    with served.client("agent", **JSON) as agent:
        reply = decode(Reply, agent.post("/api/agent/runs", content=start("named")).content)
    assert reply.page_url == f"{served.url}/runs/named"


def test_a_stop_is_queued_once_and_handed_to_the_agent(served):
    begin(served, "stopped")
    body = {"kind": "stop", "seen_segment": 1, "reason": "enough"}
    with served.client("operator", **{"Idempotency-Key": "k1"}) as person, served.client("agent") as agent:
        first = person.post("/api/runs/stopped/commands", json=body)
        again = person.post("/api/runs/stopped/commands", json=body)
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json()["command_id"] == again.json()["command_id"]
        assert (first.json()["state"], first.json()["history"][0]["state"]) == ("queued", "queued")
        other = person.post("/api/runs/stopped/commands", json={**body, "reason": "something else"})
        assert other.status_code == 422
        poll = agent.get("/api/agent/runs/stopped/commands", params={"incarnation": "life-1", "wait": 0})
        assert [command.command_id for command in decode(Reply, poll.content).commands] == [first.json()["command_id"]]
        cancelled = person.post(f"/api/runs/stopped/commands/{first.json()['command_id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")


def test_a_command_for_a_segment_that_is_over_is_refused_as_stale(served):
    begin(served, "stale")
    with served.client("operator", **{"Idempotency-Key": "k1"}) as person:
        answer = person.post("/api/runs/stale/commands", json={"kind": "stop", "seen_segment": 0})
    assert (answer.status_code, answer.json()["segment"]) == (412, 1)


def test_a_rollback_without_a_sound_checkpoint_is_refused_with_the_reason(served):
    begin(served, "unsound")
    with served.client("operator", **{"Idempotency-Key": "k1"}) as person:
        answer = person.post("/api/runs/unsound/commands", json={"kind": "rollback", "seen_segment": 1})
    assert answer.status_code == 409
    assert answer.json()["refusal"] == "no_sound_checkpoint"


@pytest.mark.parametrize("action", ["cancel", "now"])
def test_a_countdown_that_is_not_there_is_a_conflict(served, action):
    begin(served, "calm")
    with served.client("operator") as person:
        assert person.post(f"/api/runs/calm/countdown/{action}").status_code == 409


def test_a_rule_is_changed_by_the_fields_that_are_named(served):
    with served.client("operator") as person:
        before = next(r for r in person.get("/api/rules").json()["rules"] if r["rule_id"] == "grad-norm-over-10")
        changed = person.put("/api/rules/grad-norm-over-10", json={"severity": "warning", "settings": {"above": 12.5}}).json()
        assert changed == {
            **before,
            "severity": "warning",
            "settings": {"above": 12.5},
            "version": before["version"] + 1,
            "edited": True,
        }
        assert person.put("/api/rules/grad-norm-over-10", json={"rule_id": "mine"}).status_code == 422
        assert person.put("/api/rules/grad-norm-over-10", json={"settings": {"abvoe": 1}}).status_code == 422
        assert person.put("/api/rules/unknown", json={"enabled": False}).status_code == 404


def test_a_long_poll_answers_when_a_command_is_given_and_not_before(served):
    import threading
    import time

    begin(served, "waiting")
    answers = []

    def wait():
        with served.client("agent") as agent:
            answer = agent.get("/api/agent/runs/waiting/commands", params={"incarnation": "life-1", "wait": 20})
            answers.append((decode(Reply, answer.content), time.monotonic()))

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    with served.client("operator", **{"Idempotency-Key": "k1"}) as person:
        person.post("/api/runs/waiting/commands", json={"kind": "stop", "seen_segment": 1})
        given = time.monotonic()
    waiting.join(60)
    reply, at = answers[0]
    assert [command.kind for command in reply.commands] == ["stop"]
    assert at - given < 10.0, "the answer came when the wait was over"


def test_a_long_poll_ends_after_the_time_asked_for(served):
    begin(served, "idle")
    with served.client("agent") as agent:
        answer = agent.get("/api/agent/runs/idle/commands", params={"incarnation": "life-1", "wait": 0.3})
    assert answer.status_code == 200
    assert 0.25 < answer.elapsed.total_seconds() < 15


def test_the_page_and_plotly_are_served_with_etags(served):
    with served.client() as nobody:
        for path in ("/", "/runs", "/runs/some-run", "/alerts", "/webhooks", "/signin"):
            page = nobody.get(path)
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert page.headers["cache-control"] == "no-cache"
        assert nobody.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
        assert "text/javascript" in nobody.get("/main.js").headers["content-type"]
        plotly = nobody.get("/vendor/plotly.min.js")
        assert (plotly.headers["content-encoding"], len(plotly.content) > 4_000_000) == ("gzip", True)
        assert nobody.get("/vendor/plotly.min.js", headers={"If-None-Match": plotly.headers["etag"]}).status_code == 304


def test_a_wrong_address_shows_the_page_to_a_browser_each_time_it_is_loaded(served):
    with served.client(Accept="text/html") as browser:
        first = browser.get("/nowhere")
        again = browser.get("/nowhere", headers={"If-None-Match": first.headers["etag"]})
        assert (first.status_code, again.status_code) == (404, 404)
        assert again.content == first.content == browser.get("/").content


ELSEWHERE = [
    "/../pyproject.toml",
    "/..%2fpyproject.toml",
    "/%2e%2e/pyproject.toml",
    "/....//pyproject.toml",
    "/styles/../../server/app.py",
    "/server/app.py",
    "/styles",
    "//etc/passwd",
    "/C:/windows/win.ini",
    "/styles/base.css%00.js",
    "/\\..\\pyproject.toml",
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_address_becomes_a_path(served, path):
    import socket

    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head = raw.recv(65536)
    assert head.split(b" ")[1] in {b"404", b"400"}
