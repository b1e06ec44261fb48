"""All rules of one service port: those in the dispatch chains, which all Services share, and its own chains.

Follows the loop over service ports in upstream's syncProxyRules (pkg/proxy/iptables/proxier.go).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodelib.firewall.objects import Chain, Family, Rule, Words, comment, jump, rule
from proxy.model import Endpoint, ServicePort
from proxy.plan.context import LOCALHOST_COUNTER, Context
from proxy.plan.iptables.names import ChainNames, chain_names, endpoint_chain
from proxy.plan.topology import Categories, Endpoints, categorize

Top = tuple[str, str]  # (table, chain) of a chain that all Services share
NAT_SERVICES: Top = ("nat", "KUBE-SERVICES")
NAT_NODE_PORTS: Top = ("nat", "KUBE-NODEPORTS")
FILTER_SERVICES: Top = ("filter", "KUBE-SERVICES")
FILTER_EXTERNAL: Top = ("filter", "KUBE-EXTERNAL-SERVICES")
FILTER_NODE_PORTS: Top = ("filter", "KUBE-NODEPORTS")
FILTER_FIREWALL: Top = ("filter", "KUBE-PROXY-FIREWALL")
DISPATCH = (FILTER_SERVICES, FILTER_EXTERNAL, FILTER_NODE_PORTS, FILTER_FIREWALL, NAT_SERVICES, NAT_NODE_PORTS)

_Add = Callable[..., None]
_MARK_MASQ = jump("KUBE-MARK-MASQ")


@dataclass(frozen=True, slots=True)
class PortRules:
    """`dispatch`: rules for the chains that all Services share; `chains`: nat chains of this port alone."""

    dispatch: Mapping[Top, tuple[Rule, ...]]
    chains: tuple[Chain, ...]
    no_local_internal: bool = False
    no_local_external: bool = False

    @property
    def rule_count(self) -> int:
        return sum(len(chain.rules) for chain in self.chains)


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What is decided about one port before any rule is written."""

    port: ServicePort
    names: ChainNames
    found: Categories
    match: Words  # protocol
    internal: bool  # has endpoints for traffic to the cluster IP
    external: bool  # has endpoints for traffic from outside
    firewalled: bool
    endpoint_chains: Mapping[tuple[str, int], str]

    @property
    def internal_chain(self) -> str:
        return self.names.local if self.port.internal_local else self.names.cluster

    @property
    def external_policy_chain(self) -> str:
        return self.names.local if self.port.external_local else self.names.cluster


def port_rules(port: ServicePort, endpoints: Sequence[Endpoint], ctx: Context) -> PortRules:
    """All rules that the kernel needs for `port` with these endpoints."""
    found = categorize(endpoints, port, ctx.node, ctx.zone)
    decided = _Decisions(
        port,
        chain_names(port),
        found,
        ("-m", port.protocol, "-p", port.protocol),
        internal=found.any and (bool(found.local) or not port.internal_local),
        external=found.any and (bool(found.local) or not port.external_local),
        firewalled=found.any and bool(port.load_balancer_ips) and bool(port.source_ranges),
        endpoint_chains={(one.ip, one.port): endpoint_chain(port, str(one)) for one in found.reachable},
    )
    return PortRules(
        _dispatch(decided, ctx),
        tuple(_chains(decided, ctx)) if found.any else (),
        no_local_internal=found.any and not decided.internal,
        no_local_external=found.any and not decided.external,
    )


