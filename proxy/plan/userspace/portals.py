"""The chains of the userspace mode, and the sockets of the proxy that they redirect to. Pure.

Names and comments follow pkg/proxy/userspace/proxier.go of Kubernetes 1.25. A Service port has one socket for traffic
to its cluster IP and, when its two traffic policies differ, a second one for traffic from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nodelib.firewall.canonical import chain_fingerprint, missing_jumps, present_jumps
from nodelib.firewall.objects import Chain, Change, Jump, Rule, TableChange, TableContent, comment, jump, rule
from proxy.model import Desired, Endpoint, ServicePort, ServicePortName
from proxy.plan.context import Context
from proxy.plan.topology import Endpoints, categorize

PORTALS = ("KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST")
NODE_PORTS = ("KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST")
_HOOKS = ("PREROUTING", "OUTPUT")
_LOCAL = ("-m", "addrtype", "--dst-type", "LOCAL")


class SocketName(NamedTuple):
    """A socket: its service port, and whether it serves traffic from outside (`external`) or to the cluster IP."""

    port: ServicePortName
    external: bool

    def __str__(self) -> str:
        return f"{self.port}{' (external)' if self.external else ''}"


@dataclass(frozen=True, slots=True)
class Pool:
    """The endpoints that a socket chooses from. `affinity_seconds` 0: plain round robin."""

    endpoints: Endpoints
    affinity_seconds: int = 0

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple([(endpoint.ip, endpoint.port) for endpoint in self.endpoints])


def pools(desired: Desired, names: Iterable[ServicePortName], ctx: Context) -> dict[SocketName, Pool]:
    """The sockets of the ports in `names`, each with its endpoints. SCTP is left out: it cannot be relayed."""
    found: dict[SocketName, Pool] = {}
    for name in names:
        port = desired.ports.get(name)
        if port is not None and name.protocol != "SCTP":
            found.update(_pools(port, desired.endpoints.get(name, ()), ctx))
    return found


def _pools(port: ServicePort, endpoints: Sequence[Endpoint], ctx: Context) -> dict[SocketName, Pool]:
    seen = categorize(endpoints, port, ctx.node, ctx.zone)
    within = seen.local if port.internal_local else seen.cluster
    sockets = {SocketName(port.name, False): Pool(within, port.affinity_seconds)}
    if port.externally_accessible and port.external_local != port.internal_local:
        outside = seen.local if port.external_local else seen.cluster
        sockets[SocketName(port.name, True)] = Pool(outside, port.affinity_seconds)
    return sockets


def chains(desired: Desired, ports: Mapping[SocketName, int], ctx: Context) -> tuple[Chain, ...]:
    """Our four chains with all their rules; `ports`: the port on which each socket listens."""
    portals: list[Rule] = []
    node_ports: list[Rule] = []
    for name in sorted(desired.ports):
        port = desired.ports[name]
        within = ports.get(SocketName(name, False))
        if within is None:
            continue
        outside = ports.get(SocketName(name, True), within)
        portals.append(_redirect(port, within, "-d", port.cluster_ip, "--dport", str(port.port)))
        for address in port.external_ips:
            portals.append(_redirect(port, outside, "-d", address, "--dport", str(port.port)))
        for address in port.load_balancer_ips:
            to = ("-d", address, "--dport", str(port.port))
            sources: Sequence[tuple[str, ...]] = [("-s", cidr) for cidr in port.source_ranges] or [()]
            portals += [_redirect(port, outside, *source, *to) for source in sources]
        if port.node_port:
            where: Sequence[tuple[str, ...]] = [()]
            if ctx.node_port_ips is not None:
                where = [("-d", address) for address in ctx.node_port_ips]
            node_ports += [_redirect(port, outside, *at, "--dport", str(port.node_port)) for at in where]
    return (
        *[Chain(name, tuple(portals)) for name in PORTALS],
        *[Chain(name, tuple(node_ports)) for name in NODE_PORTS],
    )


def jumps() -> tuple[Jump, ...]:
    """Jumps to our chains. Each is inserted at the top, so the last ones, the portals, come before the NodePorts."""
    found = []
    for chain, target in zip(_HOOKS, NODE_PORTS, strict=True):
        text = comment("handle service NodePorts; NOTE: this must be the last rule in the chain")
        found.append(Jump(chain, rule(text, _LOCAL, jump(target))))
    for chain, target in zip(_HOOKS, PORTALS, strict=True):
        text = comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")
        found.append(Jump(chain, rule(text, jump(target))))
    return tuple(found)


def plan(wanted: Sequence[Chain], kernel: TableContent, ctx: Context) -> Change:
    """The change from `kernel`, table nat as read just now, to the chains in `wanted` and the jumps to them."""
    different = tuple(
        [
            chain
            for chain in wanted
            if not kernel.has(chain.name)
            or kernel.fingerprints.get(chain.name, 0) != chain_fingerprint(chain.rules, ctx.family)
        ]
    )
    return (TableChange("nat", different, add_jumps=missing_jumps(kernel, jumps(), ctx.family)),)


def removal(kernel: TableContent, ctx: Context) -> Change:
    """The change that removes all of it."""
    ours = tuple([name for name in (*PORTALS, *NODE_PORTS) if kernel.has(name)])
    return (TableChange("nat", remove_jumps=present_jumps(kernel, jumps(), ctx.family), delete=ours),)


def _redirect(port: ServicePort, listening: int, *match: str) -> Rule:
    protocol = ("-m", port.protocol, "-p", port.protocol)
    return rule(comment(str(port.name)), protocol, *match, jump("REDIRECT"), "--to-ports", str(listening))
