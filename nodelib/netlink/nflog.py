"""Packets that a rule reports to a netlink group (NFLOG, linux/netfilter/nfnetlink_log.h): requests and records. Pure.

`netfilter.py` opens the socket. What a record holds of the packet is whatever somebody sent: it is only bytes here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nodelib.netlink import netfilter
from nodelib.netlink.framing import attribute

_SUBSYSTEM = 4 << 8  # NFNL_SUBSYS_ULOG
_PACKET, _CONFIGURE = _SUBSYSTEM | 0, _SUBSYSTEM | 1
_COMMAND, _MODE, _TIMEOUT, _THRESHOLD, _FLAGS = 1, 2, 4, 5, 6  # NFULA_CFG_*
_BIND = bytes((1,))
_COPY_PACKET, _NUMBERED = 2, 1
_PAYLOAD, _PREFIX, _NUMBER = 9, 10, 12  # NFULA_*
_LONGEST_PREFIX = 127


@dataclass(frozen=True, slots=True)
class Record:
    """One reported packet. `packet`: its first bytes, from the network header on; `number`: records are counted."""

    prefix: str
    packet: bytes
    number: int | None


def binding(group: int, *, copied: int, gathered: int, hundredths: int) -> list[bytes]:
    """Requests, each to be acknowledged, that make a socket the listener of a group.

    `copied`: bytes of each packet; the kernel sends records when it has `gathered` so many, or after `hundredths` of a
    second.
    """
    parts = (
        attribute(_COMMAND, _BIND),
        attribute(_MODE, struct.pack(">IBB", copied, _COPY_PACKET, 0)),
        attribute(_THRESHOLD, struct.pack(">I", gathered)) + attribute(_TIMEOUT, struct.pack(">I", hundredths)),
        attribute(_FLAGS, struct.pack(">H", _NUMBERED)),
    )
    return netfilter.orders(_CONFIGURE, parts, group)


def records(data: bytes) -> Iterator[Record]:
    """The records in one datagram of the kernel."""
    for found in netfilter.reported(data, _PACKET):
        number = found.get(_NUMBER, b"")
        yield Record(
            found.get(_PREFIX, b"")[:_LONGEST_PREFIX].rstrip(b"\0").decode("ascii", "replace"),
            found.get(_PAYLOAD, b""),
            int.from_bytes(number, "big") if len(number) == 4 else None,
        )
