"""What follows from the settings: the rules' context, NodePort addresses, sysctls. Pure."""

from __future__ import annotations

from nodelib.firewall.objects import Family
from proxy.config.settings import ConntrackSettings, LocalSettings, Settings
from proxy.plan.addresses import family_of
from proxy.plan.context import Context, LocalDetector, by_cidr, by_interface, mark_text
from proxy.plan.node_port_addresses import ANY, expand, has_loopback, networks

ROUTE_LOCALNET = "net/ipv4/conf/all/route_localnet"
TCP_LIBERAL = "net/netfilter/nf_conntrack_tcp_be_liberal"
_MOST_CONNECTIONS = 1 << 20  # maxPerCore times the cores is capped here


def context(settings: Settings, family: Family) -> Context:
    """The rules' context as the configuration has it for `family`, before the Node is known."""
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
    """How to recognize local traffic. With NodeCIDR this needs the Node; until then, no detector."""
    if local.mode == "BridgeInterface":
        return by_interface(local.bridge)
    if local.mode == "InterfaceNamePrefix":
        return by_interface(f"{local.prefix}+")
    if local.mode == "ClusterCIDR":
        own = [cidr for cidr in local.cluster_cidrs if family_of(cidr) is family]
        return by_cidr(own[0]) if own else LocalDetector()
    return LocalDetector()


def node_port_networks(settings: Settings, family: Family, node_ips: tuple[str, ...]) -> tuple[str, ...] | None:
    """Networks in which NodePorts are served; None: every address of the node."""
    given = _node_port_addresses(settings)
    cidrs = networks(expand(given, node_ips), family)
    if cidrs is None and given and all(item == "primary" for item in given):
        return ()  # no node address of this family yet: better no NodePorts than all addresses
    if cidrs is None and settings.mode == "nftables":
        return networks(ANY, family, every=True)  # its maps need each address
    return cidrs


def _node_port_addresses(settings: Settings) -> tuple[str, ...]:
    """With upstream's defaults: every address, or in nftables mode the node's primary one."""
    return settings.node_port_addresses or (("primary",) if settings.mode == "nftables" else ())


def sysctls(settings: Settings, cpus: int) -> dict[str, int]:
    """The values to set at the start, by sysctl name with slashes: for connection tracking.

    ROUTE_LOCALNET is not among them: it is set once the rule that guards it is in the kernel.
    """
    return _conntrack(settings.conntrack, cpus)


def _conntrack(settings: ConntrackSettings, cpus: int) -> dict[str, int]:
    wanted: dict[str, int] = {}
    if settings.max_per_core > 0:
        scaled = min(settings.max_per_core * cpus, _MOST_CONNECTIONS)
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
