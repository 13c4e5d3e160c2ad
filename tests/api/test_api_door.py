import re
import socket

import pytest
from fastapi.routing import APIRoute
from served import JSON, begin, start, utc_now

from server.api.door import _DoorRoute
from server.services import access

# Every route of the application, and who may use it. A route that is missing here fails the test.
DOORS = {
    "GET /api/health": "open",
    "POST /api/session": "open",
    "DELETE /api/session": "people",
    "GET /api/me": "people",
    "POST /api/agent/runs": "agent",
    "POST /api/agent/batches": "agent",
    "POST /api/agent/heartbeats": "agent",
    "GET /api/agent/runs/{run_id}/commands": "agent",
    "GET /api/live": "people",
    "GET /api/runs": "people",
    "GET /api/runs/{run_id}": "people",
    "GET /api/runs/{run_id}/points": "people",
    "GET /api/runs/{run_id}/series": "people",
    "GET /api/runs/{run_id}/samples": "people",
    "GET /api/runs/{run_id}/documents": "people",
    "GET /api/runs/{run_id}/commands": "people",
    "POST /api/runs/{run_id}/commands": "people",
    "POST /api/runs/{run_id}/commands/{command_id}/cancel": "people",
    "POST /api/runs/{run_id}/checkpoints/{checkpoint_id}/pin": "people",
    "POST /api/runs/{run_id}/checkpoints/{checkpoint_id}/unpin": "people",
    "POST /api/runs/{run_id}/countdown/cancel": "people",
    "POST /api/runs/{run_id}/countdown/now": "people",
    "GET /api/incidents": "people",
    "GET /api/runs/{run_id}/incidents/{incident_id}": "people",
    "POST /api/runs/{run_id}/incidents/{incident_id}/acknowledge": "people",
    "GET /api/silences": "people",
    "POST /api/silences": "people",
    "DELETE /api/silences/{silence_id}": "people",
    "PUT /api/runs/{run_id}/hold": "people",
    "DELETE /api/runs/{run_id}/hold": "people",
    "GET /api/alerts": "people",
    "GET /api/rules": "people",
    "POST /api/rules": "people",
    "PUT /api/rules/{rule_id}": "people",
    "DELETE /api/rules/{rule_id}": "people",
    "POST /api/rules/{rule_id}/reset": "people",
    "GET /api/clauses": "people",
    "GET /api/detectors": "people",
    "POST /api/backtests": "people",
    "GET /api/backtests": "people",
    "GET /api/backtests/{backtest_id}": "people",
    "DELETE /api/backtests/{backtest_id}": "people",
    "GET /api/backtests/{backtest_id}/logs/{number}/points": "people",
    "GET /api/webhooks": "people",
    "POST /api/webhooks": "people",
    "PUT /api/webhooks/{webhook_id}": "people",
    "DELETE /api/webhooks/{webhook_id}": "people",
    "POST /api/webhooks/{webhook_id}/test": "people",
    "GET /api/webhooks/{webhook_id}/deliveries": "people",
    "GET /": "page",
    "GET /runs": "page",
    "GET /runs/{run_id}": "page",
    "GET /runs/{run_id}/incidents/{incident_id}": "page",
    "GET /alerts": "page",
    "GET /alerts/{tab}": "page",
    "GET /webhooks": "page",
    "GET /rules": "page",
    "GET /rules/{rule_id}": "page",
    "GET /signin": "page",
    "GET /vendor/plotly.min.js": "page",
    "GET /{path:page}": "page",
}

CALLERS = ("nobody", "agent", "operator", "session", "revoked", "nonsense", "basic")
EXPECTED = {
    "agent": {"agent": None, "operator": 403, "session": 403},
    "people": {"agent": 403, "operator": None, "session": None},
    "open": dict.fromkeys(CALLERS),
    "page": dict.fromkeys(CALLERS),
}


