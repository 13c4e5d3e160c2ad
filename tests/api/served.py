"""A real server on loopback for the tests of the API: uvicorn in a thread, over a real database."""

import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

import httpx2

from server.__main__ import Server
from server.app import create_app
from server.domain.access import Role
from server.services import access
from server.settings import Settings
from trainer_agent.wire.codec import encode
from trainer_agent.wire.messages import Batch, Column, Numbered, RunStart, SegmentStarted
from trainer_agent.wire.vocabulary import CommandKind, SegmentCause

_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used on loopback, and slow to make anew for each client


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Served:
    """A running server, and tokens for it."""

    settings: Settings
    now: object = utc_now
    tokens: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.app = create_app(self.settings, self.now)
        self.app.state.own_port = self.port
        self._server = Server(self.app, {"url": self.url, "sign_in": "", "agent_token_file": ""}, None)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 30
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self._server.started, "the server did not start"
        for name, role in (("agent", Role.AGENT), ("other agent", Role.AGENT), ("operator", Role.OPERATOR)):
            self.tokens[name] = self.make_token(role, name)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not end"

    @property
    def context(self):
        return self.app.state.context

    def make_token(self, role: Role, name: str) -> str:
        return self.context.database.writer.submit(lambda c: access.create_token(c, role, name, utc_now()))

    def make_code(self) -> str:
        return self.context.database.writer.submit(lambda c: access.create_sign_in_code(c, utc_now()))

    def client(self, who: str | None = None, **headers: str) -> httpx2.Client:
        """A client with the token of `who`."""
        bearer = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return httpx2.Client(base_url=self.url, headers={**bearer, **headers}, timeout=20, trust_env=False, verify=_TLS)

    def browser(self) -> httpx2.Client:
        """A client that has signed in as a browser does."""
        same_site = {"X-LossGuard": "1", "Sec-Fetch-Site": "same-origin", "Origin": self.url}
        client = self.client(**same_site)
        assert client.post("/api/session", json={"code": self.make_code()}).status_code == 204
        return client


JSON = {"Content-Type": "application/json"}


def start(run_id: str, incarnation: str = "life-1", **more) -> bytes:
    """A RunStart, as bytes."""
    capable = (CommandKind.STOP, CommandKind.ROLLBACK)
    return encode(RunStart(run_id, incarnation, "project", f"name of {run_id}", capabilities=capable, **more))


def batch(run_id: str, values: dict[str, list[float]], first_seq: int = 2, *, records: tuple = (), segment: int = 1) -> bytes:
    """A Batch with one record a step, as bytes. Record 1 is the start of the segment, unless others are given."""
    if first_seq == 2 and not records:
        records = (Numbered(1, SegmentStarted(1, 0, SegmentCause.START, 0.0)),)
    length = len(next(iter(values.values()))) if values else 0
    seqs = tuple(range(first_seq, first_seq + length))
    columns = tuple(
        Column(series, segment, seqs, tuple(seq - 1 for seq in seqs), tuple(float(seq) for seq in seqs), tuple(each))
        for series, each in values.items()
    )
    numbers = [*seqs, *(record.seq for record in records)]
    return encode(Batch(run_id, "life-1", 0, min(numbers), max(numbers), 0.0, columns, records))


def begin(served: Served, run_id: str, values: dict[str, list[float]] | None = None) -> None:
    """A run with a first batch of points."""
    with served.client("agent", **JSON) as agent:
        assert agent.post("/api/agent/runs", content=start(run_id)).status_code == 200
        answer = agent.post("/api/agent/batches", content=batch(run_id, values or {"train/loss": [3.0, 2.0, 1.0]}))
        assert answer.status_code == 200, answer.text
