"""Packets that a rule holds for a listener to decide (NFQUEUE, linux/netfilter/nfnetlink_queue.h). Pure.

`netfilter.py` opens the socket. What a record holds of the packet is whatever somebody sent: it is only bytes here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attribute

_SUBSYSTEM = 3 << 8  # NFNL_SUBSYS_QUEUE
_PACKET, _VERDICT, _CONFIGURE = _SUBSYSTEM | 0, _SUBSYSTEM | 1, _SUBSYSTEM | 2
_COMMAND, _PARAMETERS, _LENGTH, _MASK, _FLAGS = 1, 2, 3, 4, 5  # NFQA_CFG_*
_BIND = struct.pack(">BBH", 1, 0, 0)
_COPY_PACKET, _FAIL_OPEN = 2, 1
_HEADER, _VERDICT_HEADER, _PAYLOAD = 1, 2, 10  # NFQA_*
_ACCEPT = 1


@dataclass(frozen=True, slots=True)
class Held:
    """A packet that waits: the number by which it is let go, and its bytes from the network header on."""

    number: int
    packet: bytes


def binding(queue: int, *, most: int) -> list[bytes]:
    """Requests, each to be acknowledged, that make a socket the listener of a queue.

    When `most` packets wait, further ones go on without being asked about (nfqueue's "fail open").
    """
    parts = (
        attribute(_COMMAND, _BIND),
        attribute(_PARAMETERS, struct.pack(">IB", 0xFFFF, _COPY_PACKET)),
        attribute(_LENGTH, struct.pack(">I", most)),
        attribute(_MASK, struct.pack(">I", _FAIL_OPEN)) + attribute(_FLAGS, struct.pack(">I", _FAIL_OPEN)),
    )
    return netfilter.orders(_CONFIGURE, parts, queue)


def packets(data: bytes) -> Iterator[Held]:
    """The packets in one datagram of the kernel."""
    for found in netfilter.reported(data, _PACKET):
        head = found.get(_HEADER, b"")
        if len(head) >= 4:
            yield Held(int.from_bytes(head[:4], "big"), found.get(_PAYLOAD, b""))


def accepted(queue: int, numbers: Iterable[int]) -> bytes:
    """One datagram that lets these packets go on."""
    bodies = (attribute(_VERDICT_HEADER, struct.pack(">II", _ACCEPT, one)) for one in numbers)
    return b"".join(netfilter.message(_VERDICT, 0, 0, body, resource=queue) for body in bodies)
