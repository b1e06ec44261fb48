"""Chains, jumps and rules that depend on no Service (upstream iptablesJumpChains and the end of syncProxyRules)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodelib.firewall import localnet
from nodelib.firewall.objects import Family, Jump, Rule, comment, jump, rule
from proxy.model import ServicePortName
from proxy.plan.context import CT_INVALID_COUNTER, Context
from proxy.plan.iptables.ports import (
    DISPATCH,
    NAT_NODE_PORTS,
    NAT_SERVICES,
    PortRules,
    Top,
)

CANARY = "KUBE-PROXY-CANARY"
MARK_MASQ: Top = ("nat", "KUBE-MARK-MASQ")
POSTROUTING: Top = ("nat", "KUBE-POSTROUTING")
FORWARD: Top = ("filter", "KUBE-FORWARD")
FIREWALL: Top = ("filter", localnet.CHAIN)
TABLES = ("mangle", "filter", "nat")  # the order in which they are written

_NEW = ("-m", "conntrack", "--ctstate", "NEW")
_EXTERNAL = "kubernetes externally-visible service portals"
_PORTALS = "kubernetes service portals"
_BALANCER = "kubernetes load balancer firewall"
_LAST = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"

# Each is inserted at the top of its chain, so the last one listed here comes first.
_JUMPS: tuple[tuple[str, str, str, str, bool], ...] = (
    ("filter", "INPUT", "KUBE-EXTERNAL-SERVICES", _EXTERNAL, True),
    ("filter", "FORWARD", "KUBE-EXTERNAL-SERVICES", _EXTERNAL, True),
    ("filter", "INPUT", "KUBE-NODEPORTS", "kubernetes health check service ports", False),
    ("filter", "FORWARD", "KUBE-SERVICES", _PORTALS, True),
    ("filter", "OUTPUT", "KUBE-SERVICES", _PORTALS, True),
    ("filter", "FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules", False),
    ("filter", "INPUT", "KUBE-PROXY-FIREWALL", _BALANCER, True),
    ("filter", "OUTPUT", "KUBE-PROXY-FIREWALL", _BALANCER, True),
    ("filter", "FORWARD", "KUBE-PROXY-FIREWALL", _BALANCER, True),
    ("nat", "OUTPUT", "KUBE-SERVICES", _PORTALS, False),
    ("nat", "PREROUTING", "KUBE-SERVICES", _PORTALS, False),
    ("nat", "POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules", False),
)


def jumps(table: str) -> tuple[Jump, ...]:
    """Our rules in the built-in chains of `table`, in the order in which they are inserted."""
    found = []
    for owner, chain, target, text, only_new in _JUMPS:
        if owner == table:
            found.append(Jump(chain, rule(_NEW if only_new else (), comment(text), jump(target))))
    return tuple(found)


def kubelet_jumps(table: str) -> tuple[Jump, ...]:
    """The jumps to KUBE-FIREWALL. The kubelet adds the same, so they stay when the rest is removed."""
    return localnet.JUMPS if table == "filter" else ()


def top_chains(ctx: Context) -> tuple[Top, ...]:
    """Every chain that does not belong to a single service port, in the order in which they are written."""
    firewall = (FIREWALL,) if has_firewall(ctx) else ()
    return (*DISPATCH[:2], FORWARD, *DISPATCH[2:4], *firewall, *DISPATCH[4:], POSTROUTING, MARK_MASQ)


def fill(
    top: Top, ports: Mapping[ServicePortName, PortRules], order: Iterable[ServicePortName], ctx: Context
) -> tuple[Rule, ...]:
    """All rules of one top chain: the fixed ones, and those of the service ports in the given `order`."""
    if top in _FIXED:
        return _FIXED[top](ctx)
    rules: list[Rule] = []
    for name in order:
        rules.extend(ports[name].dispatch.get(top, ()))
    if top == NAT_SERVICES:
        rules.extend(_to_node_ports(ctx))
    return tuple(rules)


def _to_node_ports(ctx: Context) -> list[Rule]:
    target = jump(NAT_NODE_PORTS[1])
    if ctx.node_port_ips is not None:
        return [rule(comment(_LAST), "-d", address, target) for address in ctx.node_port_ips]
    excluded: tuple[str, ...] = ()
    if ctx.family is Family.IPV6:
        excluded = ("!", "-d", "::1/128")
    elif not ctx.localhost_node_ports:
        excluded = ("!", "-d", "127.0.0.0/8")
    return [rule(comment(_LAST), "-m", "addrtype", "--dst-type", "LOCAL", excluded, target)]


def has_firewall(ctx: Context) -> bool:
    """Whether localhost NodePorts open the loopback, so that KUBE-FIREWALL has to guard it."""
    return ctx.family is Family.IPV4 and ctx.localhost_node_ports


def _postrouting(ctx: Context) -> tuple[Rule, ...]:
    return (
        rule("-m", "mark", "!", "--mark", f"{ctx.mark}/{ctx.mark}", jump("RETURN")),
        # Cleared, so that a packet that comes here a second time is not masqueraded again.
        rule(jump("MARK"), "--xor-mark", ctx.mark),
        rule(comment("kubernetes service traffic requiring SNAT"), jump("MASQUERADE"), "--random-fully"),
    )


def _forward(ctx: Context) -> tuple[Rule, ...]:
    rules = []
    if not ctx.tcp_liberal:
        # https://issues.k8s.io/74839: an out-of-window packet would leave untranslated and reset the connection.
        counted = ("-m", "nfacct", "--nfacct-name", CT_INVALID_COUNTER) if CT_INVALID_COUNTER in ctx.counters else ()
        rules.append(rule("-m", "conntrack", "--ctstate", "INVALID", counted, jump("DROP")))
    marked = ("-m", "mark", "--mark", f"{ctx.mark}/{ctx.mark}")
    rules.append(rule(comment("kubernetes forwarding rules"), marked, jump("ACCEPT")))
    known = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    rules.append(rule(comment("kubernetes forwarding conntrack rule"), known, jump("ACCEPT")))
    return tuple(rules)


def _firewall(ctx: Context) -> tuple[Rule, ...]:
    return (localnet.DROP_MARTIANS,)


def _mark_masq(ctx: Context) -> tuple[Rule, ...]:
    return (rule(jump("MARK"), "--or-mark", ctx.mark),)


_FIXED = {FORWARD: _forward, FIREWALL: _firewall, POSTROUTING: _postrouting, MARK_MASQ: _mark_masq}
