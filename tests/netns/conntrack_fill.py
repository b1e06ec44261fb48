"""Fills the conntrack table of its network namespace with `COUNT` UDP flows; standard library only.

They look answered (ASSURED); otherwise the kernel would drop them to make room. `conntrack_fill.py flush` removes all.
linux/netfilter/nfnetlink_conntrack.h
"""

from __future__ import annotations

import socket
import struct
import sys

_NEW, _DELETE = (1 << 8) | 0, (1 << 8) | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_*
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_SEEN_REPLY_ASSURED_CONFIRMED = 1 << 1 | 1 << 2 | 1 << 3
_NESTED = 0x8000
_BATCH = 500


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(parts))


def message(kind: int, flags: int, body: bytes) -> bytes:
    return struct.pack("=IHHIIBBH", 20 + len(body), kind, flags | _REQUEST, 1, 0, socket.AF_INET, 0, 0) + body


def flow(number: int) -> bytes:
    """10.66.x.y:1024 to 10.67.0.1:9, and back."""
    client = bytes((10, 66 + (number >> 16), number >> 8 & 255, number & 255))
    ends = ((client, 1024), (bytes((10, 90, 0, 1)), 9))
    tuples = []
    for kind, ((source, source_port), (to, port)) in ((1, ends), (2, ends[::-1])):
        proto = (
            attribute(1, b"\x11") + attribute(2, struct.pack(">H", source_port)) + attribute(3, struct.pack(">H", port))
        )
        tuples.append(nested(kind, nested(1, attribute(1, source), attribute(2, to)), nested(2, proto)))
    status, timeout = struct.pack(">I", _SEEN_REPLY_ASSURED_CONFIRMED), struct.pack(">I", 600)
    return message(_NEW, _CREATE, b"".join([*tuples, attribute(3, status), attribute(7, timeout)]))


def fill(channel: socket.socket, count: int) -> None:
    for start in range(0, count, _BATCH):
        channel.send(b"".join([flow(number) for number in range(start, min(count, start + _BATCH))]))


def main() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as channel:
        if sys.argv[1] == "flush":
            channel.send(message(_DELETE, _ACK, b""))
            channel.recv(4096)
        else:
            fill(channel, int(sys.argv[1]))


if __name__ == "__main__":
    main()
