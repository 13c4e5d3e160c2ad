"""Where a webhook may connect to.

Judged is the *resolved* address, the very one that is then connected to: names, numbers in other bases and redirects can
spell the same inside address in many ways. `ipaddress.is_global` is not enough (it calls NAT64- and 6to4-wrapped loopback
and multicast global), so the list is written out.

Source: IANA special-purpose address registries for IPv4 and IPv6; OWASP SSRF prevention sheet.
"""

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


NEVER = {
    "a cloud metadata address": _networks(
        "169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
        "fd00:ec2::/64", "fd20:ce::254/128",
    ),
    "link-local": _networks("169.254.0.0/16", "fe80::/10"),
    "unspecified": _networks("0.0.0.0/8", "::/128"),
    "multicast": _networks("224.0.0.0/4", "ff00::/8"),
    "an IPv4 address inside an IPv6 one": _networks("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48"),
    "6to4": _networks("192.88.99.0/24", "2002::/16"),
    "Teredo": _networks("2001::/32"),
    "reserved": _networks(
        "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
        "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16",
    ),
}  # fmt: skip
"""Refused whatever the settings say."""

UNLESS_ALLOWED = {
    "loopback": _networks("127.0.0.0/8", "::1/128"),
    "private": _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    "shared address space": _networks("100.64.0.0/10"),
}
"""Refused unless the settings name the host or the network."""

GLOBAL_V6 = ipaddress.ip_network("2000::/3")


class Forbidden(Exception):  # noqa: N818 -- read as a sentence where it is raised
    """The address may not be connected to; the text says which kind it is and what allows it."""


class Unresolved(Exception):  # noqa: N818
    """The host name has no address."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which inside targets are allowed: all of loopback and private, single networks, single host names."""

    everything_inside: bool = False
    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()
    own_port: int | None = None
    """The server's own port, never a target on loopback: a webhook must not drive its own API."""

    @classmethod
    def parse(cls, entries: tuple[str, ...], own_port: int | None = None) -> "Policy":
        """The policy of the setting's entries: `true`, networks, addresses, host names."""
        words = {entry.lower() for entry in entries}
        networks, hosts = [], set()
        for word in words - {"true", "1", "yes", "false", "0", "no"}:
            try:
                networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                hosts.add(word.rstrip("."))
        return cls(bool(words & {"true", "1", "yes"}), tuple(networks), frozenset(hosts), own_port)

    def allows_inside(self) -> bool:
        """Whether any inside target is allowed."""
        return self.everything_inside or bool(self.networks or self.hosts)

    def check(self, host: str, address: Address, port: int) -> None:
        """That `address`, found for `host`, may be connected to.

        Raises:
            Forbidden: it may not.
        """
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            raise Forbidden("the address is bound to one interface, and is refused")
        kind = _kind(address, NEVER)
        if kind is not None and not (address == ipaddress.ip_address("::1")):
            raise Forbidden(f"the address is {kind}, and is refused")
        kind = _kind(address, UNLESS_ALLOWED)
        if kind is None and isinstance(address, ipaddress.IPv6Address) and address not in GLOBAL_V6:
            raise Forbidden("the address is reserved, and is refused")
        if kind is not None and not self._allows(host, address):
            raise Forbidden(f"the address is {kind}, and LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS does not name it")
        if kind == "loopback" and port == self.own_port:
            raise Forbidden("the address is this server's own")

    def _allows(self, host: str, address: Address) -> bool:
        named = host.lower().rstrip(".") in self.hosts or any(address in network for network in self.networks)
        return self.everything_inside or named


def _kind(address: Address, table: dict[str, tuple[Network, ...]]) -> str | None:
    return next((kind for kind, networks in table.items() if any(address in network for network in networks)), None)


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint's URL in parts. `host_header` is what its server expects to be called."""

    scheme: str
    host: str
    port: int
    path: str
    host_header: str


def parse_target(url: str) -> Target:
    """The parts of a URL a webhook may have: http or https, a host, no user name.

    Raises:
        Forbidden: it is not such a URL; the text says why.
    """
    if any(char <= " " or char in "\\\x7f" for char in url):
        raise Forbidden("the URL holds a space, a backslash or a control character")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        host = host.encode("idna").decode() if host and not host.isascii() else host
    except (ValueError, UnicodeError):
        raise Forbidden("the URL cannot be read: write it like https://example.org/hook") from None
    if parts.scheme not in {"http", "https"}:
        raise Forbidden("the URL must begin with http:// or https://")
    if not host or parts.username is not None or parts.password is not None:
        raise Forbidden("the URL must have a host, and no user name or password")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    default = 443 if parts.scheme == "https" else 80
    name = f"[{host}]" if ":" in host else host
    return Target(parts.scheme, host, port or default, path, name if port in {None, default} else f"{name}:{port}")


async def resolve(target: Target, policy: Policy) -> Address:
    """The address to connect to. Every address of the name must be allowed, not only the one taken.

    Raises:
        Forbidden: one of them is not.
        Unresolved: there is none.
    """
    try:
        found = await asyncio.wrap_future(_lookup(target.host, target.port))
    except (OSError, UnicodeError):
        raise Unresolved("the host name has no address") from None
    addresses = [ipaddress.ip_address(text) for text in found]
    for address in addresses:
        policy.check(target.host, address, target.port)
    if not addresses:
        raise Unresolved("the host name has no address")
    return addresses[0]


def _lookup(host: str, port: int) -> Future[list[str]]:
    """Resolve in a thread of its own: a name server that hangs must hold up neither a pool nor the loop's end."""
    future: Future[list[str]] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result([str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)])
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, name="resolve", daemon=True).start()
    return future