def _dispatch(decided: _Decisions, ctx: Context) -> dict[Top, tuple[Rule, ...]]:
    port, name = decided.port, decided.port.name
    rows: dict[Top, list[Rule]] = {}

    def add(top: Top, *parts: Words | str) -> None:
        rows.setdefault(top, []).append(rule(*parts))

    if decided.internal:
        target = jump(decided.internal_chain)
        add(NAT_SERVICES, comment(f"{name} cluster IP"), decided.match, _to(port.cluster_ip, port.port), target)
    else:
        add(FILTER_SERVICES, _refused(decided), decided.match, _to(port.cluster_ip, port.port), _refusal(decided))

    for address in port.external_ips:
        if decided.found.any:
            target = jump(decided.names.external)
            add(NAT_SERVICES, comment(f"{name} external IP"), decided.match, _to(address, port.port), target)
        if not decided.external:
            add(FILTER_EXTERNAL, _refused(decided), decided.match, _to(address, port.port), _refusal(decided))

    _load_balancers(decided, add)
    if port.node_port:
        _node_port(decided, ctx, add)
    if port.health_check_node_port:
        label = comment(f"{name} health check node port")
        dport = ("--dport", str(port.health_check_node_port))
        add(FILTER_NODE_PORTS, label, "-m", "tcp", "-p", "tcp", dport, jump("ACCEPT"))
    return {top: tuple(rules) for top, rules in rows.items()}


def _load_balancers(decided: _Decisions, add: _Add) -> None:
    port, name = decided.port, decided.port.name
    chain = decided.names.firewall if decided.firewalled else decided.names.external
    for address in port.load_balancer_ips:
        to = _to(address, port.port)
        if decided.found.any:
            add(NAT_SERVICES, comment(f"{name} loadbalancer IP"), decided.match, to, jump(chain))
        if decided.firewalled:
            label = comment(f"{name} traffic not accepted by {decided.names.firewall}")
            add(FILTER_FIREWALL, label, decided.match, to, jump("DROP"))
    if not decided.external:
        for address in port.load_balancer_ips:
            add(FILTER_EXTERNAL, _refused(decided), decided.match, _to(address, port.port), _refusal(decided))


def _node_port(decided: _Decisions, ctx: Context, add: _Add) -> None:
    dport = ("--dport", str(decided.port.node_port))
    label, target = comment(str(decided.port.name)), jump(decided.names.external)
    if decided.found.any:
        if ctx.family is Family.IPV4 and ctx.localhost_node_ports and LOCALHOST_COUNTER in ctx.counters:
            counter = ("-m", "nfacct", "--nfacct-name", LOCALHOST_COUNTER)
            add(NAT_NODE_PORTS, label, decided.match, "-d", "127.0.0.0/8", dport, counter, target)
        add(NAT_NODE_PORTS, label, decided.match, dport, target)
    if not decided.external:
        local = ("-m", "addrtype", "--dst-type", "LOCAL")
        add(FILTER_EXTERNAL, _refused(decided), local, decided.match, dport, _refusal(decided))


def _chains(decided: _Decisions, ctx: Context) -> list[Chain]:
    port, names, found = decided.port, decided.names, decided.found
    chains: list[Chain] = []
    # The mark rule comes first in the policy chain that serves the cluster IP.
    marked = {decided.internal_chain: _internal_mark(decided, ctx)} if decided.internal else {}
    if port.externally_accessible:
        chains.append(Chain(names.external, tuple(_external(decided, ctx))))
    if decided.firewalled:
        chains.append(Chain(names.firewall, tuple(_firewall(decided, ctx))))
    if found.cluster and port.uses_cluster_endpoints:
        rules = (*marked.get(names.cluster, ()), *_to_endpoints(decided, found.cluster, ctx))
        chains.append(Chain(names.cluster, rules))
    if found.local and port.uses_local_endpoints:
        rules = (*marked.get(names.local, ()), *_to_endpoints(decided, found.local, ctx))
        chains.append(Chain(names.local, rules))
    for endpoint in found.reachable:
        chains.append(_endpoint(decided, endpoint, ctx))
    return chains


def _internal_mark(decided: _Decisions, ctx: Context) -> tuple[Rule, ...]:
    """Masquerade traffic to the cluster IP from outside the cluster: it may be sent to another node."""
    if not ctx.masquerade_all and not ctx.detector:
        return ()
    outside = () if ctx.masquerade_all else ctx.detector.if_not_local
    port = decided.port
    label = comment(f"{port.name} cluster IP")
    return (rule(label, decided.match, _to(port.cluster_ip, port.port), outside, _MARK_MASQ),)


