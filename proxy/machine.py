"""What is set and looked up on the machine: sysctls, counters, addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodelib.errors import Temporary
from nodelib.firewall.objects import Family
from proxy.edge import addresses, nfacct, sysctl
from proxy.model import NodeFacts
from proxy.plan.iptables.context import (
    CT_INVALID_COUNTER,
    LOCALHOST_COUNTER,
    Context,
    LocalDetector,
    by_cidr,
    by_interface,
    mark_text,
)
from proxy.plan.listen import ANY, expand, has_loopback, networks, node_port_ips
from proxy.plan.services import family_of
from proxy.settings import ConntrackSettings, LocalSettings, Settings

log = logging.getLogger(__name__)

ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"
TCP_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal"


def context(settings: Settings, family: Family) -> Context:
    """What the configuration says for `family`, before the Node is known."""
    given = _node_port_addresses(settings)
    named = tuple([item for item in given if item != "primary"])
    reachable = bool(named or not given) and has_loopback(networks(expand(named, ()), Family.IPV4))
    return Context(
        family=family,
        node=settings.node_name,
        mark=mark_text(settings.rules.masquerade_bit),
        masquerade_all=settings.rules.masquerade_all,
        detector=detector(settings.local, family),
        localhost_node_ports=settings.mode == "iptables" and settings.rules.localhost_node_ports and reachable,
    )


def detector(local: LocalSettings, family: Family) -> LocalDetector:
    """With NodeCIDR it is known with the Node only."""
    if local.mode == "BridgeInterface":
        return by_interface(local.bridge)
    if local.mode == "InterfaceNamePrefix":
        return by_interface(f"{local.prefix}+")
    if local.mode == "ClusterCIDR":
        own = [cidr for cidr in local.cluster_cidrs if family_of(cidr) is family]
        return by_cidr(own[0]) if own else LocalDetector()
    return LocalDetector()


def refiner(settings: Settings, family: Family) -> Callable[[Context, NodeFacts], Context]:
    """For each full sync: counters, sysctls and addresses as they are then. Blocking."""

    def refine(ctx: Context, node: NodeFacts) -> Context:
        given = _node_port_addresses(settings)
        cidrs = networks(expand(given, node.ips), family)
        if cidrs is None and given and all(item == "primary" for item in given):
            cidrs = ()  # the node has no address of this family (yet): better no NodePorts than all addresses
        chosen = None
        if cidrs is None and settings.mode == "nftables":
            cidrs = networks(ANY, family, every=True)  # there each address is named
        if cidrs is not None:
            localhost = ctx.localhost_node_ports
            chosen = node_port_ips(cidrs, addresses.local_addresses(), family, localhost=localhost)
        counters = [name for name in (CT_INVALID_COUNTER, LOCALHOST_COUNTER) if nfacct.ensure(name)]
        return replace(
            ctx,
            node_port_ips=chosen,
            counters=frozenset(counters),
            tcp_liberal=bool(sysctl.read_int(TCP_LIBERAL)),
        )

    return refine


def _node_port_addresses(settings: Settings) -> tuple[str, ...]:
    """Upstream's defaults: every address, in nftables mode the node's primary one."""
    return settings.node_port_addresses or (("primary",) if settings.mode == "nftables" else ())


def set_sysctls(settings: Settings) -> None:
    """route_localnet and conntrack's limits. What cannot be set is one line each: the rules work without."""
    wanted: dict[str, int] = {}
    if context(settings, Family.IPV4).localhost_node_ports:
        wanted[ROUTE_LOCALNET] = 1
    wanted.update(_conntrack_sysctls(settings.conntrack))
    for name, value in wanted.items():
        try:
            if sysctl.ensure(name, value):
                log.info("sysctl %s = %d", name, value)
        except Temporary as error:
            log.warning("%s", error)


def set_oom_score(value: int) -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(str(value))
    except OSError as error:
        log.warning(
            "oomScoreAdj %d cannot be set (%s): the proxy keeps the one it was started with", value, error.strerror
        )


def _conntrack_sysctls(settings: ConntrackSettings) -> dict[str, int]:
    wanted: dict[str, int] = {}
    if settings.max_per_core > 0:
        scaled = min(settings.max_per_core * sysctl.cpu_count(), 1 << 20)
        wanted["net/netfilter/nf_conntrack_max"] = max(scaled, settings.minimum)
    timeouts = {
        "tcp_timeout_established": settings.tcp_established_timeout,
        "tcp_timeout_close_wait": settings.tcp_close_wait_timeout,
        "udp_timeout": settings.udp_timeout,
        "udp_timeout_stream": settings.udp_stream_timeout,
    }
    wanted.update({f"net/netfilter/nf_conntrack_{name}": int(value) for name, value in timeouts.items() if value > 0})
    if settings.tcp_be_liberal:
        wanted[TCP_LIBERAL] = 1
    return wanted
