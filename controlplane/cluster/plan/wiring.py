"""Links, addresses and routes of a cluster, as a list of what must exist. Pure.

The nodes are connected by a bridge in a namespace of its own, the wire, so that the host's iptables and bridge
netfilter never see their traffic. One veth leads to the host, for kubectl and, with an uplink, for the nodes' way out.

A packet to a pod or service address that nobody has must end on its node or on the wire. For pods an unreachable route
with the highest metric does that. For services it cannot: the kernel needs a route before it comes to the rules that
translate or refuse (nat OUTPUT, filter FORWARD), so no ClusterIP could be reached, and none without endpoints refused.
So service addresses are routed to the link, where nobody answers for an address that no rule translates. (Routed to
`lo`, the kernel would send no ICMP for a REJECT.)

Routed: there is no bridge; the wire is a router with a link to each node, whose address is the only one on it. The
router knows no pods, so pod traffic between nodes must use the overlay.
"""

from __future__ import annotations

from controlplane.cluster.model import Cluster, Node
from controlplane.machine.model import HOST, WIRE, Address, Bridge, NetworkObject, Route, Up, Veth

BRIDGE = "br0"
UPLINK = "eth0"
LAST_METRIC = 1 << 24


def wiring(cluster: Cluster) -> tuple[NetworkObject, ...]:
    """Everything that must exist, in an order in which it can be made."""
    objects: list[NetworkObject] = [Up(WIRE, "lo")]
    if not cluster.options.routed:
        objects += [Bridge(WIRE, BRIDGE), Up(WIRE, BRIDGE)]
    objects += _link(cluster, HOST, cluster.host_link, "host", cluster.host_addresses)
    if cluster.options.control_planes > 1:  # the load balancer listens on the wire itself
        objects.append(Address(WIRE, BRIDGE, f"{cluster.api_address}/{cluster.networks[0].prefixlen}"))
    if cluster.options.routed and cluster.options.uplink:
        objects += _default_route(cluster, WIRE, cluster.host_addresses)
    for node in cluster.nodes:
        objects += node_wiring(cluster, node)
    return tuple(objects)


def node_wiring(cluster: Cluster, node: Node) -> list[NetworkObject]:
    """What one node needs."""
    objects: list[NetworkObject] = [Up(node.name, "lo"), *_link(cluster, node.name, UPLINK, node.name, node.addresses)]
    if cluster.options.uplink:
        gateways = cluster.router_addresses if cluster.options.routed else cluster.host_addresses
        objects += _default_route(cluster, node.name, gateways)
    objects += [Route(node.name, cidr, metric=LAST_METRIC) for cidr in cluster.pod_cidrs]
    for address, cidr in zip(node.addresses, cluster.service_cidrs, strict=True):
        objects.append(Route(node.name, cidr, dev=UPLINK, source=address, metric=LAST_METRIC))
    return objects


def _link(cluster: Cluster, space: str, name: str, peer: str, addresses: tuple[str, ...]) -> list[NetworkObject]:
    """A link to the wire, and its addresses."""
    routed = cluster.options.routed
    objects: list[NetworkObject] = [Veth(space, name, WIRE, peer, "" if routed else BRIDGE), Up(WIRE, peer)]
    if not routed:
        pairs = zip(addresses, cluster.networks, strict=True)
        objects += [Address(space, name, f"{address}/{network.prefixlen}") for address, network in pairs]
        return [*objects, Up(space, name)]
    objects += [Address(space, name, _host(address)) for address in addresses]
    objects += [Address(WIRE, peer, _host(router)) for router in cluster.router_addresses]
    objects.append(Up(space, name))
    objects += [Route(WIRE, _host(address), dev=peer) for address in addresses]
    for router, network in zip(cluster.router_addresses, cluster.networks, strict=True):
        objects.append(Route(space, _host(router), dev=name))
        objects.append(Route(space, str(network), via=router))
    return objects


def _default_route(cluster: Cluster, space: str, gateways: tuple[str, ...]) -> list[NetworkObject]:
    """The uplink is for IPv4 only: this machine's own IPv6, if it has any, is left alone."""
    ways = zip(cluster.families, gateways, strict=True)
    return [Route(space, "0.0.0.0/0", via=gateway) for version, gateway in ways if version == 4]


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"
