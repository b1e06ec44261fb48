"""Statements of nftables rules that do something to the packet, its connection or a set. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.netlink.families import NF_FAMILY
from nodelib.netlink.framing import ATTRIBUTE, attribute, nested, text_attribute
from nodelib.nft.expressions import FIRST, expression, load_mark, lookup, masked, size, u32, u64
from nodelib.nft.keys import Key, ip, key_text, load

_VERDICT_REGISTER = 0
_ACCEPT, _DROP, _JUMP, _GOTO, _RETURN = 1, 0, -3, -4, -5
_RANDOM_FULLY = 1 << 4


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
class VerdictOf:
    """Take the verdict that the map has for the key; continue if it has none."""

    key: Key
    map: str

    def text(self, family: Family) -> str:
        return f"{key_text(self.key, family)} vmap @{self.map}"

    def code(self, family: Family) -> bytes:
        return load(self.key, family)[0] + lookup(self.map, u32(3, _VERDICT_REGISTER))


@dataclass(frozen=True, slots=True)
class DestinationNat:
    """Set destination address and port from the map; continue if it has none."""

    key: Key
    map: str

    def text(self, family: Family) -> str:
        return f"dnat {ip(family)} to {key_text(self.key, family)} map @{self.map}"

    def code(self, family: Family) -> bytes:
        port = FIRST + size(family) // 4
        nat = u32(1, 1) + u32(2, NF_FAMILY[family]) + u32(3, FIRST) + u32(5, port)
        return load(self.key, family)[0] + lookup(self.map, u32(3, FIRST)) + expression("nat", nat)


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
class UpdateMap:
    """Put key and value into the map, for `seconds` from now on."""

    key: Key
    value: Key
    map: str
    seconds: int

    def text(self, family: Family) -> str:
        key, value = key_text(self.key, family), key_text(self.value, family)
        return f"update @{self.map} {{ {key} timeout {self.seconds}s : {value} }}"

    def code(self, family: Family) -> bytes:
        key, register = load(self.key, family)
        value, _ = load(self.value, family, register)
        timeout = u64(6, self.seconds * 1000)
        operation = u32(3, 1) + u32(4, FIRST) + u32(5, register)
        return key + value + expression("dynset", text_attribute(1, self.map) + operation + timeout)


@dataclass(frozen=True, slots=True)
class UpdateSet:
    """Keep the key in the set for `seconds` from now on."""

    key: Key
    set: str
    seconds: int

    def text(self, family: Family) -> str:
        return f"update @{self.set} {{ {key_text(self.key, family)} timeout {self.seconds}s }}"

    def code(self, family: Family) -> bytes:
        timeout = u64(6, self.seconds * 1000)
        update = text_attribute(1, self.set) + u32(3, 1) + u32(4, FIRST) + timeout
        return load(self.key, family)[0] + expression("dynset", update)


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
class Counter:
    """Count the packets and bytes that come so far."""

    def text(self, family: Family) -> str:
        return "counter"

    def code(self, family: Family) -> bytes:
        return expression("counter", b"")


@dataclass(frozen=True, slots=True)
class Log:
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
class Queue:
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


Action = (
    Verdict
    | VerdictOf
    | DestinationNat
    | Masquerade
    | Reject
    | UpdateMap
    | UpdateSet
    | MarkConnection
    | SetMark
    | Counter
    | Log
    | Queue
)
