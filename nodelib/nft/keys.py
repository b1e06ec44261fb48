"""Keys of nftables sets, maps and comparisons: properties of a packet or its connection. Pure.

A key is loaded into consecutive 32-bit registers, starting with the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.nft.expressions import FIRST, conntrack, expression, payload, size, u32


@dataclass(frozen=True, slots=True)
class Field:
    """One part of a key: a property of the packet or its connection.

    `name`: saddr, daddr, protocol, dport, icmp-type, of the connection original-saddr, original-daddr, original-dport,
    original-protocol, reply-saddr, reply-sport, sender (the hardware address), or "random" (one of `count` numbers from
    `offset` on).
    """

    name: str
    count: int = 0
    offset: int = 0

    def words(self, family: Family) -> int:
        if self.name == "sender":
            return 2
        return size(family) // 4 if self.name.endswith("addr") else 1

    def text(self, family: Family) -> str:
        word = ip(family)
        return {
            "sender": "ether saddr",
            "saddr": f"{word} saddr",
            "daddr": f"{word} daddr",
            "protocol": "meta l4proto",
            "dport": "th dport",
            "original-saddr": f"ct original {word} saddr",
            "original-daddr": f"ct original {word} daddr",
            "original-dport": "ct original proto-dst",
            "original-protocol": "ct original protocol",
            "reply-saddr": f"ct reply {word} saddr",
            "reply-sport": "ct reply proto-src",
            "icmp-type": "icmp type" if word == "ip" else "icmpv6 type",
            "random": f"numgen random mod {self.count}" + (f" offset {self.offset}" if self.offset else ""),
        }[self.name]

    def load(self, register: int, family: Family) -> bytes:
        v4 = family is Family.IPV4
        match self.name:
            case "sender":
                return payload(register, 0, 6, 6)
            case "saddr":
                return payload(register, 1, 12 if v4 else 8, size(family))
            case "daddr":
                return payload(register, 1, 16 if v4 else 24, size(family))
            case "dport":
                return payload(register, 2, 2, 2)
            case "protocol":
                return expression("meta", u32(1, register) + u32(2, 16))
            case "original-saddr":
                return conntrack(register, 19 if v4 else 21)
            case "original-daddr":
                return conntrack(register, 20 if v4 else 22)
            case "original-dport":
                return conntrack(register, 12)
            case "original-protocol":
                return conntrack(register, 10)
            case "reply-saddr":
                return conntrack(register, 19 if v4 else 21, reply=True)
            case "reply-sport":
                return conntrack(register, 11, reply=True)
            case "icmp-type":
                return payload(register, 2, 0, 1)
        numbers = u32(1, register) + u32(2, self.count) + u32(3, 1) + u32(4, self.offset)
        return expression("numgen", numbers)


Key = tuple[Field, ...]


def key_text(key: Key, family: Family) -> str:
    return " . ".join([field.text(family) for field in key])


def load(key: Key, family: Family, register: int = FIRST) -> tuple[bytes, int]:
    """The bytecode, and the first register after the key."""
    parts = []
    for field in key:
        parts.append(field.load(register, family))
        register += field.words(family)
    return b"".join(parts), register


def ip(family: Family) -> str:
    """What nft calls the family."""
    return "ip" if family is Family.IPV4 else "ip6"
