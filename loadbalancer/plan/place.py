"""Which node announces which address. Pure.

An address stays with its node as long as that one is alive and may announce it: another node knows nothing of the
connections that are open, and would cut them. A new address goes to the node with the fewest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from loadbalancer.model import Address, Name, Service


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The nodes of a Service's endpoints: ready ones, and those that serve until they end."""

    ready: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Nodes:
    """`live`: heard of just now. `sure`: whether whoever is not among them is dead, or may only not be heard yet."""

    live: frozenset[str]
    sure: bool


def place(
    owners: Mapping[Address, Iterable[Service]],
    before: Mapping[Address, str],
    nodes: Nodes,
    endpoints: Callable[[Name], Endpoints],
) -> dict[Address, str]:
    """The node of each address, "" where no node may announce it."""
    found: dict[Address, str] = {}
    homeless: dict[Address, frozenset[str]] = {}
    for address, services in owners.items():
        able = _able(services, nodes.live, endpoints)
        now = before.get(address, "")
        if now and (now in able or (now not in nodes.live and not nodes.sure)):
            found[address] = now
        else:
            homeless[address] = able
    load = Counter(found.values())
    for address, able in homeless.items():
        chosen = min(able, key=lambda node: (load[node], _weight(address, node)), default="")
        load[chosen] += 1
        found[address] = chosen
    return {address: found[address] for address in owners}


def _able(services: Iterable[Service], live: frozenset[str], endpoints: Callable[[Name], Endpoints]) -> frozenset[str]:
    """Policy Local: only nodes with endpoints, as others would drop the packets."""
    able = live
    for one in services:
        if one.local:
            there = endpoints(one.name)
            able = able & there.ready or able & there.serving
    return able


def _weight(address: Address, node: str) -> bytes:
    """Spreads addresses over nodes with as many of them each, the same way at every leader."""
    return hashlib.sha256(f"{address} {node}".encode()).digest()
