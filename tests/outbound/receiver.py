"""A scripted webhook receiver on loopback: real sockets, answers as told."""

import socket
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Received:
    """One request as it came in."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers the n-th request with the n-th of `answers`, and the last one for ever after.

    An answer is raw bytes, or a function that is given the connection.
    """

    answers: list
    received: list[Received] = field(default_factory=list)

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()

    @property
    def closing(self) -> threading.Event:
        return self._closing

    def wait_for(self, count: int, seconds: float = 60.0) -> list[Received]:
        """The requests so far, once there are `count`."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, seconds), f"only {len(self.received)} came"
            return list(self.received)

    def _accept(self):
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            request = _read(connection)
            with self._changed:
                answer = self.answers[min(len(self.received), len(self.answers) - 1)]
                self.received.append(request)
                self._changed.notify_all()
            answer(self, connection) if callable(answer) else connection.sendall(answer)
        except OSError:
            pass
        finally:
            connection.close()


def _read(connection) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536) or _broken()
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = dict(each.split(": ", 1) for each in lines)
    headers = {name.lower(): value for name, value in headers.items()}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536) or _broken()
    return Received(line, headers, body)


def _broken():
    raise OSError("the request broke off")


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """An answer in full."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def hang(receiver: Receiver, connection) -> None:
    """Never answer."""
    receiver.closing.wait(60)


def drip(receiver: Receiver, connection) -> None:
    """Answer a byte at a time, for ever: each byte comes well within any limit on a single read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not receiver.closing.is_set():
        connection.sendall(b"a")
        time.sleep(0.05)


def drip_body(receiver: Receiver, connection) -> None:
    """A quick head, then a body that drips."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not receiver.closing.is_set():
        connection.sendall(b"a")
        time.sleep(0.05)


def pour(receiver: Receiver, connection) -> None:
    """A body without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not receiver.closing.is_set():
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
