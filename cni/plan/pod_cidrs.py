"""Which podCIDRs of Node objects are believed. Pure.

A podCIDR becomes a route on every node. With NodeRestriction a node may still create its own Node object with any
podCIDR, so one compromised node could send the traffic of all others to itself: by 0.0.0.0/0, by the API server's
address, by the range of another node's pods. Upstream's route controllers and most pod networks follow such a claim.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_network

from cni.model import Address, Interface, Network, NodeFacts
from nodelib.addresses import hardware_address

# What no podCIDR may overlap: this host, loopback, link-local, multicast, broadcast; in IPv6 mapped addresses too.
_SPECIAL = {
    4: tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"))),
    6: tuple(map(ip_network, ("::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8"))),
}


class NodeAddresses:
    """The addresses of nodes that no podCIDR may cover, each with its node's name: looked up, as there may be thousands
    of both.
    """

    def __init__(self, listed: Iterable[tuple[Address, str]] = ()) -> None:
        self._sorted: dict[int, list[tuple[int, str]]] = {4: [], 6: []}
        for address, name in listed:
            self._sorted[address.version].append((int(address), name))
        for found in self._sorted.values():
            found.sort()

    def inside(self, cidr: Network) -> tuple[Address, str] | None:
        """The first that `cidr` covers, and whose it is."""
        found, first = self._sorted[cidr.version], int(cidr.network_address)
        at = bisect_left(found, (first, ""))
        if at == len(found) or found[at][0] > int(cidr.broadcast_address):
            return None
        return cidr.network_address + (found[at][0] - first), found[at][1]


@dataclass(frozen=True, slots=True)
class ReservedRanges:
    """What the podCIDR of another node is checked against.

    It must not overlap `connected` (this node's own addresses with prefixes, except those of its bridge), `own` (this
    node's podCIDRs) or an address of `nodes`. It must be inside `cluster`, the ranges of all pods; without any of a
    family, any range may be theirs.
    """

    connected: Sequence[Interface] = ()
    nodes: NodeAddresses = field(default_factory=NodeAddresses)
    own: Collection[Network] = ()
    cluster: Collection[Network] = ()


@dataclass(slots=True)
class Accepted:
    """The podCIDRs of other nodes that were believed so far, each with the name of its node. No two overlap."""

    _names: dict[Network, str] = field(default_factory=dict)
    _sorted: dict[int, list[tuple[int, Network]]] = field(default_factory=lambda: {4: [], 6: []})

    def take(self, cidr: Network, name: str) -> None:
        """One that is not refused."""
        self._names[cidr] = name
        insort(self._sorted[cidr.version], (int(cidr.network_address), cidr))

    def refusal(self, cidr: Network) -> str:
        """Why `cidr` cannot be believed beside these, "" when it can."""
        if cidr in self._names:
            return f"is node {self._names[cidr]}'s too"
        found = self._sorted[cidr.version]
        at = bisect_left(found, int(cidr.network_address), key=lambda one: one[0])
        other = next((one for _, one in found[max(0, at - 1) : at + 1] if overlap(cidr, one)), None)
        return f"overlaps {other} of node {self._names[other]}" if other is not None else ""


def with_possible_addresses(
    nodes: Iterable[NodeFacts], connected: Iterable[Interface], pods: Iterable[Network]
) -> tuple[list[NodeFacts], list[str]]:
    """The nodes without addresses that no node has, and a sentence for each that has such. Each says itself which ones
    it has, at any time.

    `pods`: ranges of pods. By naming an address among them a node would take that pod's whole node off the network, as
    no podCIDR may cover a node's address, or have packets of the overlay sent through the overlay. A range that this
    node has an address in is that of nodes, too. And the kernel takes a broadcast address for no next hop.
    """
    mine = list(connected)
    ranges = [one for one in pods if not any(item.version == one.version and item.ip in one for item in mine)]
    broadcasts = {one.network.broadcast_address for one in mine if one.version == 4 and one.network.prefixlen < 31}

    def is_possible(ip: Address) -> bool:
        return ip not in broadcasts and not any(ip.version == one.version and ip in one for one in ranges)

    found, problems = [], []
    for node in nodes:
        possible = tuple([ip for ip in node.internal_ips if is_possible(ip)])
        if len(possible) < len(node.internal_ips):
            first = next(ip for ip in node.internal_ips if not is_possible(ip))
            why = "a broadcast address" if first in broadcasts else "an address of pods (--pod-network-cidr)"
            problems.append(f"node {node.name} names {first} among its addresses, which is {why}: not used")
            node = replace(node, internal_ips=possible)
        found.append(node)
    return found, problems


def main_addresses(node: NodeFacts) -> list[Address]:
    """The first of each family. Each node names its own, and what pods send to a node's address keeps theirs: of any
    address out there that a node calls its own, the pods of all nodes would get no answer.
    """
    found: dict[int, Address] = {}
    for ip in node.internal_ips:
        found.setdefault(ip.version, ip)
    return list(found.values())


def ordered(nodes: Iterable[NodeFacts], held: Mapping[Network, Collection[object]]) -> list[tuple[NodeFacts, Network]]:
    """All nodes' podCIDRs, in the order in which they are believed: of two that overlap, the first is.

    A node that is served already keeps its range (`held`: networks with the address of the node that they are routed to
    now, or its hardware address in the overlay). Then the older Node comes first: no node changes the podCIDR that it
    has, and none is given to a new one that an older one has. Of Nodes of one second the smaller range comes first, so
    one with a huge podCIDR takes nothing from those inside of it.
    """
    found = [(node, cidr) for node in nodes for cidr in node.pod_cidrs]

    def rank(one: tuple[NodeFacts, Network]) -> tuple[bool, str, int, int, str]:
        node, cidr = one
        mine = any(ip in held.get(cidr, ()) or hardware_address(ip) in held.get(cidr, ()) for ip in node.internal_ips)
        return (not mine, node.created, cidr.version, -cidr.prefixlen, node.name)

    return sorted(found, key=rank)


def refusal(cidr: Network, reserved: ReservedRanges) -> str:
    """Why another node's podCIDR is not believed, "" when it may be: the rest of "podCIDR … of node …"."""
    if reason := takeover(cidr, reserved.connected):
        return reason
    if any(overlap(cidr, one) for one in reserved.own):
        return "overlaps this node's own"
    ranges = [one for one in reserved.cluster if one.version == cidr.version]
    if ranges and not any(_inside(cidr, one) for one in ranges):
        return f"is outside the cluster's ranges {', '.join(map(str, ranges))} (--pod-network-cidr)"
    covered = reserved.nodes.inside(cidr)
    return f"covers the address {covered[0]} of node {covered[1]}" if covered else ""


def takeover(cidr: Network, connected: Iterable[Interface]) -> str:
    """Why no pods can have the addresses of `cidr`, this node's own pods included; "" when they can."""
    special = next((one for one in _SPECIAL[cidr.version] if overlap(cidr, one)), None)
    if special is not None:
        return f"overlaps the special range {special}"
    inside = next((item for item in connected if item.version == cidr.version and item.ip in cidr), None)
    return f"covers this node's own address {inside.ip}" if inside is not None else ""


def overlap(one: Network, other: Network) -> bool:
    """Whether they have an address in common; never, if they are of different families."""
    return one.version == other.version and one.overlaps(other)  # type: ignore[arg-type]


def _inside(one: Network, other: Network) -> bool:
    return one.version == other.version and one.subnet_of(other)  # type: ignore[arg-type]
