"""The values that the load balancer works on, frozen: Services, their addresses, the table that the leader writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nodelib.addresses import Address as Address

CLASS = "nodewright.io/load-balancer"  # spec.loadBalancerClass of Services that are ours by name
IPS = "nodewright.io/load-balancer-ips"  # annotation: the addresses that a Service requests
SHARE = "nodewright.io/allow-shared-ip"  # annotation: Services of one namespace with the same text may share an address
NAMESPACE = "nodewright-load-balancer"
FAMILIES = {"IPv4": 4, "IPv6": 6}


class Name(NamedTuple):
    """A Service's name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Problem(NamedTuple):
    """Why a Service lacks an address. The note names cause and remedy."""

    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Service:
    """What of a Service decides about its addresses. `created` orders those that want the same one.

    `ours`: whether it is left to us by its type and class. `current`: what its status says.
    """

    name: Name
    uid: str
    version: str = ""  # resourceVersion
    created: str = ""
    ours: bool = True
    families: tuple[int, ...] = (4,)
    all_families: bool = True  # False: some of them will do (PreferDualStack)
    requested: tuple[Address, ...] = ()
    share: str = ""
    ports: frozenset[tuple[str, int]] = frozenset()
    local: bool = False  # externalTrafficPolicy Local
    selector: str = ""
    current: tuple[Address, ...] = ()
    clean: bool = True  # whether its status is written as we write it: addresses only, each of ipMode VIP
    problem: Problem | None = None  # with what it asks for


@dataclass(frozen=True, slots=True)
class Row:
    """An address that is taken: the UIDs of its Services, and the node that announces it ("": none)."""

    uids: tuple[str, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Every address that is taken. Only the leader writes it, and each write names the version that it replaces."""

    rows: Mapping[Address, Row] = field(default_factory=dict)

    def of_node(self, node: str) -> frozenset[Address]:
        """The addresses that a node announces."""
        return frozenset(address for address, row in self.rows.items() if row.node == node)
