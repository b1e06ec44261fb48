"""The VXLAN overlay: its link, its forwarding and neighbour entries, its MTU. Pure.

Nothing is learned and nothing is announced. A node's VTEP address, hardware address and gateway follow from its Node
object, so every other node can write the entries for it (as flannel's vxlan backend does, but without annotations).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from typing import TypeVar

from cni.model import (
    Address,
    Forward,
    Interface,
    LinkFacts,
    Neighbour,
    Network,
    NodeFacts,
    OverlayPlan,
    Tunnel,
    TunnelGuard,
)
from cni.plan.iptables import collapsed
from nodelib.addresses import hardware_address

T = TypeVar("T")

LINK = "nwvx0"
VNI = 1
OVERHEAD = {4: 50, 6: 70}  # IP 20 or 40, UDP 8, VXLAN 8, inner Ethernet 14
SMALLEST = {4: 576, 6: 1280}  # RFC 791, RFC 8200: the least MTU with which the family works
LEAST = {4: 1024, 6: 1280}  # what the path to one node may make of the MTU of all; Linux believes 552 and 1280


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node of the overlay. `underlay`: the address for its VXLAN packets; `gateways`: its next hops inside."""

    node: str
    underlay: Address
    gateways: tuple[Address, ...] = ()

    def with_gateway(self, address: Address) -> Peer:
        return replace(self, gateways=(*self.gateways, address))


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """Entries to add or replace, and entries to remove."""

    forward: tuple[Forward, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    stale_forward: tuple[Forward, ...] = ()
    stale_neighbours: tuple[Neighbour, ...] = ()


def underlay(own: NodeFacts, other: NodeFacts) -> Address | None:
    """The other node's address in the family that this node's VXLAN uses, None when it has none."""
    local = vtep(own)
    if local is None:
        return None
    return next((ip for ip in other.internal_ips if ip.version == local.version), None)


def vtep(node: NodeFacts) -> Address | None:
    """The node's end of its tunnels: its first IPv4 InternalIP, else its first InternalIP."""
    ipv4 = (ip for ip in node.internal_ips if ip.version == 4)
    return next(ipv4, node.internal_ips[0] if node.internal_ips else None)


def gateway(cidr: Network) -> Address:
    """The node's own address in its podCIDR, as cni.spec.configuration.address_range chooses it."""
    return cidr.network_address + 1


def plan(own: NodeFacts, cidrs: Iterable[Network], port: int, mtu: int) -> OverlayPlan | None:
    """The VXLAN link of this node; None when its InternalIP is not known.

    The link has the gateway's address, too. So packets of the node itself, or masqueraded by a service proxy, have a
    source address that the answer can be routed to through the overlay.
    """
    local = vtep(own)
    if local is None:
        return None
    addresses = tuple(ip_interface(f"{gateway(cidr)}/{cidr.max_prefixlen}") for cidr in cidrs)
    return OverlayPlan(LINK, Tunnel(VNI, port, local), hardware_address(local), mtu, addresses)


def guard(tunnel: Tunnel | None, version: int, pods: Iterable[Network]) -> TunnelGuard | None:
    """What keeps packets of these pods from the node's end of the overlay; None if that is of the other family."""
    if tunnel is None or tunnel.local.version != version:
        return None
    return TunnelGuard(tunnel.port, tunnel.local, LINK, tuple(collapsed(one for one in pods if one.version == version)))


def must_be_remade(wanted: OverlayPlan, link: LinkFacts | None) -> bool:
    """Whether an existing link has to be replaced: the properties of a tunnel cannot be changed."""
    return link is not None and (link.tunnel != wanted.tunnel or link.mac != wanted.mac)


def entries(peers: Iterable[Peer], forward: Collection[Forward], neighbours: Collection[Neighbour]) -> EntryChanges:
    """The changes from the link's present entries to those that `peers` need."""
    wanted_forward, wanted_neighbours = set(), set()
    for peer in peers:
        wanted_forward.add(Forward(hardware_address(peer.underlay), peer.underlay))
        wanted_neighbours |= {Neighbour(address, hardware_address(peer.underlay)) for address in peer.gateways}
    return EntryChanges(
        forward=_sorted(wanted_forward - set(forward)),
        neighbours=_sorted(wanted_neighbours - set(neighbours)),
        stale_forward=_sorted(set(forward) - wanted_forward),
        # An entry with another hardware address is replaced: removing it would remove the new one.
        stale_neighbours=_sorted(
            {item for item in neighbours if item.address not in {new.address for new in wanted_neighbours}}
        ),
    )


def link_mtu(
    uplink: int, own: NodeFacts, peers: Sequence[Peer], paths: Mapping[Address, int], cidrs: Iterable[Network] = ()
) -> int:
    """The largest inner packet that reaches every peer. `paths`: path MTUs, where they are below the uplink's.

    Whoever is at one node, or on the way there, says what its path carries, and all pods of all nodes have what follows
    from it. So a path makes it no smaller than LEAST, and packets to such a node come in fragments.
    """
    overhead = _overhead(own)
    narrowest = min((paths.get(peer.underlay, uplink) for peer in peers), default=uplink) - overhead
    least = max((LEAST[cidr.version] for cidr in cidrs), default=LEAST[6])
    return max(narrowest, min(least, uplink - overhead))


def narrow_paths(inner: int, own: NodeFacts, peers: Sequence[Peer], paths: Mapping[Address, int]) -> list[str]:
    """The nodes whose packets come in fragments when the overlay has that MTU, one sentence each."""
    overhead = _overhead(own)
    return [
        f"the path to node {peer.node} ({peer.underlay}) carries packets of {paths[peer.underlay]} bytes: those "
        f"of pods come in fragments, as they have up to {inner + overhead} with the overlay's header"
        for peer in peers
        if peer.underlay in paths and paths[peer.underlay] < inner + overhead
    ]


def _overhead(own: NodeFacts) -> int:
    local = vtep(own)
    return OVERHEAD[local.version] if local else max(OVERHEAD.values())


def pod_mtu(uplink: int, overlay: int, cidrs: Iterable[Network]) -> tuple[int, str]:
    """(MTU of pods, what is wrong with it or ""). `overlay` 0: no overlay is in use.

    A pod's interface has the smallest MTU of all its paths: with a larger one, TCP through the overlay hangs wherever
    ICMP answers are filtered.
    """
    mtu = min(uplink, overlay) if overlay else uplink
    least = max((SMALLEST[cidr.version] for cidr in cidrs), default=0)
    if mtu >= least:
        return mtu, ""
    return mtu, f"pods get an MTU of {mtu}, and their address family needs {least}: raise the MTU between the nodes"


def addresses_to_change(
    wanted: OverlayPlan, present: Collection[Interface]
) -> tuple[tuple[Interface, ...], tuple[Interface, ...]]:
    """(to add, to remove). Link-local addresses belong to the kernel and stay."""
    add = tuple(item for item in wanted.addresses if item not in present)
    remove = tuple(item for item in present if item not in wanted.addresses and not item.ip.is_link_local)
    return add, remove


def _sorted(items: set[T]) -> tuple[T, ...]:
    return tuple(sorted(items, key=str))
