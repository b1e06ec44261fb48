"""Statements of nftables rules that decide whether the next one is reached. Pure."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink.framing import nested, text_attribute
from nodelib.nft.expressions import FIRST, compare, expression, load_mark, lookup, masked, size, u32, u64
from nodelib.nft.keys import Field, Key, ip, key_text, load

_RTN_LOCAL = 2
_RTN_BROADCAST = 3
_CT_BITS = {
    "state": (
        0,
        {
            "invalid": 1,
            "established": 1 << 1,
            "established,related": 1 << 1 | 1 << 2,
            "new": 1 << 3,
            "new,established": 1 << 3 | 1 << 1,
            "untracked": 1 << 6,
        },
    ),
    "status": (2, {"confirmed": 1 << 3, "dnat": 1 << 5}),
}


@dataclass(frozen=True, slots=True)
class InSet:
    """Continue if the key is (with `negated`, is not) in the set."""

    key: Key
    set: str
    negated: bool = False

    def text(self, family: Family) -> str:
        return f"{key_text(self.key, family)} {'!= ' if self.negated else ''}@{self.set}"

    def code(self, family: Family) -> bytes:
        flags = u32(5, 1) if self.negated else b""
        return load(self.key, family)[0] + lookup(self.set, flags)


@dataclass(frozen=True, slots=True)
class From:
    """Continue if the source address is (with `negated`, is not) in `cidr`."""

    cidr: str
    negated: bool = False

    def text(self, family: Family) -> str:
        return f"{ip(family)} saddr {'!= ' if self.negated else ''}{self.cidr}"

    def code(self, family: Family) -> bytes:
        return _within("saddr", self.cidr, family, negated=self.negated)


@dataclass(frozen=True, slots=True)
class To:
    """Continue if the destination address is in `cidr`."""

    cidr: str

    def text(self, family: Family) -> str:
        return f"{ip(family)} daddr {self.cidr}"

    def code(self, family: Family) -> bytes:
        return _within("daddr", self.cidr, family)


@dataclass(frozen=True, slots=True)
class FromInterface:
    """Continue if the packet came in by (with `negated`, not by) that interface. A final "*" makes `name` a prefix."""

    name: str
    negated: bool = False

    def text(self, family: Family) -> str:
        return f'iifname {"!= " if self.negated else ""}"{self.name}"'

    def code(self, family: Family) -> bytes:
        name = self.name.removesuffix("*").encode()
        wanted = name if self.name.endswith("*") else name.ljust(16, b"\0")
        return expression("meta", u32(1, FIRST) + u32(2, 6)) + compare(wanted, negated=self.negated)


@dataclass(frozen=True, slots=True)
class FromThisNode:
    """Continue if the source address is one of this node's own."""

    def text(self, family: Family) -> str:
        return "fib saddr type local"

    def code(self, family: Family) -> bytes:
        fib = expression("fib", u32(3, 1) + u32(2, 3) + u32(1, FIRST))
        return fib + compare(struct.pack("=I", _RTN_LOCAL))


@dataclass(frozen=True, slots=True)
class ToBroadcast:
    """Continue if the destination address is a broadcast address of one of this node's links."""

    def text(self, family: Family) -> str:
        return "fib daddr type broadcast"

    def code(self, family: Family) -> bytes:
        fib = expression("fib", u32(3, 2) + u32(2, 3) + u32(1, FIRST))
        return fib + compare(struct.pack("=I", _RTN_BROADCAST))


@dataclass(frozen=True, slots=True)
class Connection:
    """Continue if the connection has (with `negated`, has not) that state or status.

    `what`: "state" or "status"; `bit`: its name. A packet that belongs to no connection never has a status.
    """

    what: str
    bit: str
    negated: bool = False

    def text(self, family: Family) -> str:
        return f"ct {self.what} {'! ' if self.negated else ''}{self.bit}"

    def code(self, family: Family) -> bytes:
        key, bits = _CT_BITS[self.what]
        load = expression("ct", u32(1, FIRST) + u32(2, key))
        return load + masked(struct.pack("=I", bits[self.bit]), 4) + compare(bytes(4), negated=not self.negated)


@dataclass(frozen=True, slots=True)
class ReplyDirection:
    """Continue if the packet goes to whoever began its connection."""

    def text(self, family: Family) -> str:
        return "ct direction reply"

    def code(self, family: Family) -> bytes:
        return expression("ct", u32(1, FIRST) + u32(2, 1)) + compare(b"\1")


@dataclass(frozen=True, slots=True)
class Marked:
    """Continue if the packet has the mark."""

    mark: int

    def text(self, family: Family) -> str:
        return f"meta mark & 0x{self.mark:08x} != 0x00000000"

    def code(self, family: Family) -> bytes:
        return load_mark() + masked(struct.pack("=I", self.mark), 4) + compare(bytes(4), negated=True)


@dataclass(frozen=True, slots=True)
class ConnectionMarked:
    """Continue if these bits of the connection's mark are exactly `mark`."""

    mark: int
    mask: int

    def text(self, family: Family) -> str:
        return f"ct mark & 0x{self.mask:08x} == 0x{self.mark:08x}"

    def code(self, family: Family) -> bytes:
        load = expression("ct", u32(1, FIRST) + u32(2, 3))
        return load + masked(struct.pack("=I", self.mask), 4) + compare(struct.pack("=I", self.mark))


@dataclass(frozen=True, slots=True)
class Limit:
    """Continue for so many packets in a second, after a first `burst`; for the rest of them the rule ends here."""

    rate: int
    burst: int

    def text(self, family: Family) -> str:
        return f"limit rate {self.rate}/second burst {self.burst} packets"

    def code(self, family: Family) -> bytes:
        return expression("limit", _limit(self.rate, self.burst))


@dataclass(frozen=True, slots=True)
class OverLimit:
    """Continue if more packets with the key come in a second, after a first `burst`. The set counts those of each."""

    key: Key
    set: str
    rate: int
    burst: int
    seconds: int = 10  # after which a key that does not come is forgotten

    def text(self, family: Family) -> str:
        limit = f"limit rate over {self.rate}/second burst {self.burst} packets"
        return f"update @{self.set} {{ {key_text(self.key, family)} timeout {self.seconds}s {limit} }}"

    def code(self, family: Family) -> bytes:
        timeout = u64(6, self.seconds * 1000)
        limit = nested(7, text_attribute(1, "limit") + nested(2, _limit(self.rate, self.burst, over=True)))
        update = text_attribute(1, self.set) + u32(3, 1) + u32(4, FIRST) + timeout + limit
        return load(self.key, family)[0] + expression("dynset", update)


Match = (
    InSet
    | From
    | To
    | FromInterface
    | FromThisNode
    | ToBroadcast
    | Connection
    | ReplyDirection
    | Marked
    | ConnectionMarked
    | Limit
    | OverLimit
)


def _limit(rate: int, burst: int, *, over: bool = False) -> bytes:
    return u64(1, rate) + u64(2, 1) + u32(3, burst) + u32(4, 0) + u32(5, int(over))


def _within(name: str, cidr: str, family: Family, *, negated: bool = False) -> bytes:
    network = ipaddress.ip_network(cidr)
    mask = masked(network.netmask.packed, size(family))
    return Field(name).load(FIRST, family) + mask + compare(network.network_address.packed, negated=negated)
