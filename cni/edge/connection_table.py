"""Counts the node's tracked connections by the pods that hold them, and deletes some. Decides nothing.

`python -m cni.edge.connection_table` does so in a process of its own: it reads an order in JSON, prints an answer, and
ends. A full table (262,144 entries) takes a second of Python, during which a thread would hold up the event loop's
thread again and again. `cni/edge/connections.py` starts it.

The messages are those of linux/netfilter/nfnetlink_conntrack.h. Nearly all entries look the same but for the values,
so these are read at fixed places, after a look at the headers between them; any other entry is decoded attribute by
attribute.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from nodelib.netlink import netfilter
from nodelib.netlink.framing import ATTRIBUTE, HEADER, attributes, messages

UNANSWERED, PASSING, LIVING = 0, 1, 2  # classes of entries, in the order in which they are deleted
_GET, _DELETE = (1 << 8) | 1, (1 << 8) | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_*
_ORIGINAL, _REPLY, _STATUS, _PROTOCOL_INFO = 1, 2, 3, 4  # CTA_*
_NESTED = 0x8000
_SEEN_REPLY = 1 << 1
_TCP = 6
_LIVING_STATES = (3, 4, 5)  # established, and closed by one side only
_RCVBUFFORCE = 33
_SECONDS = 20.0  # for one walk through the table
_ADDRESSES = 1 << 16  # that are told apart
_ANSWERED = 1024  # holders in the answer, the largest
_BATCH = 100  # deletions in one message
_OTHER, _LOCAL, _OWN = 0, 1, 2


class _Layout(NamedTuple):
    """Where the values of an entry of TCP or UDP are, counted from its first attribute."""

    head: bytes  # of the attributes before the source
    status_head: bytes
    size: int  # bytes of an address
    protocol: int
    answerer: int  # the source of replies: after translation, who answers
    status: int
    original: int  # the length of the original tuple
    info_head: bytes
    info: int


def _layout(size: int, source: int) -> _Layout:
    addresses = 4 + 2 * (4 + size)
    original = 4 + addresses + 28
    return _Layout(
        head=struct.pack("=HHHHHH", original, _ORIGINAL | _NESTED, addresses, 1 | _NESTED, 4 + size, source),
        status_head=ATTRIBUTE.pack(8, _STATUS),
        size=size,
        protocol=4 + addresses + 8,
        answerer=original + 12,
        status=2 * original,
        original=original,
        info_head=struct.pack("=H", _PROTOCOL_INFO | _NESTED),
        info=2 * original + 16,
    )


_LAYOUTS: dict[int, _Layout] = {socket.AF_INET: _layout(4, 1), socket.AF_INET6: _layout(16, 3)}


class Entry(NamedTuple):
    """One connection: who began it, who answers, its class, and its original tuple as the kernel wants it back."""

    source: bytes
    answerer: bytes
    kind: int
    original: bytes


def entry(data: bytes, start: int, end: int) -> Entry | None:
    """The entry whose payload (nfgenmsg first) is data[start:end]; None if it has no addresses."""
    layout = _LAYOUTS.get(data[start])
    if layout is None:
        return None
    at = start + 4
    status = at + layout.status
    if data[at : at + 12] != layout.head or data[status : status + 4] != layout.status_head:
        return _decoded(data[start:end])
    kind = UNANSWERED
    if data[status + 7] & _SEEN_REPLY:
        kind = PASSING
        if data[at + layout.protocol] == _TCP:
            info = at + layout.info
            if data[info + 2 : info + 4] != layout.info_head:
                return _decoded(data[start:end])
            if data[info + 12] in _LIVING_STATES:
                kind = LIVING
    size, answerer = layout.size, at + layout.answerer
    return Entry(
        data[at + 12 : at + 12 + size], data[answerer : answerer + size], kind, data[at : at + layout.original]
    )


def _decoded(payload: bytes) -> Entry | None:
    parts = dict(attributes(payload, 4))
    if _ORIGINAL not in parts or _REPLY not in parts:
        return None
    source, protocol = _source(parts[_ORIGINAL])
    answerer, _ = _source(parts[_REPLY])
    if not source or not answerer:
        return None
    kind = UNANSWERED
    if parts.get(_STATUS, b"\0")[-1] & _SEEN_REPLY:
        tcp = dict(attributes(dict(attributes(parts.get(_PROTOCOL_INFO, b""))).get(1, b"")))
        kind = LIVING if protocol == _TCP and tcp.get(1, b"\0")[0] in _LIVING_STATES else PASSING
    value = parts[_ORIGINAL]
    return Entry(source, answerer, kind, ATTRIBUTE.pack(4 + len(value), _ORIGINAL | _NESTED) + value)


def _source(value: bytes) -> tuple[bytes, int]:
    parts = dict(attributes(value))
    address = dict(attributes(parts.get(1, b"")))
    protocol = dict(attributes(parts.get(2, b""))).get(1, b"\0")
    return address.get(1) or address.get(3) or b"", protocol[0]


@dataclass(slots=True)
class Walk:
    """One walk through the table. `ranges`: of the node's pods, in which `own` are the node's own addresses.

    `quotas`: how many entries of each class to delete, by whether the holder has received them and its address.
    """

    ranges: list[tuple[int, int, int]]  # bytes of an address, mask, network
    own: frozenset[bytes]
    quotas: dict[tuple[bool, bytes], list[int]]
    entries: int = 0
    deleted: int = 0
    sent: dict[bytes, list[int]] = field(default_factory=dict)
    received: dict[bytes, list[int]] = field(default_factory=dict)
    _kinds: dict[bytes, int] = field(default_factory=dict)

    def see(self, found: Entry) -> bool:
        """Count one entry; whether it is to be deleted."""
        self.entries += 1
        whose = self._kinds.get(found.source)
        if whose is None:
            whose = self._kind(found.source)
        if whose == _LOCAL:
            holders, address = self.sent, found.source
        elif whose == _OWN or self._kind(found.answerer) != _LOCAL:
            return False
        else:
            holders, address = self.received, found.answerer
        row = holders.get(address)
        if row is None:
            if len(holders) >= _ADDRESSES:
                return False
            row = holders[address] = [0, 0, 0]
        row[found.kind] += 1
        if not self.quotas:
            return False
        quota = self.quotas.get((holders is self.received, address))
        if quota is None or quota[found.kind] <= 0:
            return False
        quota[found.kind] -= 1
        row[found.kind] -= 1
        return True

    def _kind(self, address: bytes) -> int:
        known = self._kinds.get(address)
        if known is None:
            if len(self._kinds) >= _ADDRESSES:
                self._kinds.clear()
            known = self._kinds[address] = self._judged(address)
        return known

    def _judged(self, address: bytes) -> int:
        number = int.from_bytes(address, "big")
        # The node's loopback: its own hostPorts.
        if address in self.own or (len(address) == 4 and address[0] == 127) or (len(address) == 16 and number == 1):
            return _OWN
        local = any(len(address) == size and number & mask == network for size, mask, network in self.ranges)
        return _LOCAL if local else _OTHER

    def answer(self) -> dict[str, Any]:
        rows = [(False, address, row) for address, row in self.sent.items()]
        rows += [(True, address, row) for address, row in self.received.items()]
        rows.sort(key=lambda one: sum(one[2]), reverse=True)
        held = [[received, _text(address), row] for received, address, row in rows[:_ANSWERED]]
        return {"entries": self.entries - self.deleted, "held": held, "deleted": self.deleted}


def walk(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order. Raises OSError."""
    ranges = [ip_network(text) for text in order["ranges"]]
    quotas = {(bool(received), ip_address(text).packed): list(row) for received, text, row in order.get("cut", ())}
    made = Walk(
        [(one.max_prefixlen // 8, int(one.netmask), int(one.network_address)) for one in ranges],
        frozenset(ip_address(text).packed for text in order["own"]),
        quotas,
    )
    with netfilter.connect(timeout=_SECONDS) as reader, netfilter.connect(timeout=_SECONDS) as remover:
        netfilter.reserve(reader, _RCVBUFFORCE, socket.SO_RCVBUF, 4 << 20)
        doomed: list[bytes] = []
        for family, found in _entries(reader, int(order["most"])):
            if made.see(found):
                doomed.append(_deletion(family, found.original))
                if len(doomed) >= _BATCH:
                    made.deleted += _delete(remover, doomed)
                    doomed = []
        if doomed:
            made.deleted += _delete(remover, doomed)
    return made.answer()


def _entries(reader: socket.socket, most: int) -> Iterator[tuple[int, Entry]]:
    """Every entry of both families, as the kernel has them when their turn comes; at most `most`."""
    until = time.monotonic() + _SECONDS
    reader.send(netfilter.message(_GET, netfilter.DUMP, 1))
    seen = 0
    while seen < most and time.monotonic() < until:
        data, offset = reader.recv(1 << 18), 0
        while offset + HEADER.size <= len(data):
            length, kind, _, _, _ = HEADER.unpack_from(data, offset)
            if kind in (netfilter.ERROR, netfilter.DONE):
                return netfilter.check(data[offset + HEADER.size :])
            if length < HEADER.size + netfilter.GENMSG:
                return
            found = entry(data, offset + HEADER.size, offset + length)
            if found is not None:
                seen += 1
                yield data[offset + HEADER.size], found
            offset += length + 3 & ~3


def _deletion(family: int, original: bytes) -> bytes:
    return netfilter.message(_DELETE, 0, 1, original, family)


def _delete(remover: socket.socket, requests: list[bytes]) -> int:
    """Delete them, and return how many were still there. The last request asks for an answer, which comes last."""
    last = HEADER.pack(len(requests[-1]), _DELETE, netfilter.REQUEST | netfilter.ACK, 2, 0)
    remover.send(b"".join([*requests[:-1], last + requests[-1][HEADER.size :]]))
    gone = 0
    while True:
        for kind, _, number, body in messages(remover.recv(1 << 18)):
            if kind == netfilter.ERROR:
                gone += netfilter.error_of(body) != 0
                if number == 2:
                    return len(requests) - gone


def _text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def main() -> int:
    """Exit status 1 with the kernel's reason on standard error."""
    try:
        answer = walk(json.load(sys.stdin))
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
