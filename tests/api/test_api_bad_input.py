import json
import socket

import pytest
from served import JSON, batch, begin, start

from trainer_agent.wire.messages import MAX_BATCH_BYTES, MAX_BATCH_POINTS


def is_problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"a bare {name}"))
    assert {"type", "title", "status", "detail", "fix"} <= set(document)
    assert document["status"] == status
    assert document["detail"]
    assert document["fix"]
    assert "Traceback" not in answer.text
    return document


def good():
    return json.loads(batch("bad", {"train/loss": [9.0, 8.0]}, first_seq=5, records=()))


def changed(path, value):
    """A good batch with one field different; `...` removes it."""
    message = good()
    *way, last = path
    place = message
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(message).encode()


VALUES = ("columns", 0, "value")
BATCHES = {
    "nothing": b"",
    "no JSON": b"hello",
    "not UTF-8": b'{"run_id": "\xff"}',
    "UTF-16": '{"run_id": "bad"}'.encode("utf-16"),
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "empty": b"{}",
    "cut": batch("bad", {"train/loss": [1.0]})[:-3],
    "two documents": b"{}{}",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep in a field": b'{"run_id":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a bare NaN": changed(VALUES, [float("nan"), 1.0]),
    "a bare Infinity": changed(VALUES, [float("inf"), 1.0]),
    "1e999": changed(VALUES, [1, 2]).replace(b"[1, 2]", b"[1e999, 2]"),
    "-1e999": changed(VALUES, [1, 2]).replace(b"[1, 2]", b"[-1e999, 2]"),
    "20,000 digits": changed(VALUES, [1, 2]).replace(b"[1, 2]", b"[" + b"9" * 20_000 + b", 2]"),
    "400 digits": changed(VALUES, [1, 2]).replace(b"[1, 2]", b"[" + b"9" * 400 + b", 2]"),
    "nan in lower case": changed(VALUES, ["nan", 1.0]),
    "+Infinity": changed(VALUES, ["+Infinity", 1.0]),
    "a text as a number": changed(VALUES, ["1.0", 1.0]),
    "null as a number": changed(VALUES, [None, 1.0]),
    "true as a number": changed(VALUES, [True, 1.0]),
    "a lone surrogate": changed(("run_id",), "x").replace(b'"x"', b'"\\ud800"'),
    "a NUL": changed(("run_id",), "a\x00b"),
    "an id with a slash": changed(("run_id",), "a/b"),
    "an id with a line break": changed(("run_id",), "bad\n"),
    "an id that walks up": changed(("run_id",), ".."),
    "an id too long": changed(("run_id",), "x" * 65),
    "no id": changed(("run_id",), ""),
    "no run": changed(("run_id",), ...),
    "no columns of one length": changed(VALUES, [1.0]),
    "no values": changed(("columns", 0), {"series": "train/loss", "segment": 1, "seq": [], "step": [], "time": [], "value": []}),
    "a bad name": changed(("columns", 0, "series"), "Train Loss"),
    "a name too long": changed(("columns", 0, "series"), "train/" + "x" * 200),
    "seq falling": changed(("columns", 0, "seq"), [6, 5]),
    "seq twice": changed(("columns", 0, "seq"), [5, 5]),
    "seq with a hole": changed(("columns", 0, "seq"), [5, 7]),
    "seq 0": changed(("first_seq",), 0),
    "last before first": changed(("last_seq",), 1),
    "a last_seq of a million": changed(("last_seq",), 1_000_000),
    "a last_seq of 2**53": changed(("last_seq",), 2**53),
    "a step below 0": changed(("columns", 0, "step"), [-1, 2]),
    "a step of 2**53": changed(("columns", 0, "step"), [1, 2**53]),
    "a step of 1.5": changed(("columns", 0, "step"), [1, 1.5]),
    "a segment of 2**40": changed(("columns", 0, "segment"), 2**40),
    "a record of no kind": changed(("records",), [{"seq": 7, "record": {"type": "Nonsense"}}]),
    "a record without kind": changed(("records",), [{"seq": 7, "record": {}}]),
    "columns of no kind": changed(("columns",), "all of them"),
    "too many points": batch("bad", {"train/loss": [1.0] * (MAX_BATCH_POINTS + 1)}, first_seq=5, records=()),
}


@pytest.fixture(scope="module")
def run(served):
    begin(served, "bad")
    return served


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch_is_refused_with_a_reason_and_leaves_nothing_behind(run, name):
    with run.client("agent", **JSON) as agent, run.client("operator") as person:
        before = person.get("/api/runs/bad").json()
        document = is_problem(agent.post("/api/agent/batches", content=BATCHES[name]), 422)
        assert "problems" in document or document["detail"]
        after = person.get("/api/runs/bad").json()
        points = person.get("/api/runs/bad/points", params={"series": "train/loss"}).json()["points"]
    assert after["revision"] == before["revision"]
    assert [point["seq"] for point in points] == [2, 3, 4]


