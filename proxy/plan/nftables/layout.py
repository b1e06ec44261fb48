"""What the table consists of: its sets and maps, the key of each, and the fixed chains, as text for `nft -f`.

A Service costs elements, never chains or sets of its own: upstream's chain and map for each Service make a sync
quadratic, since each rule that is added makes the kernel look at every map (kubernetes/kubernetes#140723). The
chains that choose an endpoint are one for each *number* of endpoints, because `numgen` needs a constant.

Every address at which a Service port is reached (cluster IP, external IP, load balancer IP, node IP and NodePort)
is a *front*: protocol, address and port. All maps are keyed by it, so there is one way to look anything up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.rules import (
    Connection,
    Field,
    From,
    FromInterface,
    FromThisNode,
    InSet,
    Key,
    Marked,
    Masquerade,
    NftRule,
    Reject,
    Remember,
    SetMark,
    To,
    TranslateTo,
    Verdict,
    VerdictOf,
    rule,
)
from nodelib.nft.wire import Message
from proxy.plan.context import Context, LocalDetector

TABLE = "nodewright-proxy"
LOCAL = 1 << 16  # index of the first endpoint of the "Local" traffic policy
AFFINITY_SIZE = 262_144  # clients remembered; beyond it a new one is not, and connects all the same

SERVICES = "service-ips"
ENDPOINTS = "endpoints"
NO_ENDPOINTS = "no-endpoint-services"
SHORT_CIRCUIT = "policy-cluster"
LOCAL_POLICY = "policy-local"
STICKY = "affinity-services"
CLUSTER_IPS = "cluster-ips"
HAIRPIN = "hairpin-connections"
FIREWALLED = "firewall-ips"
RANGES = "source-ranges"
AFFINITY = "affinity"


@dataclass(frozen=True, slots=True)
class SetSpec:
    """`key` in words of nft with {addr} for the family's address type; `data` "" for a set."""

    name: str
    key: str
    data: str
    text: str
    flags: str = ""


_FRONT = "{addr} . inet_proto . inet_service"

# The sets that a sync fills. `affinity` is filled by packets.
SETS = (
    SetSpec(CLUSTER_IPS, "{addr}", "", "cluster IPs of all Services"),
    SetSpec(SERVICES, _FRONT, "verdict", "where a packet to a Service goes"),
    # A number has no type of its own in nft's words but "mark".
    SetSpec(
        ENDPOINTS,
        _FRONT + " . mark",
        "{addr} . inet_service",
        "endpoints by front and index; those of policy Local from index 65536 on",
    ),
    SetSpec(SHORT_CIRCUIT, _FRONT, "verdict", "policy Local, packets of this node and of pods: all endpoints"),
    SetSpec(LOCAL_POLICY, _FRONT, "verdict", "policy Local, packets from outside: endpoints of this node"),
    SetSpec(NO_ENDPOINTS, _FRONT, "verdict", "Services that cannot answer: drop or reject"),
    SetSpec(FIREWALLED, _FRONT, "", "load balancer IPs that not everybody may use"),
    SetSpec(RANGES, _FRONT + " . {addr}", "", "who may use them", "flags interval;"),
    SetSpec(STICKY, _FRONT, "verdict", "Services with session affinity, and how long it lasts"),
    SetSpec(HAIRPIN, "{addr} . {addr} . inet_proto . inet_service", "", "an endpoint that reaches itself"),
)
FILLED = tuple([spec.name for spec in SETS])
_AFFINITY = SetSpec(
    AFFINITY,
    _FRONT + " . {addr}",
    "{addr} . inet_service",
    "front and client: the endpoint it used last",
    f"flags dynamic,timeout; size {AFFINITY_SIZE};",
)


FRONT: Key = (Field("daddr"), Field("protocol"), Field("dport"))
# The same of a packet that has been translated.
_ORIGINAL: Key = (Field("original-daddr"), Field("protocol"), Field("original-dport"))
_CLIENT = Field("original-saddr")
_IF_NEW = Connection("state", "new")
_TRANSLATED = Connection("status", "dnat")
_TO_MARK = Verdict("jump", "mark-for-masquerade")

