"""Which UDP flows in conntrack point to endpoints that no longer serve. Pure.

Follows upstream pkg/proxy/conntrack/cleanup.go. A UDP connection has no end: a client that keeps sending keeps its
conntrack entry alive, and with it the old translation. A change of traffic policy or topology does not end a flow,
just as it does not end a TCP connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nodelib.netlink.flows import UdpFlow
from proxy.model import Desired


def stale_flows(desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
    """Flows to a Service address or NodePort that are translated to anything but a serving endpoint."""
    by_address: dict[tuple[str, int], frozenset[tuple[str, int]]] = {}
    by_node_port: dict[int, frozenset[tuple[str, int]]] = {}
    for name, port in desired.ports.items():
        if name.protocol != "UDP":
            continue
        serving = frozenset(
            [(endpoint.ip, endpoint.port) for endpoint in desired.endpoints.get(name, ()) if endpoint.serving]
        )
        for address in (port.cluster_ip, *port.load_balancer_ips, *port.external_ips):
            by_address[address, port.port] = serving
        # Only the number identifies a NodePort: without endpoints, any flow to that port would match.
        if port.node_port and serving:
            by_node_port[port.node_port] = serving
    stale = []
    for flow in flows:
        wanted = by_address.get((flow.destination, flow.destination_port))
        if wanted is None:
            wanted = by_node_port.get(flow.destination_port)
        if wanted is not None and (flow.reply_source, flow.reply_port) not in wanted:
            stale.append(flow)
    return stale


def redirected_elsewhere(desired: Desired, flows: Iterable[UdpFlow], ports: Collection[int]) -> list[UdpFlow]:
    """The same for the userspace mode: flows that are redirected to a local port that is not in `ports`."""
    addresses: set[tuple[str, int]] = set()
    node_ports: set[int] = set()
    for name, port in desired.ports.items():
        if name.protocol == "UDP":
            addresses.update((one, port.port) for one in (port.cluster_ip, *port.load_balancer_ips, *port.external_ips))
            node_ports.add(port.node_port)
    return [
        flow
        for flow in flows
        if ((flow.destination, flow.destination_port) in addresses or flow.destination_port in node_ports)
        and flow.reply_port not in ports
    ]
