"""What a trace is made of: the packet, the node, a way through the rules, and the hook a chain hangs on. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from nodelib.firewall.fib import Route

FINAL = ("ACCEPT", "DROP", "REJECT")


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a flow. `interface` is where it came in, "" for one that this node sends."""

    source: str
    destination: str
    port: int
    protocol: str = "tcp"
    interface: str = "eth0"
    mark: int = 0


class Hop(NamedTuple):
    """A rule that matched. `packets`: how often so far, None where nobody counts; not `certain`: a matter of chance."""

    table: str
    chain: str
    text: str
    packets: int | None = None
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.table} {self.chain} {self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where one way ends: `verdict` ACCEPT, DROP or REJECT by a rule, UNREACHABLE or DISCARDED by the `route`;
    `to` the final "ip:port", `trail` the matched rules."""

    verdict: str
    to: str
    translated: bool
    masqueraded: bool
    trail: tuple[Hop, ...] = field(compare=False, default=())
    route: Route | None = field(compare=False, default=None)


Fib = Callable[[Packet], Route]
"""A node's routing, asked with a packet as it is at that moment."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the kernel knows beside the rules: its own addresses, and clients that `recent` remembers."""

    addresses: frozenset[str]
    recent: frozenset[tuple[str, str]] = frozenset()  # (list name, source address)

    def is_local(self, address: str) -> bool:
        return address in self.addresses or ipaddress.ip_address(address).is_loopback


@dataclass(frozen=True, slots=True)
class Way:
    """A packet somewhere on its way; `original`: where it was sent, before any translation."""

    packet: Packet
    verdict: str = ""
    translated: bool = False
    masqueraded: bool = False
    trail: tuple[Hop, ...] = ()
    original: Packet | None = None
    route: Route | None = None

    @property
    def sent(self) -> Packet:
        return self.original or self.packet


@dataclass(frozen=True, slots=True)
class Base:
    """A chain that the kernel calls: `hook` as nftables names it; lower priorities come first."""

    hook: str
    priority: int
    nat: bool
    walk: Callable[[Way, Node], list[Way]]


def endpoint_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