# Chains with a hook: type, hook, priority. As upstream: ranges are looked at before the destination is translated.
HOOKS = {
    "firewall-prerouting": ("filter", "prerouting", -110),
    "firewall-output": ("filter", "output", -110),
    "nat-prerouting": ("nat", "prerouting", -100),
    "nat-output": ("nat", "output", -100),
    "filter-input": ("filter", "input", 0),
    "filter-forward": ("filter", "forward", 0),
    "filter-output": ("filter", "output", 0),
    "filter-postrouting": ("filter", "postrouting", 90),
    "nat-postrouting": ("nat", "postrouting", 100),
}
_PLAIN = (
    "reject-chain",
    "mark-for-masquerade",
    "external-local",
    "services",
    "firewall-check",
    "endpoints-check",
    "cluster-ips-check",
    "masquerading",
    "remember",
)


def table_text(ctx: Context) -> str:
    """Input for `nft -f` that creates what is missing of the table, its sets and its chains."""
    kind = _ip(ctx)
    lines = [f'add table {kind} {TABLE} {{ comment "Services, written by nodewright proxy"; }}']
    lines += [_set_text(spec, ctx) for spec in (*SETS, _AFFINITY)]
    lines += [f"add chain {kind} {TABLE} {name}" for name in _PLAIN]
    for name, (type_, hook, priority) in HOOKS.items():
        lines.append(f"add chain {kind} {TABLE} {name} {{ type {type_} hook {hook} priority {priority}; }}")
    return "\n".join(lines) + "\n"


