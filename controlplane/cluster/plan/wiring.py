"""Links, addresses, routes and rules of a cluster, as a list of things that must be so.

Nodes meet on a bridge in a namespace of its own, the wire, so that the host's iptables and
bridge netfilter never see what they say to each other. One veth leads to the host: kubectl
comes in by it, and (with an uplink) the nodes' way out.

A packet for a dead pod or service address must end on its node or on the wire. For pods an
unreachable route of the highest metric does that. For services it may not: the kernel looks the
route up before the rules that translate or refuse (nat OUTPUT, filter FORWARD), so a ClusterIP
could not be reached, nor one without endpoints be refused. They are on the link: nobody there
answers for an address that no rule translates. (On `lo` the kernel sends no ICMP for a REJECT.)

Routed: no bridge; the wire is a router with a link to each node, which has its address alone on it. It knows no
pod, so pod traffic between nodes must take the overlay.
"""

from __future__ import annotations

from controlplane.cluster.model import Cluster, Node
from controlplane.machine.model import HOST, WIRE, Address, Bridge, Route, Up, Veth, Wish

BRIDGE = "br0"
UPLINK = "eth0"
LAST_METRIC = 1 << 24


def wiring(cluster: Cluster) -> tuple[Wish, ...]:
    """Everything that must exist, in the order in which it can be made."""
    wishes: list[Wish] = [Up(WIRE, "lo")]
    if not cluster.options.routed:
        wishes += [Bridge(WIRE, BRIDGE), Up(WIRE, BRIDGE)]
    wishes += _link(cluster, HOST, cluster.host_link, "host", cluster.host_addresses)
    if cluster.options.control_planes > 1:  # what spreads clients over them listens on the wire itself
        wishes.append(Address(WIRE, BRIDGE, f"{cluster.api_address}/{cluster.networks[0].prefixlen}"))
    if cluster.options.routed and cluster.options.uplink:
        wishes += _default_route(cluster, WIRE, cluster.host_addresses)
    for node in cluster.nodes:
        wishes += node_wiring(cluster, node)
    return tuple(wishes)


def node_wiring(cluster: Cluster, node: Node) -> list[Wish]:
    """The part of one node."""
    wishes: list[Wish] = [Up(node.name, "lo"), *_link(cluster, node.name, UPLINK, node.name, node.addresses)]
    if cluster.options.uplink:
        gateways = cluster.router_addresses if cluster.options.routed else cluster.host_addresses
        wishes += _default_route(cluster, node.name, gateways)
    wishes += [Route(node.name, cidr, metric=LAST_METRIC) for cidr in cluster.pod_cidrs]
    for address, cidr in zip(node.addresses, cluster.service_cidrs, strict=True):
        wishes.append(Route(node.name, cidr, dev=UPLINK, source=address, metric=LAST_METRIC))
    return wishes


def _link(cluster: Cluster, space: str, name: str, peer: str, addresses: tuple[str, ...]) -> list[Wish]:
    """A link to the wire and the addresses on it."""
    routed = cluster.options.routed
    wishes: list[Wish] = [Veth(space, name, WIRE, peer, "" if routed else BRIDGE), Up(WIRE, peer)]
    if not routed:
        pairs = zip(addresses, cluster.networks, strict=True)
        wishes += [Address(space, name, f"{address}/{network.prefixlen}") for address, network in pairs]
        return [*wishes, Up(space, name)]
    wishes += [Address(space, name, _host(address)) for address in addresses]
    wishes += [Address(WIRE, peer, _host(router)) for router in cluster.router_addresses]
    wishes.append(Up(space, name))
    wishes += [Route(WIRE, _host(address), dev=peer) for address in addresses]
    for router, network in zip(cluster.router_addresses, cluster.networks, strict=True):
        wishes.append(Route(space, _host(router), dev=name))
        wishes.append(Route(space, str(network), via=router))
    return wishes


def _default_route(cluster: Cluster, space: str, gateways: tuple[str, ...]) -> list[Wish]:
    """The way out is IPv4's only: this machine's own IPv6, if it has any, is left alone."""
    ways = zip(cluster.families, gateways, strict=True)
    return [Route(space, "0.0.0.0/0", via=gateway) for version, gateway in ways if version == 4]


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"
