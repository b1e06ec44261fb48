"""Which UDP flows in conntrack point to endpoints that no longer serve. Pure.

Follows upstream pkg/proxy/conntrack/cleanup.go. A UDP connection has no end: a client that keeps sending keeps its
conntrack entry alive, and with it the old translation. A change of traffic policy or topology does not end a flow,
just as it does not end a TCP connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from nodelib.netlink.flows import UdpFlow
from proxy.model import Desired

_Key = TypeVar("_Key")
_Endpoints = frozenset[tuple[str, int]] | set[tuple[str, int]]


def stale_flows(desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
    """Flows to a Service address or NodePort that are translated to anything but a serving endpoint.

    Several Services may ask for an external address, of which one has it: an endpoint of any of them will do.
    """
    by_address: dict[tuple[str, int], _Endpoints] = {}
    by_node_port: dict[int, _Endpoints] = {}
    for name, port in desired.ports.items():
        if name.protocol != "UDP":
            continue
        serving = frozenset(
            [(endpoint.ip, endpoint.port) for endpoint in desired.endpoints.get(name, ()) if endpoint.serving]
        )
        for address in (port.cluster_ip, *port.load_balancer_ips, *port.external_ips):
            _add(by_address, (address, port.port), serving)
        # Only the number identifies a NodePort: without endpoints, any flow to that port would match.
        if port.node_port and serving:
            _add(by_node_port, port.node_port, serving)
    stale = []
    for flow in flows:
        one = by_address.get((flow.destination, flow.destination_port))
        two = by_node_port.get(flow.destination_port)
        if one is None and two is None:
            continue
        answering = flow.reply_source, flow.reply_port
        if answering not in (one or ()) and answering not in (two or ()):
            stale.append(flow)
    return stale


def _add(known: dict[_Key, _Endpoints], key: _Key, serving: frozenset[tuple[str, int]]) -> None:
    """Nearly always one asks for it, whose endpoints are the same at all of its addresses; many may ask for another."""
    before = known.get(key)
    if before is None:
        known[key] = serving
    elif isinstance(before, frozenset):
        known[key] = {*before, *serving}
    else:
        before |= serving


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
