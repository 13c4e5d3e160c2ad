"""A TCP proxy on loopback that does harm as told, between the agent and a real server.

    proxy.refuses = True          connections are refused
    proxy.hangs = True            they are accepted, and nothing moves any more
    proxy.latency_seconds = 0.2   each piece comes later
    proxy.bytes_per_second = 8192 in each direction of each connection
    proxy.harm = f                f(n) -> Harm | None: what becomes of connection number n

All may be changed while connections are open. It counts what it did.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

PIECE = 65_536


@dataclass(frozen=True)
class Harm:
    """The connection ends after so many bytes up (to the server) or down; `resets` ends it with a reset in place of a close."""

    up: int | None = None
    down: int | None = None
    resets: bool = False


class FaultProxy:
    """Use as a context manager; `url` is where the agent goes."""

    def __init__(self, target: str, harm: Callable[[int], Harm | None] = lambda _: None) -> None:
        parts = urlsplit(target)
        self.target, self.harm = (parts.hostname, parts.port), harm
        self.hangs = False
        self.latency_seconds = 0.0
        self.bytes_per_second: float | None = None
        self.connections = self.cuts = self.most_open = 0
        self.up_bytes = self.down_bytes = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def open(self) -> int:
        """Connections of the agent that are open now."""
        return len(self._open)

    @property
    def refuses(self) -> bool:
        return self._refuses

    @refuses.setter
    def refuses(self, value: bool) -> None:
        self._refuses = value
        self._call(self._stop_listening() if value else self._listen())

    def drop_all(self) -> None:
        """Reset every open connection."""
        self._call(self._drop())

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        if self._server is None:
            listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
            self.port = listener.getsockname()[1]
            self._server = await asyncio.start_server(self._accept, sock=listener)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._open):
            _reset(writer)

    async def _close(self) -> None:
        await self._stop_listening()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        harm = self.harm(self.connections) or Harm()
        self._open.add(writer)
        self.most_open = max(self.most_open, len(self._open))
        back: asyncio.StreamWriter | None = None
        with suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(*self.target)
            pumps = [self._pump(reader, back, harm.up, "up_bytes"), self._pump(there, writer, harm.down, "down_bytes")]
            tasks = [asyncio.ensure_future(pump) for pump in pumps]
            done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() for task in done):
                self.cuts += 1
                if harm.resets:
                    _reset(writer)
            for task in left:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._open.discard(writer)
        for each in (writer, back):
            if each is not None:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None, counter: str) -> bool:
        """Moves bytes until the end; whether the limit ended it."""
        moved = 0
        with suppress(ConnectionError):
            while data := await reader.read(PIECE):
                await self._hold(len(data))
                part = data if limit is None else data[: limit - moved]
                writer.write(part)
                await writer.drain()
                moved += len(part)
                setattr(self, counter, getattr(self, counter) + len(part))
                if limit is not None and moved >= limit:
                    return True
        return False

    async def _hold(self, count: int) -> None:
        while self.hangs:  # noqa: ASYNC110 -- set from another thread
            await asyncio.sleep(0.02)
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        if self.bytes_per_second:
            await asyncio.sleep(count / self.bytes_per_second)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