def _external(decided: _Decisions, ctx: Context) -> list[Rule]:
    name, cluster = decided.port.name, jump(decided.names.cluster)
    rules = []
    if not decided.port.external_local:
        rules.append(rule(comment(f"masquerade traffic for {name} external destinations"), _MARK_MASQ))
    else:
        here = ("-m", "addrtype", "--src-type", "LOCAL")
        if ctx.detector:
            # Neither policy applies to a pod's traffic: treat it as if it went out to a load balancer and came back.
            label = comment(f"pod traffic for {name} external destinations")
            rules.append(rule(label, ctx.detector.if_local, cluster))
        rules.append(rule(comment(f"masquerade LOCAL traffic for {name} external destinations"), here, _MARK_MASQ))
        rules.append(rule(comment(f"route LOCAL traffic for {name} external destinations"), here, cluster))
    if decided.external:
        rules.append(rule(jump(decided.external_policy_chain)))
    return rules


def _firewall(decided: _Decisions, ctx: Context) -> list[Rule]:
    port, accept = decided.port, jump(decided.names.external)
    label = comment(f"{port.name} loadbalancer IP")
    rules = [rule(label, "-s", cidr, accept) for cidr in port.source_ranges]
    if any(_contains(cidr, ctx.node_ip) for cidr in port.source_ranges):
        # A load balancer's address is often local to the node, and then the source of the node's own requests.
        rules.extend([rule(label, "-s", address, accept) for address in port.load_balancer_ips])
    rules.append(rule(comment(f"other traffic to {port.name} will be dropped by KUBE-PROXY-FIREWALL")))
    return rules


def _to_endpoints(decided: _Decisions, endpoints: Endpoints, ctx: Context) -> list[Rule]:
    port = decided.port
    chains = [decided.endpoint_chains[endpoint.ip, endpoint.port] for endpoint in endpoints]
    labels = [() if ctx.large else comment(f"{port.name} -> {endpoint}") for endpoint in endpoints]
    rules = []
    if port.affinity_seconds:
        seconds = str(port.affinity_seconds)
        for chain, label in zip(chains, labels, strict=True):
            known = ("-m", "recent", "--name", chain, "--rcheck", "--seconds", seconds, "--reap")
            rules.append(rule(label, known, jump(chain)))
    for index, (chain, label) in enumerate(zip(chains, labels, strict=True)):
        left = len(chains) - index
        chance = ("-m", "statistic", "--mode", "random", "--probability", probability(left)) if left > 1 else ()
        rules.append(rule(label, chance, jump(chain)))
    return rules


def _endpoint(decided: _Decisions, endpoint: Endpoint, ctx: Context) -> Chain:
    port = decided.port
    name = decided.endpoint_chains[endpoint.ip, endpoint.port]
    label = () if ctx.large else comment(str(port.name))
    remember = ("-m", "recent", "--name", name, "--set") if port.affinity_seconds else ()
    hairpin = rule(label, "-s", endpoint.ip, _MARK_MASQ)
    dnat = rule(label, remember, decided.match, jump("DNAT"), "--to-destination", str(endpoint))
    return Chain(name, (hairpin, dnat))


def probability(count: int) -> str:
    """The chance of one of `count`, as upstream prints it."""
    return f"{1 / count:.10f}"


def _to(address: str, port: int) -> Words:
    return ("-d", address, "--dport", str(port))


def _refused(decided: _Decisions) -> Words:
    return comment(f"{decided.port.name} has no {'local ' if decided.found.any else ''}endpoints")


def _refusal(decided: _Decisions) -> Words:
    """With endpoints on other nodes only, drop: a load balancer would take a REJECT for a dead Service."""
    return jump("DROP" if decided.found.any else "REJECT")


def _contains(cidr: str, address: str) -> bool:
    return bool(address) and ipaddress.ip_address(address) in ipaddress.ip_network(cidr)
