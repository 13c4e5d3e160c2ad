"""A little LossGuard server on loopback that keeps what it took, and misbehaves as scripted."""

import contextlib
import json
import math
import socket
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from trainer_agent.wire import codec
from trainer_agent.wire.commands import Command
from trainer_agent.wire.messages import Batch, Dropped, Heartbeat, Numbered, Reply, RunStart, Verdict

HANG, CUT, TAKE_AND_CUT = "hang", "cut", "take and cut"


@dataclass
class Asked:
    """One request: `kind` is start, batch, beat or poll."""

    kind: str
    message: object
    token: str


@dataclass
class Kept:
    """What the server has of one incarnation."""

    start: RunStart
    next_seq: int = 1
    points: dict[tuple[str, int], tuple[int, int, float]] = field(default_factory=dict)
    records: dict[int, object] = field(default_factory=dict)
    doubled: int = 0

    def numbers(self) -> set[int]:
        found = {seq for _, seq in self.points}
        for seq, record in self.records.items():
            found |= set(range(seq, seq + (record.count if isinstance(record, Dropped) else 1)))
        return found

    def series(self, name: str) -> list[tuple[int, float]]:
        return [
            (step, value)
            for (series, _), (_, step, value) in sorted(self.points.items(), key=lambda item: item[0][1])
            if series == name
        ]

    def of(self, kind: type) -> list:
        return [record for _, record in sorted(self.records.items()) if isinstance(record, kind)]


class ScriptedServer:
    """`script(asked)` gives None (behave), HANG, CUT, TAKE_AND_CUT, or (status, headers, body)."""

    def __init__(self, script: Callable[[Asked], object] = lambda _: None, port: int = 0) -> None:
        self.script = script
        self.kept: dict[str, Kept] = {}
        self.asked: list[Asked] = []
        self.commands: list[Command] = []
        self.verdicts: list[Verdict] = []
        self.page_url = ""
        self.known = True
        self.knows_gzip = True
        self.without_gzip: object = problem(415, detail="the body is encoded")
        self.encodings: list[str] = []
        self.changed = threading.Condition()
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                encoding = self.headers.get("Content-Encoding", "identity")
                server.encodings.append(encoding)
                if encoding == "identity":
                    server.handle(self, body)
                elif server.knows_gzip:
                    server.handle(self, zlib.decompress(body, 31))
                else:
                    server.answer(self, server.without_gzip)

            def do_GET(self):
                server.handle(self, b"")

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.http = Http(("127.0.0.1", port), Handler)
        self.port = self.http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self.closing.set()
        with self.changed:
            self.changed.notify_all()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    def wait(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, seconds), "what was waited for did not come"

    def count(self, kind: str) -> int:
        return sum(asked.kind == kind for asked in self.asked)

    def push(self, command: Command) -> None:
        with self.changed:
            self.commands.append(command)
            self.changed.notify_all()

    def only(self) -> Kept:
        (kept,) = self.kept.values()
        return kept

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        path = urlsplit(handler.path)
        kind = {"/api/agent/runs": "start", "/api/agent/batches": "batch", "/api/agent/heartbeats": "beat"}.get(path.path, "poll")
        decoded = (
            codec.decode({"start": RunStart, "batch": Batch, "beat": Heartbeat}[kind], body) if body else parse_qs(path.query)
        )
        asked = Asked(kind, decoded, handler.headers["Authorization"].removeprefix("Bearer "))
        with self.changed:
            self.asked.append(asked)
            answer = self.script(asked)
            if answer in (None, TAKE_AND_CUT):
                taken = self.take(asked)
                answer = CUT if answer == TAKE_AND_CUT else taken
            self.changed.notify_all()
        self.answer(handler, answer)

    def answer(self, handler: BaseHTTPRequestHandler, answer: object) -> None:
        if answer == HANG:
            self.closing.wait()
            answer = CUT
        if answer == CUT:
            handler.close_connection = True
            with contextlib.suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
            return
        status, headers, body = answer
        head = [
            f"HTTP/1.1 {status} X",
            f"Content-Length: {len(body)}",
            *(f"{key}: {value}" for key, value in headers.items()),
            "",
            "",
        ]
        handler.wfile.write("\r\n".join(head).encode() + body)

    def take(self, asked: Asked):
        if asked.kind == "poll":
            incarnation = asked.message["incarnation"][0]
            self.changed.wait_for(lambda: self.commands or self.closing.is_set(), float(asked.message["wait"][0]))
            return self.reply(incarnation)
        if not self.known:
            return problem(404, detail="there is no such run")
        if asked.kind == "start":
            self.kept.setdefault(asked.message.incarnation, Kept(asked.message))
        kept = self.kept.get(asked.message.incarnation)
        if kept is None:
            return problem(404, detail="unknown incarnation")
        if asked.kind == "batch" and (refused := self.store(kept, asked.message)):
            return refused
        return self.reply(asked.message.incarnation)

    def store(self, kept: Kept, batch: Batch):
        codec.check_batch(batch)
        if batch.first_seq > kept.next_seq:
            return problem(409, next_seq=kept.next_seq)
        for column in batch.columns:
            for seq, step, value in zip(column.seq, column.step, column.value, strict=True):
                if seq >= kept.next_seq:
                    kept.doubled += (column.series, seq) in kept.points
                    kept.points[column.series, seq] = (column.segment, step, value)
        for numbered in batch.records:
            last = numbered.seq + (numbered.record.count - 1 if isinstance(numbered.record, Dropped) else 0)
            if last >= kept.next_seq:
                kept.doubled += numbered.seq in kept.records
                kept.records[numbered.seq] = numbered.record
        kept.next_seq = max(kept.next_seq, batch.last_seq + 1)
        return None

    def reply(self, incarnation: str):
        next_seq = self.kept[incarnation].next_seq if incarnation in self.kept else 1
        body = codec.encode(Reply(next_seq, tuple(self.commands), tuple(self.verdicts), self.page_url))
        return 200, {"Content-Type": "application/json"}, body


def problem(status: int, **members: object):
    return status, {"Content-Type": "application/problem+json"}, json.dumps({"status": status, **members}).encode()


def same(left: float, right: float) -> bool:
    return left == right or (math.isnan(left) and math.isnan(right))


__all__ = ["CUT", "HANG", "TAKE_AND_CUT", "Asked", "Kept", "Numbered", "ScriptedServer", "problem", "same"]
