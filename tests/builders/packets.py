"""Packets as bytes from the network header on, and the datagrams in which the kernel reports them."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from nodelib.netlink.framing import HEADER, attribute

TCP, UDP, ICMP = 6, 17, 1
SYN, SYN_ACK, ACK = 0x02, 0x12, 0x10


def packet(
    source: str, target: str, protocol: int = TCP, ports: tuple[int, int] = (40000, 80), flags: int = SYN
) -> bytes:
    ends = ip_address(source).packed + ip_address(target).packed
    rest = b"" if protocol not in (TCP, UDP) else struct.pack(">HH", *ports)
    if protocol == TCP:
        rest += bytes(8) + bytes((0x50, flags)) + bytes(6)
    if len(ends) == 8:
        return (
            bytes((0x45, 0))
            + struct.pack(">H", 20 + len(rest))
            + bytes(5)
            + bytes((protocol,))
            + bytes(2)
            + ends
            + rest
        )
    return bytes((0x60, 0, 0, 0)) + struct.pack(">HBB", len(rest), protocol, 64) + ends + rest


def report(prefix: str, data: bytes, number: int | None = None) -> bytes:
    """One record of nfnetlink_log."""
    body = attribute(1, bytes(4)) + attribute(10, prefix.encode() + b"\0")
    body += attribute(12, struct.pack(">I", number)) if number is not None else b""
    payload = bytes((2, 0, 0, 0)) + body + attribute(9, data)
    message = HEADER.pack(HEADER.size + len(payload), 4 << 8, 0, 0, 0) + payload
    return message + bytes(-len(message) % 4)
