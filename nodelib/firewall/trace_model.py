"""The values of a trace: packet, node, branch, hop, outcome, and the base chains that the kernel calls. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from nodelib.firewall.fib import Route

FINAL = ("ACCEPT", "DROP", "REJECT")


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a flow. `interface`: where it came in, "" for one that this node sends."""

    source: str
    destination: str
    port: int
    protocol: str = "tcp"
    interface: str = "eth0"
    mark: int = 0


class Hop(NamedTuple):
    """A rule that matched. `packets`: its counter, None without one. Not `certain`: it may match, by chance."""

    table: str
    chain: str
    text: str
    packets: int | None = None
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.table} {self.chain} {self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one branch.

    `verdict`: ACCEPT, DROP or REJECT by a rule, UNREACHABLE or DISCARDED by the `route`; `to`: the final "ip:port";
    `trail`: the rules that matched.
    """

    verdict: str
    to: str
    translated: bool
    masqueraded: bool
    trail: tuple[Hop, ...] = field(compare=False, default=())
    route: Route | None = field(compare=False, default=None)


Fib = Callable[[Packet], Route]
"""A node's routing: the route of a packet in its present form."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the kernel knows besides the rules: the node's addresses, and the clients that `recent` has recorded."""

    addresses: frozenset[str]
    recent: frozenset[tuple[str, str]] = frozenset()  # (list name, source address)

    def is_local(self, address: str) -> bool:
        return address in self.addresses or ipaddress.ip_address(address).is_loopback


@dataclass(frozen=True, slots=True)
class Branch:
    """One possible course of a packet, so far. `original`: the packet as it was sent, before any translation."""

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
    """A chain that the kernel calls. `hook` is nftables' name of it; lower priorities are called first."""

    hook: str
    priority: int
    nat: bool
    walk: Callable[[Branch, Node], list[Branch]]


def endpoint_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