def routes(app):
    found = {}
    stack = list(app.routes)
    while stack:
        route = stack.pop()
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if hasattr(route, "methods") and hasattr(route, "path"):
            for method in route.methods:
                found[f"{method} {route.path}"] = route
        elif hasattr(inner, "routes"):
            stack.extend(inner.routes)
        else:
            raise AssertionError(f"a route of a kind that this test cannot see into: {route!r}")
    return found


def test_every_route_is_in_the_table_and_behind_the_door(strict):
    found = routes(strict.app)
    assert set(found) == set(DOORS)
    assert all(isinstance(route, _DoorRoute) for route in found.values())


def test_a_door_that_names_nobody_lets_in_nobody():
    assert _DoorRoute.allowed == frozenset()
    assert not hasattr(APIRoute, "allowed")


@pytest.fixture(scope="module")
def clients(strict):
    """A client for each kind of caller."""
    revoked = strict.make_token(access.Role.OPERATOR, "revoked")
    strict.context.database.writer.submit(lambda c: access.revoke_tokens(c, "revoked", utc_now()))
    made = {
        "nobody": strict.client(),
        "agent": strict.client("agent"),
        "operator": strict.client("operator"),
        "session": strict.browser(),
        "revoked": strict.client(Authorization=f"Bearer {revoked}"),
        "nonsense": strict.client(Authorization="Bearer lg_operator_" + "x" * 500),
        "basic": strict.client(Authorization="Basic " + strict.tokens["operator"]),
    }
    yield made
    for client in made.values():
        client.close()


@pytest.mark.parametrize("route", [route for route in DOORS if route not in {"GET /api/live", "DELETE /api/session"}])
@pytest.mark.parametrize("who", CALLERS)
def test_the_door(clients, route, who):
    method, path = route.split(" ")
    path = (
        re.sub(r"\{\w+_id\}", "some-id", path)
        .replace("{number}", "1")
        .replace("{tab}", "silences")
        .replace("{path:page}", "main.js")
    )
    status = clients[who].request(method, path, content=b"{}" if method in {"POST", "PUT"} else None, headers=JSON).status_code
    expected = EXPECTED[DOORS[route]].get(who, 401)
    if expected is None:
        assert status not in {401, 403} or route == "POST /api/session", status
    else:
        assert status == expected


def test_the_stream_is_behind_the_door_too(strict, clients):
    assert [clients[who].get("/api/live").status_code for who in ("nobody", "revoked", "agent")] == [401, 401, 403]


def test_an_agent_that_is_not_let_in_is_told_of_its_token(clients):
    for who in ("nobody", "operator"):
        refused = clients[who].post("/api/agent/batches", json={}).json()
        assert "agent token" in refused["fix"]
        assert "sign-in" not in refused["fix"]


def test_a_run_of_another_agent_is_as_if_it_were_not_there(served):
    begin(served, "private")
    with served.client("other agent", **JSON) as other, served.client("agent", **JSON) as owner:
        theirs = other.post("/api/agent/runs", content=start("private"))
        poll = other.get("/api/agent/runs/private/commands", params={"incarnation": "life-1", "wait": 0})
        unknown = other.get("/api/agent/runs/unknown/commands", params={"incarnation": "life-1", "wait": 0})
        assert (theirs.status_code, poll.status_code, unknown.status_code) == (404, 404, 404)
        assert poll.text.replace("private", "unknown") == unknown.text
        assert owner.post("/api/agent/runs", content=start("private")).status_code == 200


def test_a_revoked_token_is_refused_at_once(served):
    token = served.make_token(access.Role.OPERATOR, "short-lived")
    with served.client(Authorization=f"Bearer {token}") as person:
        assert person.get("/api/me").status_code == 200
        served.context.database.writer.submit(lambda c: access.revoke_tokens(c, "short-lived", utc_now()))
        answer = person.get("/api/me")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_a_sign_in_code_works_once(served):
    code = served.make_code()
    with served.client() as first, served.client() as second:
        assert first.post("/api/session", json={"code": code}).status_code == 204
        assert second.post("/api/session", json={"code": code}).status_code == 401
        assert first.get("/api/me").json()["role"] == "operator"
        assert second.get("/api/me").status_code == 401


