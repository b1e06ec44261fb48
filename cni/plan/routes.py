"""Routes to the other nodes' pods, from Node objects. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cni.model import Address, Interface, Network, NodeFacts, NodeRoute, RouteFacts

PROTOCOL = 143  # rtm_protocol of every route that is ours; unused in /etc/iproute2/rt_protos


@dataclass(frozen=True, slots=True)
class RoutesPlan:
    """`add` replaces what is there for the same destination; `skipped` says why a node has no route."""

    add: tuple[NodeRoute, ...] = ()
    remove: tuple[RouteFacts, ...] = ()
    skipped: tuple[str, ...] = ()


def plan(
    own_name: str,
    nodes: Iterable[NodeFacts],
    connected: Sequence[Interface],
    present: Iterable[RouteFacts],
    own_cidrs: Collection[Network] = (),
) -> RoutesPlan:
    """What to change so that every other node's podCIDRs are routed to its InternalIP.

    `connected` are the node's own addresses with their prefixes, the bridge's left out: a next hop must be on
    one of those links. Of `present` only routes with PROTOCOL are ours to touch.
    """
    wanted: dict[Network, NodeRoute] = {}
    skipped = []
    for node in sorted(nodes, key=lambda item: item.name):
        if node.name == own_name:
            continue
        for cidr in node.pod_cidrs:
            reason, hop = _next_hop(node, cidr, connected)
            other = wanted.get(cidr)
            if other is not None:
                reason = f"podCIDR {cidr} of node {node.name} is node {other.node}'s too"
            elif any(cidr.version == own.version and cidr.overlaps(own) for own in own_cidrs):  # type: ignore[arg-type]
                reason = f"podCIDR {cidr} of node {node.name} overlaps this node's own"
            if reason or hop is None:
                skipped.append(reason)
            else:
                wanted[cidr] = NodeRoute(cidr, hop, node.name)
    ours = [route for route in present if route.protocol == PROTOCOL]
    right = {route.destination: route.gateway for route in ours}
    return RoutesPlan(
        add=tuple(route for route in wanted.values() if right.get(route.destination) != route.gateway),
        remove=tuple(route for route in ours if route.destination not in wanted),
        skipped=tuple(skipped),
    )


def _next_hop(node: NodeFacts, cidr: Network, connected: Sequence[Interface]) -> tuple[str, Address | None]:
    candidates = [ip for ip in node.internal_ips if ip.version == cidr.version]
    if not candidates:
        return f"node {node.name} has no IPv{cidr.version} InternalIP: no route to its pods {cidr}", None
    own = {item.ip for item in connected}
    for ip in candidates:
        if ip in own:
            return f"node {node.name} has this node's address {ip}: no route to its pods {cidr}", None
        if any(ip in item.network for item in connected):
            return "", ip
    shown = ", ".join(map(str, candidates))
    return f"node {node.name} ({shown}) is on no link of this node: no route to its pods {cidr}", None
