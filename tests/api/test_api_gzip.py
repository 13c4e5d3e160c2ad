"""Compressed bodies on the agent's routes: taken like plain ones, and never a way to hurt the server."""

import gzip
import json
import os
import random
import zlib
from pathlib import Path

import pytest
from served import JSON, batch, begin, start
from test_api_bad_input import is_problem

from server.api import inflating
from trainer_agent.wire.messages import MAX_BATCH_BYTES

GZIP = {**JSON, "Content-Encoding": "gzip"}
BODY = batch("packed", {"train/loss": [9.0, 8.0]}, first_seq=99)
"""Begins past what is expected: read as a batch, it is answered with 409."""


@pytest.fixture(scope="module")
def agent(strict):
    begin(strict, "packed")
    with strict.client("agent") as agent:
        yield agent


def post(agent, body: bytes, headers=GZIP):
    return agent.post("/api/agent/batches", content=body, headers=headers)


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("route", ["runs", "heartbeats"])
def test_a_compressed_body_is_taken_on_every_route(agent, level, route):
    beat = {"run_id": "packed", "incarnation": "life-1", "rank": 0, "sent_at": 1.0, "phase": "training"}
    body = start("packed") if route == "runs" else json.dumps(beat).encode()
    assert agent.post(f"/api/agent/{route}", content=gzip.compress(body, level), headers=GZIP).status_code == 200


def test_a_compressed_batch_stores_what_a_plain_one_does(served):
    begin(served, "twin-plain")
    begin(served, "twin-packed")
    found = {}
    for name, pack in (("plain", bytes), ("packed", gzip.compress)):
        with served.client("agent") as agent, served.client("operator") as person:
            body = batch(f"twin-{name}", {"train/loss": [float("nan"), 8.0, float("-inf")]}, first_seq=5)
            headers = GZIP if name == "packed" else JSON
            assert post(agent, pack(body), headers).status_code == 200
            found[name] = person.get(f"/api/runs/twin-{name}/points", params={"series": "train/loss"}).json()
    assert found["plain"] == found["packed"]
    assert [point["value"] for point in found["packed"]["points"]][3:] == ["NaN", 8.0, "-Infinity"]


def garbage(length: int) -> bytes:
    return random.Random(1).randbytes(length)


WHOLE = gzip.compress(BODY)
UNREADABLE = {
    "plain JSON": BODY,
    "nothing": b"",
    "the header alone": WHOLE[:10],
    "cut in the middle": WHOLE[: len(WHOLE) // 2],
    "cut in the checksum": WHOLE[:-1],
    "a wrong checksum": WHOLE[:-8] + b"\x00\x00\x00\x00" + WHOLE[-4:],
    "a wrong length": WHOLE[:-4] + b"\xff\xff\xff\xff",
    "garbage": garbage(5000),
    "garbage after a header": WHOLE[:10] + garbage(5000),
    "two members": WHOLE + WHOLE,
    "two halves": gzip.compress(BODY[:50]) + gzip.compress(BODY[50:]),
    "trailing bytes": WHOLE + b"\n",
    "trailing zeros": WHOLE + b"\x00" * 512,
    "zlib": zlib.compress(BODY),
    "bare deflate": zlib.compress(BODY, wbits=-15),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_not_one_whole_gzip_member_is_refused(agent, name):
    is_problem(post(agent, UNREADABLE[name]), 415)


@pytest.mark.parametrize("byte", range(0, len(WHOLE), 7))
def test_a_damaged_byte_is_never_a_500_and_never_stored(agent, byte):
    damaged = bytearray(WHOLE)
    damaged[byte] ^= 0x55
    answer = post(agent, bytes(damaged))
    is_problem(answer, answer.status_code)
    harmless = range(4, 10)  # time, flags and system in the header say nothing about the content
    assert answer.status_code in ({409, 415} if byte in harmless else {413, 415})


LARGE = {
    "a bomb of a million zeros": gzip.compress(b"0" * 1_000_000, 9),
    "a bomb of 100 MiB": gzip.compress(b" " * (100 << 20), 9),
    "a bomb in a bomb": gzip.compress(gzip.compress(b" " * (100 << 20), 9), 9),
    "9 MiB in 100 kB": gzip.compress(b'"' + b"0123456789abcdef" * 5000 * 118 + b'"', 1),
    "more than 1 MiB as sent": gzip.compress(garbage(MAX_BATCH_BYTES + 1), 0),
    "two million empty lists": gzip.compress(b"[" + b"[],  " * 1_600_000 + b"[]]", 1),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_bomb_is_refused_and_costs_no_memory(agent, name, figure):
    before = resident()
    is_problem(post(agent, LARGE[name]), 413)
    if name in ("a bomb of 100 MiB", "two million empty lists"):
        figure("F60", f"growth of the server by {name}", resident() - before, at_most=50, unit="MiB")


def resident() -> float:
    """MiB of memory that this process, and the server in it, holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_body_may_inflate_beyond_what_may_be_sent_plain(agent):
    """It is then read like any other: most of this one is a member that nobody knows."""
    body = BODY[:-1] + b',"unknown":"' + garbage(600_000).hex().encode() + b'"}'
    packed = gzip.compress(body, 6)
    assert len(packed) < MAX_BATCH_BYTES < len(body)
    is_problem(post(agent, packed), 409)
    is_problem(post(agent, body, JSON), 413)


@pytest.mark.parametrize(
    "encoding", ["br", "deflate", "zstd", "compress", "x-gzip", "gzip, gzip", "identity, gzip", "gzip;q=1", "GZIP,"]
)
def test_an_unknown_encoding_is_415_and_names_the_known_ones(agent, encoding):
    answer = post(agent, gzip.compress(BODY), {**JSON, "Content-Encoding": encoding})
    is_problem(answer, 415)
    assert answer.headers["accept-encoding"] == "gzip, identity"


def test_the_name_of_the_encoding_is_read_as_people_write_it(agent):
    beat = b'{"run_id": "packed", "incarnation": "life-1", "rank": 0, "sent_at": 1.0, "phase": "training"}'
    for name, body in (("GZip", gzip.compress(beat)), ("Identity", beat)):
        headers = {**JSON, "Content-Encoding": name}
        assert agent.post("/api/agent/heartbeats", content=body, headers=headers).status_code == 200


def test_people_s_routes_take_no_compressed_body(strict):
    with strict.client("operator") as person:
        answer = person.post("/api/webhooks", content=gzip.compress(b"{}"), headers=GZIP)
    is_problem(answer, 415)
    assert answer.headers["accept-encoding"] == "identity"


def test_the_door_stands_before_the_bomb(strict):
    with strict.client() as nobody:
        is_problem(post(nobody, LARGE["a bomb of 100 MiB"]), 401)


def test_the_bounds_are_those_promised():
    """docs/api.md names them."""
    assert (inflating.MAX_PLAIN_BYTES, inflating.MAX_RATIO, MAX_BATCH_BYTES) == (8 << 20, 100, 1 << 20)
    told = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert "at most 8 MiB" in told
    assert "100 times" in told