def test_two_browsers_with_one_code_make_one_session(served):
    from concurrent.futures import ThreadPoolExecutor

    code = served.make_code()

    def sign_in(_):
        with served.client() as client:
            return client.post("/api/session", json={"code": code}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(sign_in, range(8))) == [204] + [401] * 7


def test_the_cookie_is_out_of_reach_and_names_the_port(served):
    with served.client() as browser:
        answer = browser.post("/api/session", json={"code": served.make_code()})
    name, _, attributes = answer.headers["set-cookie"].partition("=")
    assert name == f"lossguard_{served.port}"
    assert {"httponly", "samesite=strict", "path=/"} <= {each.strip().lower() for each in attributes.split(";")}


def test_signing_out_ends_the_session_on_the_server(served):
    browser = served.browser()
    cookie = dict(browser.cookies)
    assert browser.delete("/api/session").status_code == 204
    browser.cookies.update(cookie)
    assert browser.get("/api/me").status_code == 401
    browser.close()


FOREIGN = [
    {"X-LossGuard": ""},
    {"X-LossGuard": "0"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": ""},
    {"Origin": "null"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://127.0.0.1.evil.example"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_sites_request_does_nothing_in_a_session(served, headers):
    begin(served, "guarded")
    browser = served.browser()
    answer = browser.post(
        "/api/runs/guarded/commands", json={"kind": "stop", "seen_segment": 1}, headers={"Idempotency-Key": "x", **headers}
    )
    assert answer.status_code == 403
    assert browser.get("/api/runs/guarded").json()["commands"] == []
    assert browser.post("/api/webhooks", json={}, headers=headers).status_code == 403
    browser.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_that_a_form_can_send_is_refused(served, kind):
    browser = served.browser()
    answer = browser.post("/api/webhooks", content=b'{"name": "n", "url": "https://e.example"}', headers={"Content-Type": kind})
    assert answer.status_code == 415
    browser.close()


def test_a_token_needs_no_cross_site_checks_and_a_bad_token_is_not_made_good_by_a_cookie(served):
    browser = served.browser()
    assert browser.get("/api/me", headers={"Authorization": "Bearer wrong"}).status_code == 401
    browser.close()
    with served.client("operator") as person:
        assert person.post("/api/webhooks", json={}).status_code == 422


def test_the_database_holds_no_secret(served):
    import sqlalchemy as sa

    from server.store import tables

    code = served.make_code()
    secrets = [*served.tokens.values(), code]
    with served.context.database.reading() as connection:
        kept = (tables.tokens, tables.sessions, tables.sign_in_codes)
        rows = [str(row) for table in kept for row in connection.execute(sa.select(table))]
    assert rows
    assert not any(secret in row for secret in secrets for row in rows)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("LOCALHOST.:{port}", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:{port}", 421),
        ("", 421),
        ("127.0.0.2", 421),
    ],
)
@pytest.mark.parametrize("path", ["/api/health", "/", "/nothing"])
def test_only_its_own_names_are_answered_to(strict, host, status, path):
    with socket.create_connection(("127.0.0.1", strict.port)) as raw:
        head = f"GET {path} HTTP/1.1\r\nHost: {host.format(port=strict.port)}\r\nConnection: close\r\n\r\n"
        raw.sendall(head.encode())
        answer = int(raw.recv(65536).split(b" ")[1])
    assert answer == (404 if (path, status) == ("/nothing", 200) else status)


def test_every_answer_keeps_browsers_strict(strict):
    with strict.client() as nobody:
        answers = [nobody.get(path) for path in ("/", "/main.js", "/api/health", "/api/runs", "/nothing", "/api/nothing")]
        answers.append(nobody.get("/", headers={"Host": "evil.example"}))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
