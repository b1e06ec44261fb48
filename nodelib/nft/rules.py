"""nftables rules as values: each has a text, as nft prints it, and a bytecode, as the kernel takes it. Pure.

Only the statements that this project's rules need. They are encoded here because nft 1.0.6 (Debian 12) runs out of
registers with two IPv6 addresses in one key, and so that rules and elements go into one transaction. The numbers are
those of linux/netfilter/nf_tables.h. A key is loaded into consecutive 32-bit registers, starting with the first.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink import ATTRIBUTE, attribute, nested, text_attribute
from nodelib.nft.expressions import (
    FIRST,
    compare,
    conntrack,
    expression,
    load_mark,
    lookup,
    masked,
    payload,
    size,
    u32,
)
from nodelib.nft.wire import NF_FAMILY

_VERDICT_REGISTER = 0
_ACCEPT, _DROP, _JUMP, _GOTO, _RETURN = 1, 0, -3, -4, -5
_RANDOM_FULLY = 1 << 4
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
    "status": (2, {"dnat": 1 << 5}),
}


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
        ip = _ip(family)
        return {
            "sender": "ether saddr",
            "saddr": f"{ip} saddr",
            "daddr": f"{ip} daddr",
            "protocol": "meta l4proto",
            "dport": "th dport",
            "original-saddr": f"ct original {ip} saddr",
            "original-daddr": f"ct original {ip} daddr",
            "original-dport": "ct original proto-dst",
            "original-protocol": "ct original protocol",
            "reply-saddr": f"ct reply {ip} saddr",
            "reply-sport": "ct reply proto-src",
            "icmp-type": "icmp type" if ip == "ip" else "icmpv6 type",
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


def _load(key: Key, family: Family, register: int = FIRST) -> tuple[bytes, int]:
    """The bytecode, and the first register after the key."""
    parts = []
    for field in key:
        parts.append(field.load(register, family))
        register += field.words(family)
    return b"".join(parts), register


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
        return _load(self.key, family)[0] + lookup(self.set, flags)


@dataclass(frozen=True, slots=True)
class VerdictOf:
    """Take the verdict that the map has for the key; continue if it has none."""

    key: Key
    map: str

    def text(self, family: Family) -> str:
        return f"{key_text(self.key, family)} vmap @{self.map}"

    def code(self, family: Family) -> bytes:
        return _load(self.key, family)[0] + lookup(self.map, u32(3, _VERDICT_REGISTER))


@dataclass(frozen=True, slots=True)
class TranslateTo:
    """Set destination address and port from the map; continue if it has none."""

    key: Key
    map: str

    def text(self, family: Family) -> str:
        return f"dnat {_ip(family)} to {key_text(self.key, family)} map @{self.map}"

    def code(self, family: Family) -> bytes:
        port = FIRST + size(family) // 4
        nat = u32(1, 1) + u32(2, NF_FAMILY[family]) + u32(3, FIRST) + u32(5, port)
        return _load(self.key, family)[0] + lookup(self.map, u32(3, FIRST)) + expression("nat", nat)


@dataclass(frozen=True, slots=True)
class Remember:
    """Put key and value into the map, for `seconds` from now on."""

    key: Key
    value: Key
    map: str
    seconds: int

    def text(self, family: Family) -> str:
        key, value = key_text(self.key, family), key_text(self.value, family)
        return f"update @{self.map} {{ {key} timeout {self.seconds}s : {value} }}"

    def code(self, family: Family) -> bytes:
        key, register = _load(self.key, family)
        value, _ = _load(self.value, family, register)
        timeout = ATTRIBUTE.pack(12, 6) + struct.pack(">Q", self.seconds * 1000)
        operation = u32(3, 1) + u32(4, FIRST) + u32(5, register)
        return key + value + expression("dynset", text_attribute(1, self.map) + operation + timeout)


@dataclass(frozen=True, slots=True)
class Refresh:
    """Keep the key in the set for `seconds` from now on."""

    key: Key
    set: str
    seconds: int

    def text(self, family: Family) -> str:
        return f"update @{self.set} {{ {key_text(self.key, family)} timeout {self.seconds}s }}"

    def code(self, family: Family) -> bytes:
        timeout = ATTRIBUTE.pack(12, 6) + struct.pack(">Q", self.seconds * 1000)
        update = text_attribute(1, self.set) + u32(3, 1) + u32(4, FIRST) + timeout
        return _load(self.key, family)[0] + expression("dynset", update)


@dataclass(frozen=True, slots=True)
class From:
    """Continue if the source address is (with `negated`, is not) in `cidr`."""

    cidr: str
    negated: bool = False

    def text(self, family: Family) -> str:
        return f"{_ip(family)} saddr {'!= ' if self.negated else ''}{self.cidr}"

    def code(self, family: Family) -> bytes:
        return _within("saddr", self.cidr, family, negated=self.negated)


@dataclass(frozen=True, slots=True)
class To:
    """Continue if the destination address is in `cidr`."""

    cidr: str

    def text(self, family: Family) -> str:
        return f"{_ip(family)} daddr {self.cidr}"

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
    """Continue if the connection has that state or status. `what`: "state" or "status"; `bit`: its name."""

    what: str
    bit: str

    def text(self, family: Family) -> str:
        return f"ct {self.what} {self.bit}"

    def code(self, family: Family) -> bytes:
        key, bits = _CT_BITS[self.what]
        load = expression("ct", u32(1, FIRST) + u32(2, key))
        return load + masked(struct.pack("=I", bits[self.bit]), 4) + compare(bytes(4), negated=True)


@dataclass(frozen=True, slots=True)
class Answering:
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
class MarkConnection:
    """Make these bits of the connection's mark `mark`, and leave the others."""

    mark: int
    mask: int

    def text(self, family: Family) -> str:
        return f"ct mark set ct mark & 0x{~self.mask & 0xFFFFFFFF:08x} | 0x{self.mark:08x}"

    def code(self, family: Family) -> bytes:
        load = expression("ct", u32(1, FIRST) + u32(2, 3))
        changed = masked(struct.pack("=I", ~self.mask & 0xFFFFFFFF), 4, struct.pack("=I", self.mark))
        return load + changed + expression("ct", u32(2, 3) + u32(4, FIRST))