def test_the_reason_names_the_place(run):
    with run.client("agent", **JSON) as agent:
        document = is_problem(agent.post("/api/agent/batches", content=BATCHES["a text as a number"]), 422)
    assert document["problems"][0]["where"] == "columns[0].value[0]"


def test_a_batch_that_fails_in_the_middle_is_stored_not_even_by_half(run):
    message = good()
    message["last_seq"] = 7
    started = {"type": "SegmentStarted", "segment": 2**31, "from_step": 0, "cause": "rollback", "time": 0.0}
    message["records"] = [{"seq": 7, "record": started}]
    with run.client("agent", **JSON) as agent, run.client("operator") as person:
        before = person.get("/api/runs/bad").json()
        is_problem(agent.post("/api/agent/batches", content=json.dumps(message).encode()), 422)
        assert person.get("/api/runs/bad").json() == {**before, "latest": before["latest"]}


def test_an_unknown_run_and_incarnation_are_404(run):
    with run.client("agent", **JSON) as agent:
        is_problem(agent.post("/api/agent/batches", content=batch("unknown", {"train/loss": [1.0]})), 404)
        other = batch("bad", {"train/loss": [1.0]}).replace(b"life-1", b"life-2")
        is_problem(agent.post("/api/agent/batches", content=other), 404)
        is_problem(agent.get("/api/agent/runs/bad/commands", params={"incarnation": "life-2", "wait": 0}), 404)


def test_a_body_over_the_limit_is_413_whether_announced_or_not(run):
    large = b"x" * (MAX_BATCH_BYTES + 1)
    with run.client("agent", **JSON) as agent:
        is_problem(agent.post("/api/agent/batches", content=large), 413)
        is_problem(agent.post("/api/agent/batches", content=iter([b"x" * 65_536] * 17)), 413)
    with socket.create_connection(("127.0.0.1", run.port)) as raw:  # announced only: answered before anything is sent
        raw.sendall(
            f"POST /api/agent/batches HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {run.tokens['agent']}\r\n"
            "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n".encode()
        )
        assert raw.recv(65536).startswith(b"HTTP/1.1 413")


def test_nobody_makes_the_server_read_a_body(run):
    with run.client(**JSON) as nobody:
        is_problem(nobody.post("/api/agent/batches", content=b"x" * (MAX_BATCH_BYTES + 1)), 401)


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("run_id", "", 422),
        ("run_id", "a b", 422),
        ("run_id", "../x", 422),
        ("incarnation", "x" * 65, 422),
        ("project", "", 422),
        ("project", "p" * 257, 422),
        ("name", "n" * 70_000, 422),
        ("rank", -1, 422),
        ("rank", 2**40, 422),
        ("total_steps", "many", 422),
        ("capabilities", ["fly"], 422),
        ("attributes", {"a": [1]}, 422),
        ("attributes", {"a": float("nan")}, 422),
        ("attributes", {"a": "NaN"}, 200),
        ("attributes", {"a": 10**400}, 200),
        ("total_steps", 2**53 - 1, 200),
        ("pid", 2**53 - 1, 200),
        ("host", "h" * 70_000, 422),
        ("host", "h" * 60_000, 200),
        ("integration", "i" * 33, 422),
        ("something_new", 1, 200),
    ],
)
def test_a_bad_run_start_is_refused(run, field, value, status):
    message = json.loads(start(f"start-{abs(hash((field, str(value)[:20])))}")) | {field: value}
    with run.client("agent", **JSON) as agent:
        answer = agent.post("/api/agent/runs", content=json.dumps(message).encode())
    assert answer.status_code == status, answer.text
    if status != 200:
        is_problem(answer, status)


