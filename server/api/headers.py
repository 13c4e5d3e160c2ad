"""What surrounds every answer: the host names answered to, and the headers that keep browsers strict.

Without the check of the Host header, any page could reach a server on loopback through a name of its own (DNS rebinding).
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.settings import LOOPBACK_HOSTS, Settings

from .problems import Problem

# No inline style either: measured with Plotly 4.1 drawing, zooming and hovering, given its style sheet as a file of ours.
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "object-src 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
)
CONTENT_SECURITY_POLICY = "; ".join(_POLICY)

_ALWAYS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class StrictHeaders:
    """Adds the headers, and keeps answers of the API out of caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class HostCheck:
    """Answers 421 to a host name that is not the server's own."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        own = urlsplit(settings.public_url or "").hostname
        names = (*LOOPBACK_HOSTS, *settings.allowed_hosts, *([own] if own else []))
        wildcard = settings.host in {"", "0.0.0.0", "::"}  # noqa: S104 -- compared, not bound
        self._names = frozenset(_bare(name) for name in (names if wildcard else (*names, settings.host)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and _hostname(Headers(scope=scope).get("host", "")) not in self._names:
            problem = Problem(421, "this server does not go by that host name", "name it in LOSSGUARD_ALLOWED_HOSTS")
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _hostname(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return _bare(name)


def _bare(name: str) -> str:
    return name.strip().lower().strip("[]").rstrip(".")