@dataclass(frozen=True, slots=True)
class SetMark:
    """Set the mark's bits, or with `clear` flip them back."""

    mark: int
    clear: bool = False

    def text(self, family: Family) -> str:
        return f"meta mark set meta mark {'^' if self.clear else '|'} 0x{self.mark:08x}"

    def code(self, family: Family) -> bytes:
        mask = 0xFFFFFFFF if self.clear else ~self.mark & 0xFFFFFFFF
        changed = masked(struct.pack("=I", mask), 4, struct.pack("=I", self.mark))
        return load_mark() + changed + expression("meta", u32(2, 3) + u32(3, FIRST))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word`: accept, drop, return, jump or goto (to `chain`)."""

    word: str
    chain: str = ""

    def text(self, family: Family) -> str:
        return f"{self.word} {self.chain}".rstrip()

    def code(self, family: Family) -> bytes:
        number = {"accept": _ACCEPT, "drop": _DROP, "return": _RETURN, "jump": _JUMP, "goto": _GOTO}[self.word]
        verdict = ATTRIBUTE.pack(8, 1) + struct.pack(">i", number)
        if self.chain:
            verdict += text_attribute(2, self.chain)
        return expression("immediate", u32(1, _VERDICT_REGISTER) + nested(2, nested(2, verdict)))


@dataclass(frozen=True, slots=True)
class Masquerade:
    """Change the source to the address of the outgoing interface and a random port."""

    def text(self, family: Family) -> str:
        return "masquerade fully-random"

    def code(self, family: Family) -> bytes:
        return expression("masq", u32(1, _RANDOM_FULLY))


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer that the port is unreachable: a TCP client gets "connection refused"."""

    def text(self, family: Family) -> str:
        return "reject"

    def code(self, family: Family) -> bytes:
        code = 3 if family is Family.IPV4 else 4
        return expression("reject", u32(1, 0) + ATTRIBUTE.pack(5, 2) + bytes((code, 0, 0, 0)))


@dataclass(frozen=True, slots=True)
class Count:
    """Count the packets and bytes that come so far."""

    def text(self, family: Family) -> str:
        return "counter"

    def code(self, family: Family) -> bytes:
        return expression("counter", b"")


@dataclass(frozen=True, slots=True)
class Report:
    """Hand a copy of the packet's first bytes to whoever listens to the group (NFLOG)."""

    group: int
    prefix: str
    length: int = 128

    def text(self, family: Family) -> str:
        return f'log prefix "{self.prefix}" group {self.group} snaplen {self.length}'

    def code(self, family: Family) -> bytes:
        group = ATTRIBUTE.pack(6, 1) + struct.pack(">H", self.group) + bytes(2)
        return expression("log", group + text_attribute(2, self.prefix) + u32(3, self.length))


@dataclass(frozen=True, slots=True)
class Ask:
    """Hold the packet until whoever listens to the queue has decided (NFQUEUE); without a listener it goes on at once.

    `extension`: by the extension of iptables, for kernels that have it and not nftables' own statement.
    """

    queue: int
    extension: bool = False

    def text(self, family: Family) -> str:
        return f"queue flags bypass to {self.queue}"

    def code(self, family: Family) -> bytes:
        if self.extension:
            info = struct.pack("=HHHH", self.queue, 1, 1, 0)  # xt_NFQ_info_v3
            return expression("target", text_attribute(1, "NFQUEUE") + u32(2, 3) + attribute(3, info))
        numbers = ((1, self.queue), (2, 1), (3, 1))
        return expression("queue", b"".join(attribute(kind, struct.pack(">H", one)) for kind, one in numbers))


@dataclass(frozen=True, slots=True)
class AtMost:
    """Continue for so many packets in a second, after a first `burst`; for the rest of them the rule ends here."""

    rate: int
    burst: int

    def text(self, family: Family) -> str:
        return f"limit rate {self.rate}/second burst {self.burst} packets"

    def code(self, family: Family) -> bytes:
        return expression("limit", _limit(self.rate, self.burst))


@dataclass(frozen=True, slots=True)
class TooOften:
    """Continue if more packets with the key come in a second, after a first `burst`. The set keeps account of each."""

    key: Key
    set: str
    rate: int
    burst: int
    seconds: int = 10  # after which a key that does not come is forgotten

    def text(self, family: Family) -> str:
        limit = f"limit rate over {self.rate}/second burst {self.burst} packets"
        return f"update @{self.set} {{ {key_text(self.key, family)} timeout {self.seconds}s {limit} }}"

    def code(self, family: Family) -> bytes:
        timeout = ATTRIBUTE.pack(12, 6) + struct.pack(">Q", self.seconds * 1000)
        limit = nested(7, text_attribute(1, "limit") + nested(2, _limit(self.rate, self.burst, over=True)))
        update = text_attribute(1, self.set) + u32(3, 1) + u32(4, FIRST) + timeout + limit
        return _load(self.key, family)[0] + expression("dynset", update)


Statement = (
    InSet
    | VerdictOf
    | TranslateTo
    | Remember
    | Refresh
    | TooOften
    | From
    | To
    | FromInterface
    | FromThisNode
    | ToBroadcast
    | Connection
    | Answering
    | Marked
    | SetMark
    | ConnectionMarked
    | MarkConnection
    | Verdict
    | Masquerade
    | Reject
    | Count
    | AtMost
    | Report
    | Ask
)


@dataclass(frozen=True, slots=True)
class NftRule:
    """Statements in their order. Each decides whether the next one is reached."""

    statements: tuple[Statement, ...]
    comment: str = ""

    def text(self, family: Family) -> str:
        words = [one.text(family) for one in self.statements]
        return " ".join([*words, f'comment "{self.comment}"'] if self.comment else words)

    def body(self, table: str, chain: str, family: Family) -> bytes:
        """The attributes of NFT_MSG_NEWRULE."""
        expressions = b"".join([one.code(family) for one in self.statements])
        parts = [text_attribute(1, table), text_attribute(2, chain), nested(4, expressions)]
        if self.comment:
            # One type-length-value of libnftnl: a comment.
            text = self.comment.encode() + b"\0"
            parts.append(attribute(7, bytes((0, len(text))) + text))
        return b"".join(parts)


def rule(*statements: Statement, comment: str = "") -> NftRule:
    return NftRule(statements, comment)


def _limit(rate: int, burst: int, *, over: bool = False) -> bytes:
    numbers = b"".join(ATTRIBUTE.pack(12, kind) + struct.pack(">Q", one) for kind, one in ((1, rate), (2, 1)))
    return numbers + u32(3, burst) + u32(4, 0) + u32(5, int(over))


def _ip(family: Family) -> str:
    return "ip" if family is Family.IPV4 else "ip6"


def _within(name: str, cidr: str, family: Family, *, negated: bool = False) -> bytes:
    network = ipaddress.ip_network(cidr)
    mask = masked(network.netmask.packed, size(family))
    return Field(name).load(FIRST, family) + mask + compare(network.network_address.packed, negated=negated)
