"""How the agent's requests travel: compressed where it pays, plain where it must be, never longer than an exchange may take."""

import contextlib
import json
import socket
import threading
import time
import zlib

import pytest
from figures import patience
from transport_server import ScriptedServer, problem

from trainer_agent.config import Config
from trainer_agent.sending import transport as transport_module
from trainer_agent.sending.transport import HttpTransport, Meaning
from trainer_agent.wire import codec
from trainer_agent.wire.messages import Batch, Column, Heartbeat, Numbered, Report, RunStart
from trainer_agent.wire.vocabulary import CommandState, Phase

START = RunStart("run", "inc", "p", "n")


def batch(points: int, first: int = 1) -> Batch:
    numbers = tuple(range(first, first + points))
    values = tuple(1.0 / number for number in numbers)
    return Batch("run", "inc", 0, first, numbers[-1], 1.0, (Column("train/loss", 1, numbers, numbers, values, values),))


@pytest.fixture
def talk():
    """A scripted server and a transport to it."""
    with ScriptedServer() as server:
        transport = HttpTransport(Config(server.url, "secret"))
        yield server, transport
        transport.close()


def test_a_large_batch_travels_compressed_and_a_small_one_plain(talk):
    server, transport = talk
    assert transport.announce(START).meaning is Meaning.TAKEN
    assert transport.send(batch(10)).meaning is Meaning.TAKEN
    assert transport.send(batch(2000, first=11)).meaning is Meaning.TAKEN
    assert server.encodings == ["identity", "identity", "gzip"]
    assert server.only().next_seq == 2011


@pytest.mark.parametrize("status", [400, 415, 422])
def test_a_server_that_knows_no_compression_is_asked_again_plain_once_and_never_again(talk, status):
    server, transport = talk
    server.knows_gzip, server.without_gzip = False, problem(status, detail="the body is not JSON in UTF-8")
    transport.announce(START)
    for first in (1, 2001, 4001):
        assert transport.send(batch(2000, first)).meaning is Meaning.TAKEN
    assert server.encodings == ["identity", "gzip", "identity", "identity", "identity"]
    assert server.only().doubled == 0


def test_a_server_that_has_taken_a_compressed_batch_is_believed_when_it_refuses_one(talk):
    server, transport = talk
    transport.announce(START)
    transport.send(batch(2000))
    server.script = lambda asked: problem(422, detail="a bad record")
    assert transport.send(batch(2000, first=2001)).meaning is Meaning.REFUSED_CONTENT
    assert server.encodings == ["identity", "gzip", "gzip"]


def test_a_server_that_refuses_a_batch_in_either_form_still_gets_the_next_one_compressed(talk):
    server, transport = talk
    transport.announce(START)
    server.script = lambda asked: problem(422, detail="a bad record")
    assert transport.send(batch(2000)).meaning is Meaning.REFUSED_CONTENT
    server.script = lambda asked: None
    assert transport.send(batch(2000)).meaning is Meaning.TAKEN
    assert server.encodings == ["identity", "gzip", "identity", "gzip"]


def test_what_shrinks_like_a_bomb_goes_plain(talk):
    """The server refuses what inflates to more than 100 times its size, whoever sends it."""
    server, transport = talk
    transport.announce(START)
    record = Report("c1", CommandState.FAILED, 1.0, 1, "x" * 60_000)
    told = Batch("run", "inc", 0, 1, 1, 1.0, (), (Numbered(1, record),))
    assert len(codec.encode(told)) > 100 * len(zlib.compress(codec.encode(told), 1))
    assert transport.send(told).meaning is Meaning.TAKEN
    assert server.encodings == ["identity", "identity"]


def test_a_415_to_a_plain_body_is_not_lossguard(talk):
    server, transport = talk
    server.script = lambda asked: problem(415, detail="no")
    assert transport.announce(START).meaning is Meaning.NOT_LOSSGUARD


REPLY = b'{"next_seq":1}'
HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(REPLY)}\r\n".encode()


@contextlib.contextmanager
def dripping(parts):
    """A server that takes requests and sends `parts(n)` to the n-th connection, a piece every 20 ms."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for part in parts:
                if over.wait(0.02):
                    return
                connection.sendall(part)
            over.wait()

    def serve() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    over.set()
    thread.join(5)
    listener.close()


DRIPS = {
    "its headers": (HEAD[i : i + 1] for i in range(len(HEAD))),
    "headers without end": (b"X-Drip: 1\r\n" if i else HEAD for i in range(10**6)),
    "its body": (HEAD + b"\r\n" if i == 0 else b" " for i in range(10**6)),
    "interim answers without end": (b"HTTP/1.1 100 Continue\r\n\r\n" for _ in range(10**6)),
    "chunks without end": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" if i == 0 else b"1\r\n \r\n" for i in range(10**6)
    ),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_drips_holds_a_thread_no_longer_than_an_exchange_may_take(what, monkeypatch):
    monkeypatch.setattr(transport_module, "EXCHANGE_SECONDS", 0.5)
    with dripping(DRIPS[what]) as url:
        transport = HttpTransport(Config(url, "secret"))
        began = time.monotonic()
        answer = transport.beat(Heartbeat("run", "inc", 0, 1.0, Phase.TRAINING))
        assert time.monotonic() - began < patience(5.0), "a wait of 10 s begins at each byte"
        assert answer.meaning in (Meaning.UNREACHABLE, Meaning.BUSY)
        transport.close()


def test_a_reply_that_comes_in_pieces_but_in_time_is_taken():
    whole = HEAD + b"\r\n" + REPLY
    with dripping([whole[i : i + 20] for i in range(0, len(whole), 20)]) as url:
        transport = HttpTransport(Config(url, "secret"))
        answer = transport.beat(Heartbeat("run", "inc", 0, 1.0, Phase.TRAINING))
        assert answer.meaning is Meaning.TAKEN, answer
        assert answer.reply.next_seq == json.loads(REPLY)["next_seq"]
        transport.close()
