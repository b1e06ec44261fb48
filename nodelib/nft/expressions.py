"""Encodes the expressions that kernel rules consist of (linux/netfilter/nf_tables.h). Pure.

`kind` is the number of an attribute. Registers have 32 bits; numbers in attributes are in network byte order.
"""

from __future__ import annotations

import struct

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import ATTRIBUTE, attribute, nested, text_attribute

FIRST = 8  # NFT_REG32_00
_EQUAL, _UNEQUAL = 0, 1


def size(family: Family) -> int:
    """Bytes of an address."""
    return 4 if family is Family.IPV4 else 16


def u32(kind: int, value: int) -> bytes:
    """An attribute with a 32-bit number."""
    return ATTRIBUTE.pack(8, kind) + struct.pack(">I", value)


def u64(kind: int, value: int) -> bytes:
    """An attribute with a 64-bit number, such as a timeout in milliseconds."""
    return ATTRIBUTE.pack(12, kind) + struct.pack(">Q", value)


def expression(name: str, data: bytes) -> bytes:
    """One entry of NFTA_RULE_EXPRESSIONS."""
    return nested(1, text_attribute(1, name) + nested(2, data))


def payload(register: int, base: int, offset: int, length: int) -> bytes:
    """Load `length` bytes of the packet into a register. Base 0: the header of the link, 1: of the network, 2: of the
    transport.
    """
    return expression("payload", u32(1, register) + u32(2, base) + u32(3, offset) + u32(4, length))


def conntrack(register: int, key: int, *, reply: bool = False) -> bytes:
    """Load a property of the connection, in its original or its reply direction, into a register."""
    direction = ATTRIBUTE.pack(5, 3) + bytes((int(reply), 0, 0, 0))
    return expression("ct", u32(1, register) + u32(2, key) + direction)


def lookup(name: str, more: bytes) -> bytes:
    """Look up the key that starts in the first register in the set or map `name`."""
    return expression("lookup", text_attribute(1, name) + u32(2, FIRST) + more)


def compare(value: bytes, *, negated: bool = False) -> bytes:
    """Continue if the first register is (with `negated`, is not) `value`."""
    data = nested(3, attribute(1, value))
    return expression("cmp", u32(1, FIRST) + u32(2, _UNEQUAL if negated else _EQUAL) + data)


def masked(mask: bytes, size: int, flip: bytes = b"") -> bytes:
    """register = (register & mask) ^ flip."""
    flip = flip or bytes(size)
    data = nested(4, attribute(1, mask)) + nested(5, attribute(1, flip))
    return expression("bitwise", u32(1, FIRST) + u32(2, FIRST) + u32(3, size) + data)


def load_mark() -> bytes:
    return expression("meta", u32(1, FIRST) + u32(2, 3))
