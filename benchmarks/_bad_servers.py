"""Servers that are no help: one that never answers, one that is not there, one that answers late. On loopback."""

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LOOK_SECONDS = 0.05


@contextmanager
def hung() -> Iterator[str]:
    """The address of a server that takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, _running(lambda stop: _swallow(listener, stop)):
        yield _address(listener)


@contextmanager
def refusing() -> Iterator[str]:
    """The address of a port where nobody listens, kept so that nobody else can."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield _address(holder)


@contextmanager
def slow(url: str, seconds: float) -> Iterator[str]:
    """The address of a way to the server at `url` on which every answer takes `seconds` longer."""
    target = urlsplit(url)
    relay = _Relay((target.hostname or "127.0.0.1", target.port or 80), seconds)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, _running(lambda stop: relay.run(listener, stop)):
        yield _address(listener)


def _address(opened: socket.socket) -> str:
    host, port = opened.getsockname()
    return f"http://{host}:{port}"


@contextmanager
def _running(work: Callable[[threading.Event], None]) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _swallow(listener: socket.socket, stop: threading.Event) -> None:
    listener.settimeout(LOOK_SECONDS)
    kept = []
    while not stop.is_set():
        with suppress(TimeoutError):
            kept.append(listener.accept()[0])
    for each in kept:
        each.close()


@dataclass(eq=False)
class _End:
    """One end of a connection through the relay, and what is still to be written to it: when, what."""

    opened: socket.socket
    other: "_End | None" = None
    due: deque[tuple[float, bytes]] = field(default_factory=deque)
    delay: float = 0.0


class _Relay:
    """Carries bytes both ways; those from the server wait for `seconds`."""

    def __init__(self, target: tuple[str, int], seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._ends: set[_End] = set()

    def run(self, listener: socket.socket, stop: threading.Event) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not stop.is_set():
                for key, _ in selector.select(LOOK_SECONDS):
                    self._open(listener, selector) if key.data is None else self._read(key.data, selector)
                for end in list(self._ends):
                    self._write(end, selector)
        for end in self._ends:
            end.opened.close()

    def _open(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        client = _End(listener.accept()[0], delay=self._seconds)
        server = _End(socket.create_connection(self._target, timeout=5), client)
        client.other = server
        for end in (client, server):
            self._ends.add(end)
            selector.register(end.opened, selectors.EVENT_READ, end)

    def _read(self, end: _End, selector: selectors.BaseSelector) -> None:
        """What came from one end is due at the other; nothing came: the connection is over, for both."""
        data = b""
        with suppress(OSError):
            data = end.opened.recv(1 << 16)
        if end.other is None:
            return
        if data:
            end.other.due.append((time.monotonic() + end.other.delay, data))
            self._write(end.other, selector)
            return
        for each in (end, end.other):
            self._close(each, selector)

    def _write(self, end: _End, selector: selectors.BaseSelector) -> None:
        try:
            while end.due and end.due[0][0] <= time.monotonic():
                end.opened.sendall(end.due.popleft()[1])
        except OSError:
            self._close(end, selector)

    def _close(self, end: _End, selector: selectors.BaseSelector) -> None:
        if end in self._ends:
            self._ends.discard(end)
            selector.unregister(end.opened)
            end.opened.close()
