"""The framing of netlink: messages and attributes as bytes (netlink(7), linux/netlink.h). Pure.

Every netlink protocol has it; `netfilter.py` and `nft/` fill it with theirs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER = struct.Struct("=IHHII")  # nlmsghdr
ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_NESTED = 0x8000


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(type, flags, sequence number, payload) of each message in one datagram."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, offset)
        if length < 16:
            return
        yield kind, flags, sequence, data[offset + 16 : offset + length]
        offset += length + 3 & ~3


def attributes(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(type without its flags, payload) of each attribute from `offset` on."""
    end = len(data)
    while offset + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(data, offset)
        if length < 4:
            return
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += length + 3 & ~3


def attribute(kind: int, value: bytes) -> bytes:
    """An attribute, padded to four bytes."""
    return ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, value: bytes) -> bytes:
    """An attribute that consists of attributes."""
    return attribute(kind | _NESTED, value)


def text_attribute(kind: int, text: str) -> bytes:
    """An attribute with a name, ended by a zero byte."""
    return attribute(kind, text.encode() + b"\0")
