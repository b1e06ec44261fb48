"""Reads the kernel's entries of connection tracking (linux/netfilter/nfnetlink_conntrack.h). Touches nothing.

A table has hundreds of thousands of them. The kernel writes the addresses of nearly all in the same way, and those are
read by their places: in half of the time that it takes to look at each attribute.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from nodelib.netlink.framing import attribute, attributes, nested
from nodelib.netlink.netfilter import GENMSG

ORIGINAL, REPLY = 1, 2  # CTA_TUPLE_*
IP, PROTO = 1, 2
SOURCE, DESTINATION = {Family.IPV4: 1, Family.IPV6: 3}, {Family.IPV4: 2, Family.IPV6: 4}
NUMBER, SOURCE_PORT, DESTINATION_PORT = 1, 2, 3
_UDP = socket.IPPROTO_UDP
_BYTES = {Family.IPV4: 4, Family.IPV6: 16}
Tuple = tuple[bytes, int, bytes, int]


@dataclass(frozen=True, slots=True)
class _Usual:
    """The usual form of an entry: which of its bits are fixed, and what they are; its size; places in a tuple."""

    fixed: int
    bits: int
    size: int
    tuple_size: int
    source: int
    destination: int
    protocol: int


def udp_flow(body: bytes, family: Family) -> UdpFlow | None:
    """The flow of one entry, None if it is not UDP."""
    usual, size = _USUAL[family], _BYTES[family]
    head = body[GENMSG : GENMSG + usual.size]
    if len(head) < usual.size or int.from_bytes(head, "big") & usual.fixed != usual.bits:
        return _any_form(body, family)
    if head[usual.protocol] != _UDP:
        return None
    source, destination, ports = usual.source, usual.destination, usual.protocol + 8
    answer = usual.tuple_size
    return UdpFlow(
        _text(head[source : source + size]),
        int.from_bytes(head[ports : ports + 2], "big"),
        _text(head[destination : destination + size]),
        int.from_bytes(head[ports + 8 : ports + 10], "big"),
        _text(head[answer + source : answer + source + size]),
        int.from_bytes(head[answer + ports : answer + ports + 2], "big"),
    )


def _usual(family: Family) -> _Usual:
    size = _BYTES[family]
    ones, zeros = b"\xff" * size, bytes(size)
    full, empty = (
        nested(kind, nested(IP, attribute(SOURCE[family], address) + attribute(DESTINATION[family], address)) + proto)
        for address, kind, proto in ((ones, ORIGINAL, _proto(b"\xff")), (zeros, ORIGINAL, _proto(b"\0")))
    )
    source = 4 + 4 + 4
    destination = source + size + 4
    # What differs between the two are the addresses, the protocol and the ports.
    varies = int.from_bytes(full, "big") ^ int.from_bytes(empty, "big")
    both = varies << 8 * len(full) | varies
    every = (1 << 16 * len(full)) - 1
    answer = nested(REPLY, empty[4:])
    bits = int.from_bytes(empty + answer, "big")
    return _Usual(every ^ both, bits, 2 * len(full), len(full), source, destination, destination + size + 4 + 4)


def _proto(byte: bytes) -> bytes:
    ports = attribute(SOURCE_PORT, 2 * byte) + attribute(DESTINATION_PORT, 2 * byte)
    return nested(PROTO, attribute(NUMBER, byte) + ports)


def _any_form(body: bytes, family: Family) -> UdpFlow | None:
    original: Tuple | None = None
    for kind, value in attributes(body, GENMSG):
        if kind == ORIGINAL:
            original = _tuple(value, family)
            if original is None:
                return None
        elif kind == REPLY and original is not None:
            reply = _tuple(value, family)
            if reply is not None:
                source, source_port, destination, port = original
                ends = _text(source), source_port, _text(destination), port
                return UdpFlow(*ends, _text(reply[0]), reply[1])
    return None


def _tuple(value: bytes, family: Family) -> Tuple | None:
    parts = dict(attributes(value))
    protocol = dict(attributes(parts.get(PROTO, b"")))
    if protocol.get(NUMBER, b"")[:1] != bytes((_UDP,)):
        return None
    address = dict(attributes(parts[IP]))
    return (
        address[SOURCE[family]],
        _port(protocol, SOURCE_PORT),
        address[DESTINATION[family]],
        _port(protocol, DESTINATION_PORT),
    )


def _port(protocol: dict[int, bytes], which: int) -> int:
    value = protocol.get(which)
    return int.from_bytes(value[:2], "big") if value else 0


def _text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


_USUAL = {family: _usual(family) for family in Family}
