"""The layout of our table: its sets and maps, their keys, and the chains that depend on no Service. Pure.

A Service consists of map elements only; it has no chain or set of its own. Upstream's chain and map for each Service
make a sync quadratic, because for each rule that is added the kernel walks every map (kubernetes/kubernetes#140723).
Chains that choose an endpoint exist once for each *number* of endpoints, because `numgen` needs a constant.

Every address at which a service port is reached (cluster IP, external IP, load balancer IP, node IP and NodePort) is a
*frontend*: address, protocol and port. All maps are keyed by frontends, so every lookup is made in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.actions import DestinationNat, Masquerade, Reject, SetMark, UpdateMap, Verdict, VerdictOf
from nodelib.nft.keys import Field, Key
from nodelib.nft.matches import Connection, From, FromInterface, FromThisNode, InSet, Marked, To
from nodelib.nft.objects import removed_chain
from nodelib.nft.rules import NftRule, rule
from nodelib.nft.wire import Message
from proxy.plan.context import Context, LocalDetector

TABLE = "nodewright-proxy"
LOCAL = 1 << 16  # index of the first endpoint of the "Local" traffic policy
AFFINITY_SIZE = 262_144  # clients recorded; further ones are not, but they can connect

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
    """A set, or with `data` a map. `key` and `data` are nft types, {addr} stands for the family's address type."""

    name: str
    key: str
    data: str
    text: str
    flags: str = ""


_FRONTEND = "{addr} . inet_proto . inet_service"

# The sets that a sync fills. The map `affinity` is filled by packets.
SETS = (
    SetSpec(CLUSTER_IPS, "{addr}", "", "cluster IPs of all Services"),
    SetSpec(SERVICES, _FRONTEND, "verdict", "where a packet to a Service goes"),
    # nft has no type for a plain number other than "mark".
    SetSpec(
        ENDPOINTS,
        _FRONTEND + " . mark",
        "{addr} . inet_service",
        "endpoints by front and index; those of policy Local from index 65536 on",
    ),
    SetSpec(SHORT_CIRCUIT, _FRONTEND, "verdict", "policy Local, packets of this node and of pods: all endpoints"),
    SetSpec(LOCAL_POLICY, _FRONTEND, "verdict", "policy Local, packets from outside: endpoints of this node"),
    SetSpec(NO_ENDPOINTS, _FRONTEND, "verdict", "Services that cannot answer: drop or reject"),
    SetSpec(FIREWALLED, _FRONTEND, "", "load balancer IPs that not everybody may use"),
    SetSpec(RANGES, _FRONTEND + " . {addr}", "", "who may use them", "flags interval;"),
    SetSpec(STICKY, _FRONTEND, "verdict", "Services with session affinity, and how long it lasts"),
    SetSpec(HAIRPIN, "{addr} . {addr} . inet_proto . inet_service", "", "an endpoint that reaches itself"),
)
FILLED = tuple([spec.name for spec in SETS])
_AFFINITY = SetSpec(
    AFFINITY,
    _FRONTEND + " . {addr}",
    "{addr} . inet_service",
    "front and client: the endpoint it used last",
    f"flags dynamic,timeout; size {AFFINITY_SIZE};",
)


FRONTEND: Key = (Field("daddr"), Field("protocol"), Field("dport"))
# The frontend of a packet that has been translated already.
_ORIGINAL: Key = (Field("original-daddr"), Field("protocol"), Field("original-dport"))
_CLIENT = Field("original-saddr")
_IF_NEW = Connection("state", "new")
_TRANSLATED = Connection("status", "dnat")
_TO_MARK = Verdict("jump", "mark-for-masquerade")

# Chains with a hook: type, hook, priority. As upstream: source ranges are checked before the DNAT.
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
    """Input for `nft -f` that creates the table, its sets and its chains where they are missing."""
    kind = _ip(ctx)
    lines = [f'add table {kind} {TABLE} {{ comment "Services, written by nodewright proxy"; }}']
    lines += [_set_text(spec, ctx) for spec in (*SETS, _AFFINITY)]
    lines += [f"add chain {kind} {TABLE} {name}" for name in _PLAIN]
    for name, (type_, hook, priority) in HOOKS.items():
        lines.append(f"add chain {kind} {TABLE} {name} {{ type {type_} hook {hook} priority {priority}; }}")
    return "\n".join(lines) + "\n"


