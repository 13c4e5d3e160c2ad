import json
import time

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from served import begin

SECONDS_FOR_ALL = 20.0
LEFT_OUT = {("GET", "/api/live")}  # never ends


@pytest.fixture(scope="module")
def operations(served):
    begin(served, "some-run")
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    return [each.ok() for each in schema.get_all_operations() if (each.ok().method.upper(), each.ok().path) not in LEFT_OUT]


def test_the_document_names_every_route_and_how_errors_look(served):
    document = served.app.openapi()
    assert set(document["paths"]) >= {"/api/runs/{run_id}/commands", "/api/agent/batches", "/api/webhooks/{webhook_id}/test"}
    for path in document["paths"].values():
        for operation in path.values():
            assert "application/problem+json" in operation["responses"]["4XX"]["content"]
    json.dumps(document, allow_nan=False)


def test_no_generated_request_brings_a_500_or_an_answer_of_another_shape(served, operations):
    with served.client("agent") as agent, served.client("operator") as person:
        for operation in operations:
            client = agent if operation.path.startswith("/api/agent") else person
            _try(client, operation, time.monotonic() + SECONDS_FOR_ALL / len(operations) / 2)


def _try(client, operation, until):
    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case):
        if time.monotonic() > until:
            return
        arguments = case.as_transport_kwargs(base_url=str(client.base_url))
        query = {name: 0 if name == "wait" else value for name, value in (arguments.get("params") or {}).items()}
        body = arguments.get("data")
        answer = client.request(
            arguments["method"],
            arguments["url"],
            params=query,
            content=json.dumps(arguments["json"]).encode() if arguments.get("json") is not None else body,
            headers={"Content-Type": "application/json", **_headers(case)},
        )
        _check(operation, answer)

    check()


def _headers(case):
    return {name: value for name, value in (case.headers or {}).items() if value.isascii() and value.strip() == value}


def _check(operation, answer):
    assert answer.status_code < 500, (operation.path, answer.text)
    kind = answer.headers.get("content-type", "")
    if answer.status_code >= 400:
        assert kind == "application/problem+json", (operation.path, answer.status_code, kind)
    if "json" in kind:
        json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"a bare {name} in {operation.path}"))
