"""Routes to the other nodes' pods, from Node objects: over a shared link, or through VXLAN. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cni.model import Interface, Neighbour, Network, NodeFacts, NodeRoute, RouteFacts
from cni.plan import overlay, pod_cidrs

PROTOCOL = 143  # rtm_protocol of all our routes; unused in /etc/iproute2/rt_protos


@dataclass(frozen=True, slots=True)
class RoutesPlan:
    """`add` replaces routes to the same destination; `skipped` says why a node has no route.

    `peers`: the nodes that are reached through the overlay. `believed`: the podCIDRs of other nodes that are theirs,
    with or without a route.
    """

    add: tuple[NodeRoute, ...] = ()
    remove: tuple[RouteFacts, ...] = ()
    skipped: tuple[str, ...] = ()
    peers: tuple[overlay.Peer, ...] = ()
    believed: tuple[Network, ...] = ()


def plan(
    own: NodeFacts,
    nodes: Iterable[NodeFacts],
    connected: Sequence[Interface],
    present: Iterable[RouteFacts],
    own_cidrs: Collection[Network] = (),
    *,
    mode: str = "auto",
    overlay_index: int = 0,
    neighbours: Iterable[Neighbour] = (),
    cluster_cidrs: Collection[Network] = (),
) -> RoutesPlan:
    """What to change so that every other node's podCIDRs can be reached.

    `connected`: the node's own addresses with prefixes, except the bridge's; a plain route's next hop must be on one of
    these links. Of the routes in `present` only those with PROTOCOL are ours. `overlay_index`: the VXLAN link's
    interface index, 0 while there is none; `neighbours`: that link's entries. `cluster_cidrs`: no node's podCIDR is
    believed that is outside of them.
    """
    wanted: dict[Network, NodeRoute] = {}
    peers: dict[str, overlay.Peer] = {}
    others, skipped = pod_cidrs.with_possible_addresses(
        (node for node in nodes if node.name != own.name), connected, (*cluster_cidrs, *own_cidrs)
    )
    addresses = pod_cidrs.NodeAddresses((ip, node.name) for node in others for ip in node.internal_ips)
    reserved, accepted = pod_cidrs.ReservedRanges(connected, addresses, own_cidrs, cluster_cidrs), pod_cidrs.Accepted()
    believed = []
    ours = [route for route in present if route.protocol == PROTOCOL]
    macs = {item.address: item.mac for item in neighbours}
    held = {route.destination: (route.gateway, macs.get(route.gateway) if route.gateway else None) for route in ours}
    for node, cidr in pod_cidrs.ordered(others, held):
        refused = pod_cidrs.refusal(cidr, reserved) or accepted.refusal(cidr)
        found = f"podCIDR {cidr} of node {node.name} {refused}" if refused else _reach(node, cidr, connected, own, mode)
        if not refused:
            believed.append(cidr)
        if isinstance(found, str):
            skipped.append(found)
            continue
        accepted.take(cidr, node.name)
        wanted[cidr] = found
        if found.link and (underlay := overlay.underlay(own, node)) is not None:
            before = peers.get(node.name) or overlay.Peer(node.name, underlay)
            peers[node.name] = before.with_gateway(found.gateway)
    right = {route.destination: (route.gateway, route.link == overlay_index) for route in ours}
    return RoutesPlan(
        add=tuple(r for r in wanted.values() if right.get(r.destination) != (r.gateway, bool(r.link))),
        remove=tuple(route for route in ours if route.destination not in wanted),
        skipped=tuple(skipped),
        peers=tuple(peers.values()),
        believed=tuple(believed),
    )


def _reach(
    node: NodeFacts, cidr: Network, connected: Sequence[Interface], own: NodeFacts, mode: str
) -> NodeRoute | str:
    """The route, or a sentence why there is none."""
    local = {item.ip for item in connected}
    doubled = next((ip for ip in node.internal_ips if ip in local), None)
    if doubled is not None:
        return f"node {node.name} has this node's address {doubled}: no route to its pods {cidr}"
    candidates = [ip for ip in node.internal_ips if ip.version == cidr.version]
    hop = next((ip for ip in candidates if any(ip in item.network for item in connected)), None)
    if hop is not None and mode != "vxlan":
        return NodeRoute(cidr, hop, node.name)
    if mode != "routes" and overlay.underlay(own, node) is not None:
        return NodeRoute(cidr, overlay.gateway(cidr), node.name, overlay.LINK)
    if not candidates:
        return f"node {node.name} has no IPv{cidr.version} InternalIP: no route to its pods {cidr}"
    shown = ", ".join(map(str, candidates))
    return f"node {node.name} ({shown}) is on no link of this node: no route to its pods {cidr}{_why(mode, own)}"


def _why(mode: str, own: NodeFacts) -> str:
    if mode == "routes":
        return " (routes only: --pod-network-overlay auto would use VXLAN)"
    return " (no VXLAN either: this node's own InternalIP is not known)" if not own.internal_ips else ""
