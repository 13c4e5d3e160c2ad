import asyncio
import ipaddress

import pytest

from server.outbound import webhooks as outbound
from server.outbound.addresses import Forbidden, Policy, Unresolved, parse_target, resolve

# Every way we know of to spell an address that must not be reached, as an endpoint's URL.
FORBIDDEN = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8787/api/health",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://0.1.2.3/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fd20:ce::254]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[100::1]/",
    "http://[3fff::1]/",
    "http://[4000::1]/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://192.168.255.255/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://100.100.100.200/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://169.254.170.2/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://192.0.0.8/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://\u2460\u2461\u2466.0.0.1/",
    "http://\uff11\uff12\uff17.0.0.1/",
]

MALFORMED = [
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "javascript:alert(1)",
    "//example.org/",
    "example.org",
    "http://",
    "http:///path",
    "http://user@example.org/",
    "http://user:secret@example.org/",
    "http://example.org:99999/",
    "http://example.org:port/",
    "http://exa mple.org/",
    "http://example.org/\r\nX-Injected: 1",
    "http://example.org\\@127.0.0.1/",
    "http://[::1/",
    "",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_an_inside_address_is_refused_however_it_is_spelt(url):
    with pytest.raises((Forbidden, Unresolved)):
        asyncio.run(resolve(parse_target(url), Policy()))


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_that_no_webhook_may_have_is_refused_before_anything_is_looked_up(url):
    with pytest.raises(Forbidden):
        parse_target(url)


NEVER = [
    "169.254.169.254", "169.254.1.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fe80::1", "192.0.2.1",
]  # fmt: skip


@pytest.mark.parametrize("text", NEVER)
def test_no_setting_allows_metadata_link_local_or_wrapped_addresses(text):
    policy = Policy.parse(("true", "0.0.0.0/0", "::/0", "inside.example"))
    with pytest.raises(Forbidden):
        policy.check("inside.example", ipaddress.ip_address(text), 80)


@pytest.mark.parametrize(
    ("entries", "host", "address", "allowed"),
    [
        ((), "hook.example", "93.184.216.34", True),
        ((), "hook.example", "2606:2800:220:1:248:1893:25c8:1946", True),
        ((), "hook.example", "10.1.2.3", False),
        (("true",), "hook.example", "10.1.2.3", True),
        (("true",), "hook.example", "127.0.0.1", True),
        (("true",), "hook.example", "::1", True),
        (("10.1.0.0/16",), "hook.example", "10.1.2.3", True),
        (("10.1.0.0/16",), "hook.example", "10.2.2.3", False),
        (("127.0.0.1",), "localhost", "127.0.0.1", True),
        (("127.0.0.1",), "localhost", "127.0.0.2", False),
        (("hook.example",), "Hook.Example.", "10.1.2.3", True),
        (("hook.example",), "other.example", "10.1.2.3", False),
        (("false",), "hook.example", "10.1.2.3", False),
    ],
)
def test_inside_targets_are_allowed_by_name_or_network_only(entries, host, address, allowed):
    policy = Policy.parse(entries)
    if allowed:
        policy.check(host, ipaddress.ip_address(address), 443)
    else:
        with pytest.raises(Forbidden, match="LOSSGUARD_ALLOW_PRIVATE_WEBHOOKS"):
            policy.check(host, ipaddress.ip_address(address), 443)


def test_the_server_never_calls_its_own_port():
    policy = Policy.parse(("true",), own_port=8787)
    policy.check("localhost", ipaddress.ip_address("127.0.0.1"), 8788)
    with pytest.raises(Forbidden, match="own"):
        policy.check("localhost", ipaddress.ip_address("127.0.0.1"), 8787)


def test_every_address_of_a_name_must_be_allowed(monkeypatch):
    import socket

    def answers(host, port, **_):
        return [(None, None, None, "", (address, port)) for address in ("93.184.216.34", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    with pytest.raises(Forbidden):
        asyncio.run(resolve(parse_target("https://hook.example/"), Policy()))


def test_a_name_without_an_address_may_be_kept_and_is_checked_again_when_it_is_sent_to(monkeypatch):
    import socket

    def unknown(host, port, **_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    asyncio.run(outbound.check("https://hook.example/", Policy()))
    with pytest.raises(Unresolved):
        asyncio.run(resolve(parse_target("https://hook.example/"), Policy()))
