"""All rules of one service port: its share of the dispatch chains, and the chains that are its own."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodelib.firewall.objects import Chain, Family, Rule, Words, comment, jump, rule
from proxy.model import Endpoint, ServicePort
from proxy.plan.context import LOCALHOST_COUNTER, Context
from proxy.plan.iptables.names import ChainNames, chain_names, endpoint_chain
from proxy.plan.topology import Categories, Endpoints, categorize

Top = tuple[str, str]  # (table, chain)
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
    """`dispatch`: rules for chains shared by all Services; `chains`: nat chains of this port alone."""

    dispatch: Mapping[Top, tuple[Rule, ...]]
    chains: tuple[Chain, ...]
    no_local_internal: bool = False
    no_local_external: bool = False

    @property
    def rule_count(self) -> int:
        return sum(len(chain.rules) for chain in self.chains)


@dataclass(frozen=True, slots=True)
class _Facts:
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
    """Everything the kernel needs for `port` with these endpoints."""
    found = categorize(endpoints, port, ctx.node, ctx.zone)
    facts = _Facts(
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
        _dispatch(facts, ctx),
        tuple(_chains(facts, ctx)) if found.any else (),
        no_local_internal=found.any and not facts.internal,
        no_local_external=found.any and not facts.external,
    )


def _dispatch(facts: _Facts, ctx: Context) -> dict[Top, tuple[Rule, ...]]:
    port, name = facts.port, facts.port.name
    rows: dict[Top, list[Rule]] = {}

    def add(top: Top, *parts: Words | str) -> None:
        rows.setdefault(top, []).append(rule(*parts))

    if facts.internal:
        target = jump(facts.internal_chain)
        add(NAT_SERVICES, comment(f"{name} cluster IP"), facts.match, _to(port.cluster_ip, port.port), target)
    else:
        add(FILTER_SERVICES, _refused(facts), facts.match, _to(port.cluster_ip, port.port), _refusal(facts))

    for address in port.external_ips:
        if facts.found.any:
            target = jump(facts.names.external)
            add(NAT_SERVICES, comment(f"{name} external IP"), facts.match, _to(address, port.port), target)
        if not facts.external:
            add(FILTER_EXTERNAL, _refused(facts), facts.match, _to(address, port.port), _refusal(facts))

    _load_balancers(facts, add)
    if port.node_port:
        _node_port(facts, ctx, add)
    if port.health_check_node_port:
        label = comment(f"{name} health check node port")
        dport = ("--dport", str(port.health_check_node_port))
        add(FILTER_NODE_PORTS, label, "-m", "tcp", "-p", "tcp", dport, jump("ACCEPT"))
    return {top: tuple(rules) for top, rules in rows.items()}


def _load_balancers(facts: _Facts, add: _Add) -> None:
    port, name = facts.port, facts.port.name
    chain = facts.names.firewall if facts.firewalled else facts.names.external
    for address in port.load_balancer_ips:
        to = _to(address, port.port)
        if facts.found.any:
            add(NAT_SERVICES, comment(f"{name} loadbalancer IP"), facts.match, to, jump(chain))
        if facts.firewalled:
            label = comment(f"{name} traffic not accepted by {facts.names.firewall}")
            add(FILTER_FIREWALL, label, facts.match, to, jump("DROP"))
    if not facts.external:
        for address in port.load_balancer_ips:
            add(FILTER_EXTERNAL, _refused(facts), facts.match, _to(address, port.port), _refusal(facts))


def _node_port(facts: _Facts, ctx: Context, add: _Add) -> None:
    dport = ("--dport", str(facts.port.node_port))
    label, target = comment(str(facts.port.name)), jump(facts.names.external)
    if facts.found.any:
        if ctx.family is Family.IPV4 and ctx.localhost_node_ports and LOCALHOST_COUNTER in ctx.counters:
            counter = ("-m", "nfacct", "--nfacct-name", LOCALHOST_COUNTER)
            add(NAT_NODE_PORTS, label, facts.match, "-d", "127.0.0.0/8", dport, counter, target)
        add(NAT_NODE_PORTS, label, facts.match, dport, target)
    if not facts.external:
        local = ("-m", "addrtype", "--dst-type", "LOCAL")
        add(FILTER_EXTERNAL, _refused(facts), local, facts.match, dport, _refusal(facts))


def _chains(facts: _Facts, ctx: Context) -> list[Chain]:
    port, names, found = facts.port, facts.names, facts.found
    chains: list[Chain] = []
    # The mark rule comes first in whichever policy chain serves the cluster IP.
    marked = {facts.internal_chain: _internal_mark(facts, ctx)} if facts.internal else {}
    if port.externally_accessible:
        chains.append(Chain(names.external, tuple(_external(facts, ctx))))
    if facts.firewalled:
        chains.append(Chain(names.firewall, tuple(_firewall(facts, ctx))))
    if found.cluster and port.uses_cluster_endpoints:
        rules = (*marked.get(names.cluster, ()), *_to_endpoints(facts, found.cluster, ctx))
        chains.append(Chain(names.cluster, rules))
    if found.local and port.uses_local_endpoints:
        rules = (*marked.get(names.local, ()), *_to_endpoints(facts, found.local, ctx))
        chains.append(Chain(names.local, rules))
    for endpoint in found.reachable:
        chains.append(_endpoint(facts, endpoint, ctx))
    return chains


def _internal_mark(facts: _Facts, ctx: Context) -> tuple[Rule, ...]:
    """Traffic to the cluster IP from outside the cluster may have to cross nodes: masquerade it."""
    if not ctx.masquerade_all and not ctx.detector:
        return ()
    outside = () if ctx.masquerade_all else ctx.detector.if_not_local
    port = facts.port
    label = comment(f"{port.name} cluster IP")
    return (rule(label, facts.match, _to(port.cluster_ip, port.port), outside, _MARK_MASQ),)


def _external(facts: _Facts, ctx: Context) -> list[Rule]:
    name, cluster = facts.port.name, jump(facts.names.cluster)
    rules = []
    if not facts.port.external_local:
        rules.append(rule(comment(f"masquerade traffic for {name} external destinations"), _MARK_MASQ))
    else:
        here = ("-m", "addrtype", "--src-type", "LOCAL")
        if ctx.detector:
            # A pod's traffic is subject to neither policy: as if it went out to a load balancer and came back.
            label = comment(f"pod traffic for {name} external destinations")
            rules.append(rule(label, ctx.detector.if_local, cluster))
        rules.append(rule(comment(f"masquerade LOCAL traffic for {name} external destinations"), here, _MARK_MASQ))
        rules.append(rule(comment(f"route LOCAL traffic for {name} external destinations"), here, cluster))
    if facts.external:
        rules.append(rule(jump(facts.external_policy_chain)))
    return rules


def _firewall(facts: _Facts, ctx: Context) -> list[Rule]:
    port, accept = facts.port, jump(facts.names.external)
    label = comment(f"{port.name} loadbalancer IP")
    rules = [rule(label, "-s", cidr, accept) for cidr in port.source_ranges]
    if any(_contains(cidr, ctx.node_ip) for cidr in port.source_ranges):
        # A load balancer's address is often local to the node: then that is the source of the node's own requests.
        rules.extend([rule(label, "-s", address, accept) for address in port.load_balancer_ips])
    rules.append(rule(comment(f"other traffic to {port.name} will be dropped by KUBE-PROXY-FIREWALL")))
    return rules


def _to_endpoints(facts: _Facts, endpoints: Endpoints, ctx: Context) -> list[Rule]:
    port = facts.port
    chains = [facts.endpoint_chains[endpoint.ip, endpoint.port] for endpoint in endpoints]
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


def _endpoint(facts: _Facts, endpoint: Endpoint, ctx: Context) -> Chain:
    port = facts.port
    name = facts.endpoint_chains[endpoint.ip, endpoint.port]
    label = () if ctx.large else comment(str(port.name))
    remember = ("-m", "recent", "--name", name, "--set") if port.affinity_seconds else ()
    hairpin = rule(label, "-s", endpoint.ip, _MARK_MASQ)
    dnat = rule(label, remember, facts.match, jump("DNAT"), "--to-destination", str(endpoint))
    return Chain(name, (hairpin, dnat))


def probability(count: int) -> str:
    """The chance of one of `count`, as upstream prints it."""
    return f"{1 / count:.10f}"


def _to(address: str, port: int) -> Words:
    return ("-d", address, "--dport", str(port))


def _refused(facts: _Facts) -> Words:
    return comment(f"{facts.port.name} has no {'local ' if facts.found.any else ''}endpoints")


def _refusal(facts: _Facts) -> Words:
    """Endpoints elsewhere only: drop, so that a load balancer does not take the refusal for a dead Service."""
    return jump("DROP" if facts.found.any else "REJECT")


def _contains(cidr: str, address: str) -> bool:
    return bool(address) and ipaddress.ip_address(address) in ipaddress.ip_network(cidr)