def removal_text(family: Family) -> str:
    """Remove the table; first added, because deleting what does not exist fails."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    return f"add table {kind} {TABLE}\ndelete table {kind} {TABLE}\n"


def _set_text(spec: SetSpec, ctx: Context) -> str:
    addr = "ipv4_addr" if ctx.family is Family.IPV4 else "ipv6_addr"
    body = spec.key.format(addr=addr) + (f" : {spec.data.format(addr=addr)}" if spec.data else "")
    flags = f" {spec.flags}" if spec.flags else ""
    word = "map" if spec.data else "set"
    return f'add {word} {_ip(ctx)} {TABLE} {spec.name} {{ type {body};{flags} comment "{spec.text}"; }}'


def fixed_chains(ctx: Context) -> dict[str, tuple[NftRule, ...]]:
    """The rules that do not depend on any Service."""
    check_ranges = (InSet(FRONT, FIREWALLED), InSet((*FRONT, Field("saddr")), RANGES, negated=True), Verdict("drop"))
    new_remembered = rule(_IF_NEW, _TRANSLATED, Verdict("jump", "remember"))
    firewall, answerable, cluster_ips = (
        rule(_IF_NEW, Verdict("jump", f"{name}-check")) for name in ("firewall", "endpoints", "cluster-ips")
    )
    return {
        "reject-chain": (rule(Reject()),),
        "mark-for-masquerade": (rule(SetMark(_mark(ctx))),),
        "external-local": _external_local(ctx),
        "services": (*_cluster_ip_mark(ctx), rule(VerdictOf(FRONT, SERVICES))),
        "firewall-check": (rule(*check_ranges),),
        "endpoints-check": (rule(VerdictOf(FRONT, NO_ENDPOINTS)),),
        "cluster-ips-check": _cluster_ips_check(ctx),
        "masquerading": _masquerading(ctx),
        "remember": (rule(VerdictOf(_ORIGINAL, STICKY)),),
        "firewall-prerouting": (firewall,),
        "firewall-output": (firewall,),
        "nat-prerouting": (rule(Verdict("jump", "services")),),
        "nat-output": (rule(Verdict("jump", "services")),),
        "filter-input": (answerable, new_remembered),
        "filter-forward": (answerable, cluster_ips),
        "filter-output": (answerable, cluster_ips),
        "filter-postrouting": (new_remembered,),
        "nat-postrouting": (rule(Verdict("jump", "masquerading")),),
    }


def chain_rules(name: str) -> tuple[NftRule, ...]:
    """The rules of a chain that is made on demand; the name says all."""
    for prefix in ("external-", "sticky-"):
        if name.startswith(prefix):
            on = rule(Verdict("goto", name.removeprefix(prefix)))
            first = rule(_TO_MARK) if prefix == "external-" else rule(TranslateTo((*FRONT, Field("saddr")), AFFINITY))
            return (first, on)
    word, _, text = name.rpartition("-")
    number = int(text)
    if word == "remember":
        return (rule(Remember((*_ORIGINAL, _CLIENT), (Field("daddr"), Field("dport")), AFFINITY, number)),)
    choice = Field("random", number, LOCAL if word == "local" else 0)
    return (rule(TranslateTo((*FRONT, choice), ENDPOINTS)),)


def needed_chains(name: str) -> tuple[str, ...]:
    """`name` and the chains it goes to that are made on demand too, targets first."""
    for prefix in ("external-", "sticky-"):
        if name.startswith(prefix):
            return (*needed_chains(name.removeprefix(prefix)), name)
    return (name,)


def fixed_messages(ctx: Context) -> list[Message]:
    """The fixed rules written anew."""
    return _written(fixed_chains(ctx), ctx)


def chain_messages(names: Iterable[str], ctx: Context) -> list[Message]:
    """Chains on demand, created or written anew, targets before who goes there."""
    chains = {name: chain_rules(name) for name in names}
    return [wire.new_chain(TABLE, name) for name in chains] + _written(chains, ctx)


def _written(chains: Mapping[str, tuple[NftRule, ...]], ctx: Context) -> list[Message]:
    messages = [wire.flushed_chain(TABLE, name) for name in chains]
    for name, rules in chains.items():
        messages += [wire.new_rule(one.body(TABLE, name, ctx.family)) for one in rules]
    return messages


def _external_local(ctx: Context) -> tuple[NftRule, ...]:
    """Policy Local does not bind pods and the node itself: as if they went out to a load balancer and came back."""
    around = VerdictOf(FRONT, SHORT_CIRCUIT)
    pods = (rule(local_match(ctx.detector), around, comment="short-circuit pod traffic"),) if ctx.detector else ()
    return (
        *pods,
        rule(FromThisNode(), _TO_MARK),
        rule(FromThisNode(), around, comment="short-circuit local traffic"),
        rule(VerdictOf(FRONT, LOCAL_POLICY)),
    )


def _cluster_ip_mark(ctx: Context) -> tuple[NftRule, ...]:
    """Traffic to a cluster IP from outside the cluster may have to cross nodes: masquerade it."""
    to = InSet((Field("daddr"),), CLUSTER_IPS)
    if ctx.masquerade_all:
        return (rule(to, _TO_MARK, comment="masquerade all clusterIP traffic"),)
    if ctx.detector:
        outside = local_match(ctx.detector, negated=True)
        return (rule(to, outside, _TO_MARK, comment="masquerade clusterIP traffic from outside cluster"),)
    return ()


def _cluster_ips_check(ctx: Context) -> tuple[NftRule, ...]:
    refused = rule(InSet((Field("daddr"),), CLUSTER_IPS), Reject(), comment="no such port of a cluster IP")
    return (refused, *[rule(To(cidr), Verdict("drop"), comment="nobody's cluster IP") for cidr in ctx.service_cidrs])


def _masquerading(ctx: Context) -> tuple[NftRule, ...]:
    itself = (Field("saddr"), Field("daddr"), Field("protocol"), Field("dport"))
    return (
        # Cleared, so that a packet that passes here a second time is not masqueraded again.
        rule(Marked(_mark(ctx)), SetMark(_mark(ctx), clear=True), Masquerade()),
        rule(_TRANSLATED, InSet(itself, HAIRPIN), Masquerade()),
    )


def local_match(detector: LocalDetector, *, negated: bool = False) -> From | FromInterface:
    """Is this a packet of the cluster's pods?"""
    if detector.cidr:
        return From(detector.cidr, negated)
    name = detector.interface
    return FromInterface(f"{name[:-1]}*" if name.endswith("+") else name, negated)


def _mark(ctx: Context) -> int:
    return int(ctx.mark, 16)


def _ip(ctx: Context) -> str:
    return "ip" if ctx.family is Family.IPV4 else "ip6"
