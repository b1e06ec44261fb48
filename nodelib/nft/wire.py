"""Encodes set elements and batches for nf_tables over netlink (linux/netfilter/nf_tables.h). Pure.

An element is kept as the bytes of its NFTA_LIST_ELEM. The kernel dumps the attributes in the order in which they are
encoded here, so written elements and those in the kernel are compared byte by byte, without decoding them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodelib.netlink.families import NF_FAMILY, TableFamily
from nodelib.netlink.framing import ATTRIBUTE, HEADER, attributes, text_attribute

SUBSYSTEM = 10 << 8  # NFNL_SUBSYS_NFTABLES
GET_TABLE, NEW_CHAIN, GET_CHAIN, NEW_RULE, GET_RULE, DELETE_RULE, GET_SETS = 1, 3, 4, 6, 7, 8, 10
NEW_ELEMENTS, GET_ELEMENTS, DELETE_ELEMENTS = 12, 13, 14
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_REQUEST, _ACK, CREATE, APPEND = 0x1, 0x4, 0x400, 0x800

_TWO = struct.Struct("=HHHH")
_VERDICT = struct.Struct("=HHHHHH")
_TABLE, _SET, _ELEMENTS = 1, 2, 3  # NFTA_SET_ELEM_LIST_*
_KEY, _DATA, _TIMEOUT, _EXPIRATION, _KEY_END = 1, 2, 4, 5, 10  # NFTA_SET_ELEM_*
_GOTO, _DROP = -4, 0
_FULL = 60_000  # bytes of elements in one message, because the length of an attribute has 16 bits
_CHUNK = 3 << 20  # bytes of one batch if there may be several


class Element(NamedTuple):
    """One element of a set or map of our table."""

    set: str
    raw: bytes

    @property
    def key(self) -> bytes:
        """The key that identifies the element; in a set of ranges, with its end."""
        return element_key(self.raw)


def plain(key: bytes) -> bytes:
    """An element of a set; in `key` every part of a concatenation is padded to words."""
    return _TWO.pack(len(key) + 8, _KEY, len(key) + 4, 1) + key + bytes(-len(key) % 4)


def ranged(key: bytes, end: bytes) -> bytes:
    """An element of a set of ranges."""
    return plain(key) + _TWO.pack(len(end) + 8, _KEY_END, len(end) + 4, 1) + end


def timed(key: bytes, seconds: float) -> bytes:
    """An element of a set that is there for so long."""
    return plain(key) + ATTRIBUTE.pack(12, _TIMEOUT) + struct.pack(">Q", max(int(seconds * 1000), 1))


def element_seconds(raw: bytes) -> float:
    """For how long a timed element that was read from the kernel is there yet, 0 for any other."""
    left = dict(attributes(raw)).get(_EXPIRATION, b"")
    return int.from_bytes(left, "big") / 1000


def valued(key: bytes, value: bytes) -> bytes:
    """An element of a map to a value."""
    return plain(key) + _TWO.pack(len(value) + 8, _DATA, len(value) + 4, 1) + value


def verdict(key: bytes, chain: str = "") -> bytes:
    """An element of a map to a verdict: go to `chain`, or drop."""
    if not chain:
        return plain(key) + _VERDICT.pack(16, _DATA, 12, 2, 8, 1) + struct.pack(">i", _DROP)
    name = chain.encode() + b"\0"
    padded = name + bytes(-len(name) % 4)
    return b"".join(
        (
            plain(key),
            _VERDICT.pack(20 + len(padded), _DATA, 16 + len(padded), 2, 8, 1),
            struct.pack(">i", _GOTO),
            ATTRIBUTE.pack(4 + len(name), 2),
            padded,
        )
    )


def element_key(raw: bytes) -> bytes:
    """The key of an encoded element, ranges with both ends."""
    length = ATTRIBUTE.unpack_from(raw)[0]
    key = raw[8:length]
    if len(raw) > length and ATTRIBUTE.unpack_from(raw, length)[1] == _KEY_END:
        return key + raw[length + 8 : length + ATTRIBUTE.unpack_from(raw, length)[0]]
    return key


def element_data(raw: bytes) -> bytes | str | None:
    """What an encoded element maps to: a value, a verdict as text ("drop", "goto NAME"), None in a set."""
    for kind, body in attributes(raw):
        if kind == _DATA:
            for inner, data in attributes(body):
                return data if inner == 1 else _verdict_words(data)
    return None


def _verdict_words(data: bytes) -> str:
    parts = dict(attributes(data))
    (code,) = struct.unpack(">i", parts[1])
    chain = parts.get(2, b"").rstrip(b"\0").decode(errors="replace")
    words = {_DROP: "drop", 1: "accept", -5: "return", -3: f"jump {chain}", _GOTO: f"goto {chain}"}
    return words.get(code, str(code))


def request(kind: int, flags: int, sequence: int, family: TableFamily, body: bytes) -> bytes:
    """One nf_tables message."""
    payload = struct.pack(">BBH", NF_FAMILY[family], 0, 0) + body
    return HEADER.pack(16 + len(payload), SUBSYSTEM | kind, flags | _REQUEST, sequence, 0) + payload


class Message(NamedTuple):
    """One nf_tables message of a transaction: its type, its flags, its attributes."""

    kind: int
    flags: int
    body: bytes


def batches(
    table: str, rules: Iterable[Message], delete: Iterable[Element], add: Iterable[Element], *, atomic: bool
) -> Iterator[list[Message]]:
    """The messages of each transaction; with `atomic` there is only one.

    Deletions come before additions, so that an element can get another value.
    """
    every = list(rules)
    every += removed(table, delete)
    every += added(table, add)
    start = 0
    while start < len(every):
        stop, size = start, 0
        while stop < len(every) and (atomic or stop == start or size + len(every[stop].body) <= _CHUNK):
            size += len(every[stop].body)
            stop += 1
        yield every[start:stop]
        start = stop


def datagram(family: TableFamily, batch: Sequence[Message], first: int) -> tuple[bytes, int]:
    """One transaction, numbered from `first` on, and the number whose acknowledgement means that it is committed."""
    parts = [_edge_of_batch(_BATCH_BEGIN, first)]
    for number, (kind, flags, body) in enumerate(batch, first + 1):
        last = _ACK if number == first + len(batch) else 0
        parts.append(request(kind, flags | last, number, family, body))
    parts.append(_edge_of_batch(_BATCH_END, first + len(batch) + 1))
    return b"".join(parts), first + len(batch)


def _edge_of_batch(kind: int, sequence: int) -> bytes:
    return HEADER.pack(20, kind, _REQUEST, sequence, 0) + struct.pack(">BBH", 0, 0, SUBSYSTEM >> 8)


def removed(table: str, elements: Iterable[Element]) -> list[Message]:
    """Messages that delete elements, which must exist."""
    return [Message(DELETE_ELEMENTS, 0, body) for body in _bodies(table, elements)]


def added(table: str, elements: Iterable[Element]) -> list[Message]:
    """Messages that add elements."""
    return [Message(NEW_ELEMENTS, CREATE, body) for body in _bodies(table, elements)]


def _bodies(table: str, elements: Iterable[Element]) -> Iterator[bytes]:
    """Bodies of messages: elements of one set together, as many as fit into one attribute."""
    by_set: dict[str, list[bytes]] = {}
    for name, raw in elements:
        by_set.setdefault(name, []).append(raw)
    for name, raws in by_set.items():
        head = text_attribute(_TABLE, table) + text_attribute(_SET, name)
        parts: list[bytes] = []
        size = 0
        for raw in raws:
            if size + len(raw) + 4 > _FULL:
                yield head + ATTRIBUTE.pack(4 + size, _ELEMENTS) + b"".join(parts)
                parts, size = [], 0
            parts += (ATTRIBUTE.pack(4 + len(raw), 1), raw)
            size += len(raw) + 4
        if parts:
            yield head + ATTRIBUTE.pack(4 + size, _ELEMENTS) + b"".join(parts)


def new_chain(table: str, name: str) -> Message:
    """Create a chain without a hook, unless it exists."""
    return Message(NEW_CHAIN, CREATE, text_attribute(1, table) + text_attribute(3, name))


def flushed_chain(table: str, name: str) -> Message:
    """Remove all rules of the chain."""
    return Message(DELETE_RULE, 0, text_attribute(1, table) + text_attribute(2, name))


def new_rule(body: bytes) -> Message:
    """Append a rule to its chain."""
    return Message(NEW_RULE, CREATE | APPEND, body)


def refused_element(message: Message, error: bytes) -> Element | None:
    """The element of `message` that an error refers to (NLMSGERR_ATTR_OFFS), None if it is anything else."""
    if message.kind != NEW_ELEMENTS:
        return None
    offset = dict(attributes(error, 20)).get(2)
    names = dict(attributes(message.body))
    if offset is None:
        return None
    # Counted from the header of the message: 16 bytes, and 4 of nfgenmsg.
    start = struct.unpack("=I", offset)[0] - 20
    if not 0 <= start <= len(message.body) - 4:
        return None
    length = ATTRIBUTE.unpack_from(message.body, start)[0]
    return Element(names[_SET].rstrip(b"\0").decode(), message.body[start + 4 : start + length])


def elements_of(payload: bytes) -> list[bytes]:
    """The encoded elements in one message of a dump."""
    found: list[bytes] = []
    for kind, body in attributes(payload, 4):
        if kind == _ELEMENTS:
            found.extend([raw for _, raw in attributes(body)])
    return found
