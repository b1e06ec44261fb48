"""What is set and looked up on the machine: sysctls, counters, families, the first look at the rules."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nodelib import command
from nodelib.errors import NodewrightError, NotFound, Temporary
from nodelib.firewall.backend import Backend as Variant
from nodelib.firewall.backend import detect
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from proxy.backends.iptables import IptablesBackend
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
from proxy.plan.listen import expand, has_loopback, networks, node_port_ips
from proxy.plan.services import family_of
from proxy.settings import ConntrackSettings, LocalSettings, Settings

log = logging.getLogger(__name__)

ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"
TCP_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal"


async def usable_tables() -> dict[Family, Iptables]:
    """iptables of every family that can be used here. Raises NotFound when there is none for IPv4."""
    variant: Variant = await detect()
    log.info("iptables: %s (%s)", variant.variant or "the default variant", variant.reason)
    found: dict[Family, Iptables] = {}
    for family in Family:
        tables = Iptables(family, variant)
        if family is Family.IPV6 and not _kernel_has_ipv6():
            log.info("IPv6 is off in this kernel or namespace: only IPv4 is served")
            continue
        try:
            await tables.present()
        except NotFound as error:
            if family is Family.IPV4:
                raise
            log.info("only IPv4 is served: %s", error)
            continue
        found[family] = tables
    return found


def context(settings: Settings, family: Family) -> Context:
    """What the configuration says for `family`, before the Node is known."""
    given = settings.node_port_addresses
    named = tuple([item for item in given if item != "primary"])
    reachable = bool(named or not given) and has_loopback(networks(expand(named, ()), Family.IPV4))
    return Context(
        family=family,
        node=settings.node_name,
        mark=mark_text(settings.iptables.masquerade_bit),
        masquerade_all=settings.iptables.masquerade_all,
        detector=detector(settings.local, family),
        localhost_node_ports=settings.iptables.localhost_node_ports and reachable,
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


def refiner(settings: Settings, family: Family, node: Callable[[], NodeFacts]) -> Callable[[Context], Context]:
    """For each full sync: counters, sysctls and addresses as they are then. Blocking."""

    def refine(ctx: Context) -> Context:
        given = settings.node_port_addresses
        cidrs = networks(expand(given, node().ips), family)
        if cidrs is None and given and all(item == "primary" for item in given):
            cidrs = ()  # the node has no address of this family (yet): better no NodePorts than all addresses
        chosen = None
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


def set_sysctls(settings: Settings, *, localhost_node_ports: bool) -> None:
    """route_localnet and conntrack's limits. What cannot be set is one line each: the rules work without."""
    wanted: dict[str, int] = {}
    if localhost_node_ports:
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


async def remove_everything() -> bool:
    """--cleanup: our rules of both families, in every variant that has some. True when all went well."""
    well = True
    variants = [variant for variant in ("nft", "legacy") if shutil.which(f"iptables-{variant}-save")] or [""]
    for variant in variants:
        for family in Family:
            tables = Iptables(family, Variant(variant))
            try:
                if await _has_ours(tables):
                    await IptablesBackend(tables, Context(family=family)).cleanup()
                    log.info("%s %s: removed", tables.backend.tool(family), family)
            except NodewrightError as error:
                log.error("%s", error)
                well = False
    return well


async def _has_ours(tables: Iptables) -> bool:
    # Without -t only tables in use are read: naming one would make the legacy tool create it in the kernel.
    done = await command.run((tables.backend.save(tables.family),), timeout=300, check=False)
    return b"\n:KUBE-SERVICES " in done.stdout or b"\n:KUBE-PROXY-CANARY " in done.stdout


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


def _kernel_has_ipv6() -> bool:
    return Path("/proc/net/if_inet6").exists() and sysctl.read_int("net/ipv6/conf/all/disable_ipv6") != 1
