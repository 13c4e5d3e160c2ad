"""A webhook receiver as somebody's own program would have one: verifies each message before it believes it."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

LARGEST_BODY = 1 << 20


class Receiver:
    """Listens on a free loopback port. `ids` are the webhook-ids of the messages whose signature was right.

    Thread: the server's own threads call `on_message(data, verified)`.
    """

    def __init__(self, on_message: Callable[[dict[str, Any], bool], None]) -> None:
        self.on_message = on_message
        self.secret = ""
        self.ids: list[str] = []
        self.refused = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook-receiver", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to send to."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        """The HTTP status to answer: 204 for a message that is really from our server."""
        try:
            message = Webhook(self.secret).verify(body, headers)
        except (WebhookVerificationError, ValueError):
            self.refused += 1
            self.on_message({}, False)  # noqa: FBT003
            return 400
        if headers["webhook-id"] not in self.ids:  # at least once: the same message may come again
            self.ids.append(headers["webhook-id"])
            self.on_message(message, True)  # noqa: FBT003
        return 204

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = min(int(self.headers.get("content-length") or 0), LARGEST_BODY)
                status = receiver.take(self.rfile.read(length), {name.lower(): value for name, value in self.headers.items()})
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet: the demo prints what was received, not that something was."""

        return Handler


def line(message: dict[str, Any]) -> str:
    """One received message in one line."""
    data = message.get("data", {})
    step = f" at step {data['step']}" if message.get("type") in {"incident.firing", "incident.resolved"} else ""
    about = f"{message.get('type')} of {data.get('run_name')}: {data.get('title')}{step}. {data.get('text') or ''}"
    return about.strip() if message else "no message"
