"""DNS messages as bytes, without compression unless a test writes a pointer itself."""

from __future__ import annotations

import struct
from ipaddress import ip_address

A, CNAME, AAAA = 1, 5, 28
IN = 1


def name(text: str) -> bytes:
    labels = [one.encode() for one in text.split(".") if one]
    return b"".join(bytes((len(one),)) + one for one in labels) + b"\0"


def pointer(at: int) -> bytes:
    return struct.pack(">H", 0xC000 | at)


def record(owner: str | bytes, kind: int, data: bytes, seconds: int = 60, group: int = IN) -> bytes:
    head = name(owner) if isinstance(owner, str) else owner
    return head + struct.pack(">HHIH", kind, group, seconds, len(data)) + data


def address(owner: str | bytes, text: str, seconds: int = 60) -> bytes:
    one = ip_address(text)
    return record(owner, A if one.version == 4 else AAAA, one.packed, seconds)


def alias(owner: str | bytes, to: str | bytes, seconds: int = 60) -> bytes:
    return record(owner, CNAME, name(to) if isinstance(to, str) else to, seconds)


def message(
    asked: str | bytes, *records: bytes, kind: int = A, flags: int = 0x8180, number: int = 7, count: int | None = None
) -> bytes:
    """An answer. `count`: of records, if it is not to be true."""
    head = struct.pack(">HHHHHH", number, flags, 1, len(records) if count is None else count, 0, 0)
    question = (name(asked) if isinstance(asked, str) else asked) + struct.pack(">HH", kind, IN)
    return head + question + b"".join(records)


def datagram(source: str, target: str, payload: bytes, ports: tuple[int, int] = (53, 40000)) -> bytes:
    """A UDP packet from the network header on; checksums are left out."""
    ends = ip_address(source).packed, ip_address(target).packed
    udp = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    if len(ends[0]) == 4:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + b"".join(ends) + udp
    return struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + b"".join(ends) + udp
