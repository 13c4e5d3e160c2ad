import gzip
import json
import random
import time
from datetime import UTC, datetime, timedelta

import pytest
from receiver import Receiver, answer, drip, drip_body, hang, pour
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from server.outbound import signing
from server.outbound.addresses import Policy
from server.outbound.exchange import Limits
from server.outbound.signing import new_secret
from server.outbound.webhooks import Message, attempt

INSIDE = Policy(everything_inside=True)
QUICK = Limits(connect_seconds=0.5, whole_seconds=0.6)


def send(url, policy=INSIDE, limits=QUICK, body='{"a":1}', secret=None):
    message = Message("msg_1", url, secret or new_secret(), body)
    return attempt(message, policy, datetime.now(UTC), limits)


def test_a_message_is_signed_over_the_very_bytes_and_verified_by_foreign_code():
    secret = new_secret()
    body = json.dumps({"text": "Übergröße \u2713", "value": "NaN"}, ensure_ascii=False)
    with Receiver([answer(204)]) as receiver:
        result = send(receiver.url, body=body, secret=secret)
        (request,) = receiver.wait_for(1)
    assert (result.status, result.error) == (204, None)
    assert request.body == body.encode()
    assert Webhook(secret).verify(request.body, request.headers) == json.loads(body)
    assert request.headers["webhook-id"] == "msg_1"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_a_changed_byte_a_wrong_id_and_an_old_time_are_refused_by_foreign_code():
    secret, rng = new_secret(), random.Random(7)
    for _ in range(300):
        body = "".join(chr(rng.randrange(32, 0x2FFF)) for _ in range(rng.randrange(1, 80)))
        now = datetime.now(UTC)
        headers = signing.headers(secret, "msg_x", now, body)
        Webhook(secret).verify(body, headers, json_parse=False)
        for broken_body, broken in (
            (body + "x", headers),
            (body, {**headers, "webhook-id": "msg_y"}),
            (body, signing.headers(secret, "msg_x", now - timedelta(minutes=6), body)),
            (body, signing.headers(new_secret(), "msg_x", now, body)),
        ):
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(broken_body, broken, json_parse=False)


def test_loopback_is_refused_without_the_setting_and_nothing_is_connected():
    with Receiver([answer(200)]) as receiver:
        result = send(receiver.url, policy=Policy())
        assert result.status is None
        assert "LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS" in result.error
        assert receiver.received == []


def test_a_name_is_connected_to_by_its_checked_address_and_called_by_its_name():
    with Receiver([answer(200)]) as receiver:
        result = send(f"http://localhost:{receiver.port}/a?b=c")
        (request,) = receiver.wait_for(1)
    assert result.status == 200
    assert request.line == "POST /a?b=c HTTP/1.1"
    assert request.headers["host"] == f"localhost:{receiver.port}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(status):
    with Receiver([answer(200)]) as canary, Receiver([answer(status, b"", f"Location: {canary.url}")]) as receiver:
        result = send(receiver.url)
        assert (result.status, result.error) == (status, f"answered {status}")
        assert canary.received == []


@pytest.mark.parametrize("slow", [hang, drip, drip_body])
def test_the_whole_exchange_is_cut_even_when_bytes_drip(slow):
    with Receiver([slow]) as receiver:
        began = time.monotonic()
        result = send(receiver.url)
        assert time.monotonic() - began < QUICK.whole_seconds + 20.0
    assert result.status is None
    assert result.error == "no complete answer within 0.6 s"


def test_of_an_endless_answer_only_a_little_is_read():
    with Receiver([pour]) as receiver:
        result = send(receiver.url, limits=Limits())
    assert (result.status, result.error) == (200, None)
    assert result.seconds < Limits().whole_seconds


def test_an_answer_is_never_unpacked_or_shown():
    bomb = gzip.compress(b"top secret" * 1_000)
    with Receiver([answer(500, bomb, "Content-Encoding: gzip", "X-Secret: top secret")]) as receiver:
        result = send(receiver.url)
    assert result.status == 500
    assert "secret" not in repr(result)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"this is not HTTP\r\n\r\n", "the answer is not HTTP"),
        (b"", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "the answer is not HTTP"),
    ],
)
def test_nonsense_is_a_failure_in_words_of_our_own(raw, error):
    with Receiver([raw]) as receiver:
        result = send(receiver.url)
    assert (result.status, result.error) == (None, error)


def test_a_closed_port_and_plain_text_behind_https_are_failures():
    with Receiver([answer(200)]) as receiver:
        closed, plain = receiver.url, receiver.url.replace("http://", "https://")
        assert send(plain).status is None
    assert send(closed).error == "connection refused or not secure"


def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    with Receiver([answer(200)]) as proxy, Receiver([answer(204)]) as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert send(receiver.url).status == 204
        assert proxy.received == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120), ("0", 0), ("-5", None), ("soon", None), ("9" * 40, 999_999_999_999), ("", None)],
)
def test_retry_after_in_seconds_is_read(header, seconds):
    with Receiver([answer(429, b"", f"Retry-After: {header}")]) as receiver:
        result = send(receiver.url)
    expected = None if seconds is None else timedelta(seconds=min(seconds, 10**9))
    assert result.retry_after == expected


def test_retry_after_as_a_date_is_read():
    later = datetime.now(UTC) + timedelta(seconds=90)
    with Receiver([answer(503, b"", f"Retry-After: {later:%a, %d %b %Y %H:%M:%S} GMT")]) as receiver:
        result = send(receiver.url)
    assert timedelta(seconds=80) < result.retry_after <= timedelta(seconds=91)