COMMANDS = [
    b"",
    b"{}",
    b"[]",
    b'{"kind": "stop"}',
    b'{"kind": "explode", "seen_segment": 1}',
    b'{"kind": "stop", "seen_segment": "1"}',
    b'{"kind": "stop", "seen_segment": 1.5}',
    b'{"kind": "stop", "seen_segment": true}',
    b'{"kind": "stop", "seen_segment": -1}',
    b'{"kind": "stop", "seen_segment": 1e999}',
    b'{"kind": "stop", "seen_segment": 99999999999999999999}',
    b'{"kind": "stop", "seen_segment": 1, "issued_by": "root"}',
    b'{"kind": "stop", "seen_segment": 1, "state": "succeeded"}',
    b'{"kind": "stop", "seen_segment": 1, "reason": "\\ud800"}',
    b'{"kind": "stop", "seen_segment": 1, "reason": "a\\u0000b"}',
    b'{"kind": "stop", "seen_segment": 1, "\\ud800": 1}',
    b'{"kind": "stop", "seen_segment": 1, "a\\u0000": 1}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": NaN}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": "NaN"}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": Infinity}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": 1e999}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": 0}',
    b'{"kind": "rollback", "seen_segment": 1, "max_grad_norm": -1}',
    b'{"kind": "rollback", "seen_segment": 1, "data": "eat"}',
    b'{"kind": "rollback", "seen_segment": 1, "checkpoint_id": ""}',
    b'{"kind": "rollback", "seen_segment": 1, "checkpoint_id": 5}',
    b'{"kind": "stop", "seen_segment": 1, "x": ' + b"[" * 40 + b"]" * 40 + b"}",
    b"[" * 100_000 + b"]" * 100_000,
    b'{"kind": "stop", "seen_segment": 1',
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", COMMANDS, ids=lambda body: repr(body[:60]))
def test_a_bad_command_is_refused_and_none_is_made(run, body):
    with run.client("operator", **JSON, **{"Idempotency-Key": "k"}) as person:
        is_problem(person.post("/api/runs/bad/commands", content=body), 422)
        assert person.get("/api/runs/bad").json()["commands"] == []


@pytest.mark.parametrize("key", [None, "", "x" * 300, "two words"])
def test_a_command_without_a_usable_idempotency_key_is_refused(run, key):
    headers = {} if key is None else {"Idempotency-Key": key}
    with run.client("operator", **headers) as person:
        is_problem(person.post("/api/runs/bad/commands", json={"kind": "stop", "seen_segment": 1}), 422)


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/bad/points",
        "/api/runs/bad/points?series=",
        "/api/runs/bad/points?series=Train%20Loss",
        "/api/runs/bad/points?series=train/loss%00",
        "/api/runs/bad/points?series=train/loss%0A",
        "/api/runs/bad/points?series=train/loss&from_step=-1",
        "/api/runs/bad/points?series=train/loss&from_step=99999999999999999999",
        "/api/runs/bad/points?series=train/loss&from_step=NaN",
        "/api/runs/bad/points?series=train/loss&limit=0",
        "/api/runs/bad/points?series=train/loss&limit=1e9",
        "/api/runs/bad/series?name=train/loss&points=1000000",
        "/api/runs/bad/series?name=" + "x/" * 100,
        "/api/runs/" + "x" * 65,
        "/api/runs/a%00b",
        "/api/runs/%ed%a0%80",
        "/api/alerts?limit=0",
        "/api/alerts?open=perhaps",
        "/api/webhooks/wh_x/deliveries?limit=99999",
    ],
)
def test_a_bad_question_is_refused(run, path):
    with run.client("operator") as person:
        is_problem(person.get(path), 422)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/runs/unknown", 404),
        ("GET", "/api/runs/unknown/points?series=train/loss", 404),
        ("GET", "/api/runs/unknown/series?name=train/loss", 404),
        ("POST", "/api/runs/unknown/countdown/cancel", 409),
        ("POST", "/api/runs/bad/commands/c_unknown/cancel", 404),
        ("GET", "/api/webhooks/unknown/deliveries", 404),
        ("DELETE", "/api/webhooks/unknown", 404),
        ("POST", "/api/webhooks/unknown/test", 404),
        ("GET", "/api/nothing", 404),
        ("POST", "/api/nothing", 404),
        ("GET", "/nothing", 404),
        ("POST", "/api/runs", 405),
        ("DELETE", "/api/runs/bad", 405),
        ("POST", "/", 405),
        ("TRACE", "/api/runs", 405),
    ],
)
def test_what_is_not_there_is_a_problem_document(run, method, path, status):
    with run.client("operator") as person:
        is_problem(person.request(method, path), status)


def test_an_unexpected_mistake_is_a_500_without_a_word_of_the_inside(strict, monkeypatch, caplog):
    from server.store import runs

    def broken(connection):
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr(runs, "list_all", broken)
    with strict.client("operator") as person:
        answer = person.get("/api/runs")
    is_problem(answer, 500)
    assert "secret" not in answer.text


def test_a_busy_writer_is_503_with_the_time_to_wait(strict, monkeypatch):
    from server.store.writer import WriterBusy

    def busy(unit):
        raise WriterBusy("more writes are waiting than the server takes on")

    monkeypatch.setattr(strict.context.database.writer, "submit", busy)
    with strict.client("agent", **JSON) as agent:
        answer = agent.post("/api/agent/runs", content=start("busy"))
    is_problem(answer, 503)
    assert int(answer.headers["retry-after"]) >= 1
