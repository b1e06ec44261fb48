"""Entries of the kernel's table of connections, read at fixed places or attribute by attribute, and whose they are."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

import pytest

from cni.edge.connection_table import LIVING, PASSING, UNANSWERED, Entry, Walk, entry
from nodelib.netlink.framing import attribute, nested

UDP, TCP, ICMP = 17, 6, 1
SEEN, ESTABLISHED, TIME_WAIT = 1 << 1 | 1 << 3, 3, 7


def ends(kind: int, source: str, to: str, protocol: int) -> bytes:
    one, other = ip_address(source).packed, ip_address(to).packed
    first = 1 if len(one) == 4 else 3
    address = nested(1, attribute(first, one) + attribute(first + 1, other))
    ports = attribute(1, bytes((protocol,)))
    if protocol == ICMP:
        ports += attribute(4, b"\0\1") + attribute(5, b"\x08") + attribute(6, b"\0")
    else:
        ports += attribute(2, struct.pack(">H", 1024)) + attribute(3, struct.pack(">H", 53))
    return nested(kind, address + nested(2, ports))


def payload(
    source: str, to: str, protocol: int = UDP, *, status: int = 8, state: int = 0, counters: bool = False
) -> bytes:
    """As the kernel writes an entry: nfgenmsg, both tuples, status, timeout, counters if it counts, TCP's state."""
    family = socket.AF_INET if ":" not in source else socket.AF_INET6
    parts = [ends(1, source, to, protocol), ends(2, to, source, protocol)]
    parts += [attribute(3, struct.pack(">I", status)), attribute(7, struct.pack(">I", 30))]
    if counters:
        parts.append(nested(9, attribute(1, bytes(8)) + attribute(2, bytes(8))))
    if protocol == TCP:
        parts.append(nested(4, nested(1, attribute(1, bytes((state,))) + attribute(2, b"\7"))))
    return struct.pack(">BBH", family, 0, 0) + b"".join([*parts, attribute(12, bytes(4))])


@pytest.mark.parametrize("counters", [False, True])
@pytest.mark.parametrize(("source", "to"), [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
@pytest.mark.parametrize(
    ("protocol", "status", "state", "kind"),
    [
        (UDP, 8, 0, UNANSWERED),
        (UDP, SEEN, 0, PASSING),
        (ICMP, 8, 0, UNANSWERED),
        (ICMP, SEEN, 0, PASSING),
        (TCP, 8, 1, UNANSWERED),
        (TCP, SEEN, 2, PASSING),
        (TCP, SEEN, ESTABLISHED, LIVING),
        (TCP, SEEN, 4, LIVING),
        (TCP, SEEN, TIME_WAIT, PASSING),
    ],
)
def test_what_an_entry_says(
    source: str, to: str, protocol: int, status: int, state: int, kind: int, counters: bool
) -> None:
    data = payload(source, to, protocol, status=status, state=state, counters=counters)
    wanted = Entry(ip_address(source).packed, ip_address(to).packed, kind, ends(1, source, to, protocol))
    assert entry(b"head" + data + b"more", 4, 4 + len(data)) == wanted


@pytest.mark.parametrize("data", [b"\x01\0\0\0", b"\x02\0\0\0", b"\x02\0\0\0" + attribute(1, b"") + attribute(2, b"")])
def test_what_is_no_entry_of_ours(data: bytes) -> None:
    assert entry(data, 0, len(data)) is None


def walk(quotas: dict[tuple[bool, bytes], list[int]] | None = None) -> Walk:
    own = frozenset({ip_address("10.0.0.254").packed})
    return Walk([(4, 0xFFFFFF00, 0x0A000000), (16, (1 << 128) - (1 << 64), 0xFD << 120)], own, quotas or {})


def see(made: Walk, source: str, to: str, status: int = SEEN) -> bool:
    data = payload(source, to, status=status)
    found = entry(data, 0, len(data))
    assert found is not None
    return made.see(found)


@pytest.mark.parametrize(
    ("source", "to", "held"),
    [
        ("10.0.0.1", "192.0.2.1", [[False, "10.0.0.1", [0, 1, 0]]]),
        ("10.0.0.1", "10.0.0.2", [[False, "10.0.0.1", [0, 1, 0]]]),
        ("192.0.2.1", "10.0.0.2", [[True, "10.0.0.2", [0, 1, 0]]]),
        ("fd00::1", "2001:db8::1", [[False, "fd00::1", [0, 1, 0]]]),
        ("10.0.0.254", "10.0.0.2", []),  # the node
        ("192.0.2.1", "10.0.0.254", []),
        ("127.0.0.1", "10.0.0.2", []),  # a hostPort by the node's loopback
        ("192.0.2.1", "192.0.2.2", []),
    ],
)
def test_who_is_charged(source: str, to: str, held: list[object]) -> None:
    made = walk()
    assert not see(made, source, to)
    assert made.answer() == {"entries": 1, "held": held, "deleted": 0}


def test_a_quota_is_used_up_class_by_class() -> None:
    made = walk({(False, ip_address("10.0.0.1").packed): [1, 0, 0]})
    doomed = [see(made, "10.0.0.1", "192.0.2.1", status) for status in (SEEN, 8, 8)]
    assert doomed == [False, True, False]
    assert made.answer()["held"] == [[False, "10.0.0.1", [1, 1, 0]]]
    assert not see(made, "192.0.2.1", "10.0.0.1", 8)  # what it has received is another's quota


def test_the_answer_has_the_largest_holders_only() -> None:
    made = walk()
    for number in range(3000):
        see(made, f"fd00::{number:x}", "2001:db8::1")
    see(made, "fd00::5", "2001:db8::1")
    held = made.answer()["held"]
    assert len(held) == 1024
    assert held[0] == [False, "fd00::5", [0, 2, 0]]
