import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.domain.events import Event, EventType
from server.domain.webhooks import (
    JITTER,
    RETRY_AFTER_LIMIT,
    RETRY_DELAYS,
    Attempt,
    DeliveryState,
    DeliveryStatus,
    Endpoint,
    body,
    step,
    wants,
    with_link,
)
from trainer_agent.wire.vocabulary import Severity

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def made(status, retry_after=None):
    return Attempt(NOW, status, None if status == 200 else "failed", 0.1, retry_after)


def endpoint(severity=Severity.WARNING, project=None, enabled=True):
    return Endpoint("wh_1", "n", "https://hook.example", "whsec_x", severity, project, enabled, "", NOW)


def test_failures_are_tried_again_on_the_schedule_and_given_up_at_its_end():
    status, waits = DeliveryStatus(next_attempt_at=NOW), []
    while status.state is DeliveryState.WAITING:
        outcome = step(status, made(500), NOW, jitter=0)
        status = outcome.status
        if status.next_attempt_at is not None:
            waits.append(status.next_attempt_at - NOW)
        assert not outcome.endpoint_gone
    assert waits == list(RETRY_DELAYS[1:])
    assert status == DeliveryStatus(DeliveryState.FAILED, len(RETRY_DELAYS), None)


@given(st.integers(0, len(RETRY_DELAYS) - 2), st.floats(-1, 1))
def test_a_wait_is_stretched_by_a_fifth_at_most(count, jitter):
    outcome = step(DeliveryStatus(attempt_count=count), made(None), NOW, jitter)
    wait = outcome.status.next_attempt_at - NOW
    assert RETRY_DELAYS[count + 1] * (1 - JITTER) <= wait <= RETRY_DELAYS[count + 1] * (1 + JITTER)


@pytest.mark.parametrize(("asked", "given_"), [(0, 0), (120, 120), (3600, 3600), (86_400, RETRY_AFTER_LIMIT.total_seconds())])
def test_what_the_receiver_asks_for_wins_up_to_an_hour(asked, given_):
    outcome = step(DeliveryStatus(), made(429, timedelta(seconds=asked)), NOW, jitter=1)
    assert outcome.status.next_attempt_at == NOW + timedelta(seconds=given_)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_success(status):
    assert step(DeliveryStatus(), made(status), NOW, 0).status == DeliveryStatus(DeliveryState.SUCCEEDED, 1)


@pytest.mark.parametrize("status", [None, 100, 199, 300, 301, 304, 400, 401, 404, 429, 500, 502, 503])
def test_anything_else_is_failure(status):
    assert step(DeliveryStatus(), made(status), NOW, 0).status.state is DeliveryState.WAITING


def test_gone_ends_the_delivery_and_the_endpoint():
    outcome = step(DeliveryStatus(), made(410), NOW, 0)
    assert (outcome.status.state, outcome.endpoint_gone) == (DeliveryState.FAILED, True)


@pytest.mark.parametrize("end", [DeliveryState.SUCCEEDED, DeliveryState.FAILED])
@pytest.mark.parametrize("status", [None, 200, 410, 500])
def test_an_end_is_final(end, status):
    ended = DeliveryStatus(end, 3)
    assert step(ended, made(status), NOW, 0).status == ended


@pytest.mark.parametrize(("loud", "least"), list(itertools.product(Severity, Severity)))
def test_an_incident_goes_out_when_it_is_loud_enough(loud, least):
    order = list(Severity)
    event = Event(EventType.INCIDENT_FIRING, NOW, "r", data={"severity": loud.value})
    assert wants(endpoint(least), event, "p") is (order.index(loud) >= order.index(least))


@pytest.mark.parametrize(
    ("type_", "least"),
    [
        (EventType.RUN_FINISHED, Severity.INFO),
        (EventType.COUNTDOWN_STARTED, Severity.WARNING),
        (EventType.RUN_STOPPED, Severity.WARNING),
        (EventType.COMMAND_SUCCEEDED, Severity.WARNING),
        (EventType.RUN_INCARNATION_ENDED, Severity.WARNING),
        (EventType.RUN_FAILED, Severity.CRITICAL),
        (EventType.COMMAND_FAILED, Severity.CRITICAL),
        (EventType.COMMAND_UNCONFIRMED, Severity.CRITICAL),
    ],
)
def test_other_events_have_a_loudness_of_their_own(type_, least):
    event = Event(type_, NOW, "r")
    order = list(Severity)
    for minimum in Severity:
        assert wants(endpoint(minimum), event, "p") is (order.index(least) >= order.index(minimum))


@pytest.mark.parametrize("loud", [Severity.INFO, Severity.WARNING])
def test_a_resume_check_is_as_loud_as_what_it_found(loud):
    order = list(Severity)
    event = Event(EventType.RUN_RESUME_CHECKED, NOW, "r", data={"severity": loud.value})
    for least in Severity:
        assert wants(endpoint(least), event, "p") is (order.index(loud) >= order.index(least))


def test_everything_else_stays_inside():
    sent = {
        "incident.firing", "incident.resolved", "run.failed", "run.stopped", "run.finished", "countdown.started",
        "command.succeeded", "command.failed", "command.unconfirmed", "webhook.test", "run.incarnation_ended", "run.lives",
        "checkpoint.changed", "checkpoint.save_failed", "run.resume_checked", "rule.failed",
    }  # fmt: skip
    for type_ in EventType:
        if type_.value not in sent:
            assert not wants(endpoint(Severity.INFO), Event(type_, NOW, "r", data={"severity": "critical"}), "p")


def test_a_test_goes_to_its_own_endpoint_only_and_also_when_that_is_off():
    asked = Event(EventType.WEBHOOK_TEST, NOW, data={"webhook_id": "wh_1"})
    other = Event(EventType.WEBHOOK_TEST, NOW, data={"webhook_id": "wh_2"})
    for enabled in (True, False):
        assert wants(endpoint(Severity.CRITICAL, "elsewhere", enabled), asked, None)
        assert not wants(endpoint(Severity.INFO, None, enabled), other, None)


def test_an_endpoint_of_a_project_hears_of_no_other_and_one_that_is_off_of_nothing():
    event = Event(EventType.RUN_FAILED, NOW, "r")
    assert wants(endpoint(project="p"), event, "p")
    assert not wants(endpoint(project="p"), event, "q")
    assert not wants(endpoint(project="p"), event, None)
    assert not wants(endpoint(enabled=False), event, "p")


def test_the_body_is_strict_json_with_a_link_or_the_reason_why_there_is_none():
    data = {"severity": "critical", "title": "Loss is NaN", "text": "x" * 9_000, "series": "train/loss", "value": float("nan")}
    told = body(7, Event(EventType.INCIDENT_FIRING, NOW, "run-1", 50, 1, data), "gpt2", "demo")
    assert told["timestamp"] == "2026-03-01T12:00:00.000000Z"
    assert (told["data"]["value"], told["data"]["limit"], len(told["data"]["text"])) == ("NaN", None, 2_000)
    assert with_link(told, "https://guard.example/")["data"]["link"] == "https://guard.example/runs/run-1"
    without = with_link(told, None)["data"]
    assert without["link"] is None
    assert "LOSSGUARD_PUBLIC_URL" in without["link_note"]
