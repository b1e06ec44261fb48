"""Which node announces which address. Pure.

An address stays with its node as long as that one is alive and may announce it: another node knows nothing of the
connections that are open, and would cut them. One without a node goes, with policy Local, to a node with the most ready
endpoints, because only those of that node answer; among equals to the node with the fewest addresses. While it is fresh
it follows the most ready endpoints: the pods of a new Deployment become ready one after the other, and the first of
them shall not decide for all time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from loadbalancer.model import Address, Name, Service


@dataclass(frozen=True, slots=True)
class Endpoints:
    """How many of a Service's endpoints a node has: ready ones, and those that serve until they end."""

    ready: Mapping[str, int] = field(default_factory=dict)
    serving: Mapping[str, int] = field(default_factory=dict)


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
    fresh: AbstractSet[Address] = frozenset(),
) -> dict[Address, str]:
    """The node of each address, "" where no node may announce it. `fresh`: those that had no node until just now."""
    found: dict[Address, str] = {}
    homeless: dict[Address, Mapping[str, int]] = {}
    for address, services in owners.items():
        able = _able(services, nodes.live, endpoints)
        now = before.get(address, "")
        stays = now in able and (address not in fresh or able[now] == max(able.values()))
        if stays or (now and now not in nodes.live and not nodes.sure):
            found[address] = now
        else:
            homeless[address] = able
    load = Counter(found.values())
    for address, able in homeless.items():
        chosen = min(able, key=lambda node: (-able[node], load[node], _weight(address, node)), default="")
        load[chosen] += 1
        found[address] = chosen
    return {address: found[address] for address in owners}


def _able(
    services: Iterable[Service], live: frozenset[str], endpoints: Callable[[Name], Endpoints]
) -> Mapping[str, int]:
    """The nodes that may announce, with what speaks for each: their endpoints.

    Policy Local: only nodes with endpoints, as others would drop the packets. Policy Cluster: all are alike.
    """
    able = dict.fromkeys(live, 0)
    for one in services:
        if one.local:
            there = endpoints(one.name)
            able = _having(able, there.ready) or _having(able, there.serving)
    return able


def _having(able: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
    return {node: count + counts[node] for node, count in able.items() if counts.get(node)}


def _weight(address: Address, node: str) -> bytes:
    """Spreads addresses over nodes with as many of them each, the same way at every leader."""
    return hashlib.sha256(f"{address} {node}".encode()).digest()
