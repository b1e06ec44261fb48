"""Links, addresses, routes and rules of a cluster, as a list of things that must be so.

Nodes meet on a bridge in a namespace of its own, the wire, so that the host's iptables and
bridge netfilter never see what they say to each other. One veth leads to the host: kubectl
comes in by it, and (with an uplink) the nodes' way out.

A packet for a dead pod or service address must end on its node. For pods an unreachable
route of the highest metric does that. For services it may not: the kernel looks the route up
before the nat OUTPUT hook, so a local process could never reach a ClusterIP; they get a route
to the loopback device (what no rule translates is discarded there) and rules that turn
forwarded packets away.
"""

from __future__ import annotations

import ipaddress

from controlplane.links import HOST, WIRE, Address, Bridge, Route, Rule, Up, Veth, Wish
from controlplane.model import Cluster

BRIDGE = "br0"
UPLINK = "eth0"
LAST_METRIC = 1 << 24
SERVICE_RULES = (90, 91)


def wiring(cluster: Cluster) -> tuple[Wish, ...]:
    """Everything that must exist, in the order in which it can be made."""
    wishes: list[Wish] = [Up(WIRE, "lo"), Bridge(WIRE, BRIDGE), Up(WIRE, BRIDGE)]
    wishes += _port(HOST, cluster.host_link, "host")
    wishes.append(Address(HOST, cluster.host_link, _with_prefix(cluster, cluster.host_address)))
    wishes.append(Up(HOST, cluster.host_link))
    for node in cluster.nodes:
        wishes += node_wiring(cluster, node.name, node.address)
    return tuple(wishes)


def node_wiring(cluster: Cluster, node: str, address: str) -> list[Wish]:
    """The part of one node."""
    wishes: list[Wish] = [Up(node, "lo"), *_port(node, UPLINK, node)]
    wishes.append(Address(node, UPLINK, _with_prefix(cluster, address)))
    wishes.append(Up(node, UPLINK))
    if cluster.options.uplink:
        wishes.append(Route(node, "default", via=cluster.host_address))
    wishes.append(Route(node, cluster.pod_cidr, metric=LAST_METRIC))
    wishes.append(Route(node, cluster.service_cidr, dev="lo", source=address, metric=LAST_METRIC))
    wishes.append(Rule(node, SERVICE_RULES[0], cluster.service_cidr, iif="lo"))
    wishes.append(Rule(node, SERVICE_RULES[1], cluster.service_cidr))
    return wishes


def _port(space: str, name: str, peer: str) -> list[Wish]:
    return [Veth(space, name, WIRE, peer, BRIDGE), Up(WIRE, peer)]


def _with_prefix(cluster: Cluster, address: str) -> str:
    return str(ipaddress.IPv4Interface(f"{address}/{cluster.network.prefixlen}"))
