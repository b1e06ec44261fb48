"""Tables, sets and chains as netlink messages, so that they change in one transaction with what is in them. Pure.

nft's text can say the same, but starting nft takes milliseconds, and it cannot write elements and rules that
`rules.py` has encoded (linux/netfilter/nf_tables.h has the numbers).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import ATTRIBUTE, nested, text_attribute
from nodelib.nft.expressions import size, u32
from nodelib.nft.wire import CREATE, Message

_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, DELETE_CHAIN, _NEW_SET, _DELETE_SET = 0, 2, 3, 5, 9, 11
_INTERVAL, _MAP, _TIMEOUT, _DYNAMIC, _CONCATENATION = 0x4, 0x8, 0x10, 0x20, 0x80
_VERDICT = 0xFFFFFF00
HOOKS = {"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}

# Parts of a key: nft's number of the type, and bytes (None: those of an address).
_TYPES: dict[str, tuple[int, int | None]] = {
    "addr": (7, None),
    "ether": (9, 6),
    "proto": (12, 1),
    "service": (13, 2),
    "icmp_type": (14, 1),
}


@dataclass(frozen=True, slots=True)
class SetShape:
    """The kind of a set: the parts of its key (addr, ether, proto, service, icmp_type), whether it has ranges.

    With `verdicts` it is a map to verdicts. Ranges need a key of two parts or more. With `most` its elements may have a
    timeout, rules may add some, and there are so many at most.
    """

    parts: tuple[str, ...]
    ranges: bool = False
    verdicts: bool = False
    most: int = 0


def new_table(name: str) -> Message:
    """A table, if it is not there."""
    return Message(_NEW_TABLE, CREATE, text_attribute(1, name))


def replaced_table(name: str) -> list[Message]:
    """An empty table, whether one was there or not."""
    body = text_attribute(1, name)
    return [Message(_NEW_TABLE, CREATE, body), Message(_DELETE_TABLE, 0, body), Message(_NEW_TABLE, CREATE, body)]


def removed_table(name: str) -> list[Message]:
    """No such table, whether one was there or not."""
    return replaced_table(name)[:2]


def hooked_chain(table: str, name: str, hook: str, priority: int) -> Message:
    """A filter chain that packets pass. What it does not drop goes on."""
    where = nested(4, u32(1, HOOKS[hook]) + ATTRIBUTE.pack(8, 2) + struct.pack(">i", priority))
    kind = text_attribute(7, "filter")
    return Message(_NEW_CHAIN, CREATE, text_attribute(1, table) + text_attribute(3, name) + where + kind)


def removed_chain(table: str, name: str) -> Message:
    """The chain must be empty, and nothing may lead to it."""
    return Message(DELETE_CHAIN, 0, text_attribute(1, table) + text_attribute(3, name))


def new_set(table: str, name: str, shape: SetShape, family: Family, number: int) -> Message:
    """An empty set. `number` differs from that of every other new set of the transaction."""
    kinds = [_kind(part, family) for part in shape.parts]
    code = 0
    for kind, _ in kinds:
        code = code << 6 | kind
    ranges = shape.ranges
    flags = (_INTERVAL | _CONCATENATION if ranges else 0) | (_MAP if shape.verdicts else 0)
    flags |= _TIMEOUT | _DYNAMIC if shape.most else 0
    body = text_attribute(1, table) + text_attribute(2, name) + u32(3, flags)
    body += u32(4, code) + u32(5, sum(length + -length % 4 for _, length in kinds))
    if shape.verdicts:
        body += u32(6, _VERDICT) + u32(7, 0)
    if ranges:
        fields = b"".join([nested(1, u32(1, length)) for _, length in kinds])
        body += nested(9, nested(2, fields))
    if shape.most:
        body += nested(9, u32(1, shape.most))
    return Message(_NEW_SET, CREATE, body + u32(10, number))


def removed_set(table: str, name: str) -> Message:
    """No rule may use the set."""
    return Message(_DELETE_SET, 0, text_attribute(1, table) + text_attribute(2, name))


def _kind(part: str, family: Family) -> tuple[int, int]:
    kind, length = _TYPES[part]
    if length is not None:
        return (29 if part == "icmp_type" and family is Family.IPV6 else kind), length
    return (7 if family is Family.IPV4 else 8), size(family)