def removal_text(family: Family) -> str:
    """Input for `nft -f` that removes the table. It adds it first, because deleting a missing table fails."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    return f"add table {kind} {TABLE}\ndelete table {kind} {TABLE}\n"


def _set_text(spec: SetSpec, ctx: Context) -> str:
    addr = "ipv4_addr" if ctx.family is Family.IPV4 else "ipv6_addr"
    body = spec.key.format(addr=addr) + (f" : {spec.data.format(addr=addr)}" if spec.data else "")
    flags = f" {spec.flags}" if spec.flags else ""
    word = "map" if spec.data else "set"
    return f'add {word} {_ip(ctx)} {TABLE} {spec.name} {{ type {body};{flags} comment "{spec.text}"; }}'


def fixed_chains(ctx: Context) -> dict[str, tuple[NftRule, ...]]:
    """The rules that depend on no Service, by chain."""
    check_ranges = (
        InSet(FRONTEND, FIREWALLED),
        InSet((*FRONTEND, Field("saddr")), RANGES, negated=True),
        Verdict("drop"),
    )
    new_remembered = rule(_IF_NEW, _TRANSLATED, Verdict("jump", "remember"))
    firewall, answerable, cluster_ips = (
        rule(_IF_NEW, Verdict("jump", f"{name}-check")) for name in ("firewall", "endpoints", "cluster-ips")
    )
    return {
        "reject-chain": (rule(Reject()),),
        "mark-for-masquerade": (rule(SetMark(_mark(ctx))),),
        "external-local": _external_local(ctx),
        "services": (*_cluster_ip_mark(ctx), rule(VerdictOf(FRONTEND, SERVICES))),
        "firewall-check": (rule(*check_ranges),),
        "endpoints-check": (rule(VerdictOf(FRONTEND, NO_ENDPOINTS)),),
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
    """The rules of a chain that is made on demand. They follow from its name."""
    for prefix in ("external-", "sticky-"):
        if name.startswith(prefix):
            on = rule(Verdict("goto", name.removeprefix(prefix)))
            first = (
                rule(_TO_MARK) if prefix == "external-" else rule(DestinationNat((*FRONTEND, Field("saddr")), AFFINITY))
            )
            return (first, on)
    word, _, text = name.rpartition("-")
    number = int(text)
    if word == "remember":
        return (rule(UpdateMap((*_ORIGINAL, _CLIENT), (Field("daddr"), Field("dport")), AFFINITY, number)),)
    choice = Field("random", number, LOCAL if word == "local" else 0)
    return (rule(DestinationNat((*FRONTEND, choice), ENDPOINTS)),)


def needed_chains(name: str) -> tuple[str, ...]:
    """`name` and the on-demand chains that it leads to, targets first."""
    for prefix in ("external-", "sticky-"):
        if name.startswith(prefix):
            return (*needed_chains(name.removeprefix(prefix)), name)
    return (name,)


def removal_messages(names: Iterable[str]) -> list[Message]:
    """Messages that remove on-demand chains, to which nothing else may lead."""
    every = list(names)
    # All are emptied first: some lead to others.
    return [wire.flushed_chain(TABLE, name) for name in every] + [removed_chain(TABLE, name) for name in every]


def fixed_messages(ctx: Context) -> list[Message]:
    """Messages that replace the rules of all fixed chains."""
    return _written(fixed_chains(ctx), ctx)


def chain_messages(names: Iterable[str], ctx: Context) -> list[Message]:
    """Messages that create on-demand chains or replace their rules. `names`: targets before their users."""
    chains = {name: chain_rules(name) for name in names}
    return [wire.new_chain(TABLE, name) for name in chains] + _written(chains, ctx)


def _written(chains: Mapping[str, tuple[NftRule, ...]], ctx: Context) -> list[Message]:
    messages = [wire.flushed_chain(TABLE, name) for name in chains]
    for name, rules in chains.items():
        messages += [wire.new_rule(one.body(TABLE, name, ctx.family)) for one in rules]
    return messages


def _external_local(ctx: Context) -> tuple[NftRule, ...]:
    """Policy Local does not apply to pods and the node itself, as if they went out to a load balancer and back."""
    around = VerdictOf(FRONTEND, SHORT_CIRCUIT)
    pods = (rule(local_match(ctx.detector), around, comment="short-circuit pod traffic"),) if ctx.detector else ()
    return (
        *pods,
        rule(FromThisNode(), _TO_MARK),
        rule(FromThisNode(), around, comment="short-circuit local traffic"),
        rule(VerdictOf(FRONTEND, LOCAL_POLICY)),
    )


def _cluster_ip_mark(ctx: Context) -> tuple[NftRule, ...]:
    """Masquerade traffic to a cluster IP from outside the cluster: it may be sent to another node."""
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
        # Cleared, so that a packet that comes here a second time is not masqueraded again.
        rule(Marked(_mark(ctx)), SetMark(_mark(ctx), clear=True), Masquerade()),
        rule(_TRANSLATED, InSet(itself, HAIRPIN), Masquerade()),
    )


def local_match(detector: LocalDetector, *, negated: bool = False) -> From | FromInterface:
    """Matches packets of the cluster's pods."""
    if detector.cidr:
        return From(detector.cidr, negated)
    name = detector.interface
    return FromInterface(f"{name[:-1]}*" if name.endswith("+") else name, negated)


def _mark(ctx: Context) -> int:
    return int(ctx.mark, 16)


def _ip(ctx: Context) -> str:
    return "ip" if ctx.family is Family.IPV4 else "ip6"
