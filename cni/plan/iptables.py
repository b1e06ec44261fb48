"""The packet filter rules of the pod network in the iptables form. Pure.

What they do:
- masquerade: a pod's packet to a destination outside the cluster (not in `non_masquerade`) leaves with the node's
  address; traffic from pod to pod and from pod to node is never translated.
- hostPorts: node address and port are translated to pod address and port. A pod that reaches itself that way, and
  127.0.0.1, are masqueraded, because the answer must come back through this node's rules.
- localnet: with route_localnet on the bridge, which 127.0.0.1:hostPort needs, a pod could address the node's own
  127.0.0.0/8. Such packets are dropped before any other rule sees them (CVE-2020-8558).
- forward: pod traffic passes a FORWARD policy of DROP, as Docker sets it, unless another rule refused it before.
- overlay: VXLAN has no key. Whoever sends to the node's end of it puts any packet into the pod network, under any
  address, past rules and policies. So no packet of a pod gets there: not from this node or another, nor through the
  overlay, nor to another address of the node. As a Service's or whoever's rules may give such a packet the node's own
  address on its way, pods send to that port of other pods only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from cni.model import Address, FirewallFacts, HostPort, Network
from cni.plan.hostports import target
from cni.plan.names import network_suffix
from nodelib.firewall.objects import Chain, Jump, Rule, TableChange, comment, jump, rule

# Destinations that never leave their link: never masqueraded.
LOCAL = {4: (ip_network("224.0.0.0/4"),), 6: (ip_network("fe80::/10"), ip_network("ff00::/8"))}
_LONGEST_COMMENT = 255  # XT_MAX_COMMENT_LEN - 1, linux/netfilter/xt_comment.h
_LOOPBACK = ip_network("127.0.0.0/8")  # the kernel never forwards from or to ::1


@dataclass(frozen=True, slots=True)
class Names:
    """The names of our chains for one network, 28 characters at most."""

    postrouting: str
    hostports: str
    localnet: str
    forward: str
    overlay: str


def chain_names(network: str) -> Names:
    suffix = network_suffix(network)
    if not suffix:
        own = ("POSTROUTING", "HOSTPORTS", "LOCALNET", "FORWARD", "OVERLAY")
        return Names(*(f"NODEWRIGHT-{part}" for part in own))
    parts = ("POSTROUTE", "HOSTPORTS", "LOCALNET", "FORWARD", "OVERLAY")
    return Names(*(f"NODEWRIGHT-{part}{suffix}" for part in parts))


def chains(facts: FirewallFacts) -> dict[str, tuple[Chain, ...]]:
    """Our chains with all their rules, by table."""
    own = chain_names(facts.network)
    guard = Chain(own.localnet, (rule(comment("pods have no business with the node's loopback"), jump("DROP")),))
    return ({"raw": (guard,)} if facts.version == 4 else {}) | {
        "nat": (
            Chain(own.hostports, tuple(_dnat(item) for item in facts.host_ports)),
            Chain(own.postrouting, (*_host_port_masquerade(facts), *_masquerade(facts))),
        ),
        "filter": (Chain(own.forward, tuple(_forward(facts.pod_cidrs))), Chain(own.overlay, tuple(_overlay(facts)))),
    }


def jumps(facts: FirewallFacts) -> dict[str, tuple[Jump, ...]]:
    """The jumps to our chains, by table."""
    own = chain_names(facts.network)
    local = ("-m", "addrtype", "--dst-type", "LOCAL")
    host = rule(comment("nodewright hostPorts"), local, jump(own.hostports))
    overlay = comment("nodewright overlay")
    localnet = rule("-d", str(_LOOPBACK), "-i", facts.bridge, comment("nodewright localnet"), jump(own.localnet))
    return ({"raw": (Jump("PREROUTING", localnet),)} if facts.version == 4 else {}) | {
        "nat": (
            Jump("PREROUTING", host, insert=False),
            Jump("OUTPUT", host, insert=False),
            # Appended: a service proxy that marked a packet for masquerade comes first.
            Jump("POSTROUTING", rule(comment("nodewright masquerade"), jump(own.postrouting)), insert=False),
        ),
        # Whether there is an overlay or not: the chain is empty without one.
        "filter": (
            Jump("FORWARD", rule(comment("nodewright pod traffic"), jump(own.forward)), insert=False),
            Jump("FORWARD", rule("-i", facts.bridge, "-p", "udp", overlay, jump(own.overlay))),
            Jump("INPUT", rule("-p", "udp", overlay, jump(own.overlay))),
        ),
    }


def removal(facts: FirewallFacts, present: Mapping[str, Sequence[Jump]]) -> tuple[TableChange, ...]:
    """The changes that remove everything; `present`: those of our jumps that exist, by table."""
    return tuple(
        TableChange(table, remove_jumps=tuple(present.get(table, ())), delete=tuple(chain.name for chain in items))
        for table, items in chains(facts).items()
    )


def _masquerade(facts: FirewallFacts) -> list[Rule]:
    if not facts.masquerade:
        return []
    rules = []
    inside = collapsed([*facts.pod_cidrs, *facts.non_masquerade, *LOCAL[facts.version]])
    for source in facts.pod_cidrs:
        rules += [rule("-s", str(source), "-d", str(target), jump("RETURN")) for target in inside]
        rules.append(rule("-s", str(source), comment("outside the cluster"), jump("MASQUERADE"), "--random-fully"))
    return rules


def _host_port_masquerade(facts: FirewallFacts) -> list[Rule]:
    rules = []
    for address, protocol, port in dict.fromkeys(
        (item.address, item.mapping.protocol, item.mapping.container_port) for item in facts.host_ports
    ):
        to = ("-d", _host(address), "-p", protocol, "-m", protocol, "--dport", str(port))
        sources = [_host(address), *([str(_LOOPBACK)] if facts.version == 4 else [])]
        if not facts.bridge_filtered:
            # The answer to a pod on the same bridge would bypass these rules and keep the wrong source.
            sources += [str(cidr) for cidr in facts.pod_cidrs if address in cidr]
        for source in sources:
            only = ("-m", "conntrack", "--ctstate", "DNAT")
            rules.append(rule("-s", source, *to, only, jump("MASQUERADE")))
    return rules


def _dnat(item: HostPort) -> Rule:
    mapping = item.mapping
    where = ("-d", _host(ip_address(mapping.host_ip))) if mapping.host_ip else ()
    what = ("-p", mapping.protocol, "-m", mapping.protocol, "--dport", str(mapping.host_port))
    label = comment(f"hostPort of {item.pod}"[:_LONGEST_COMMENT]) if item.pod else ()
    return rule(where, what, label, jump("DNAT"), "--to-destination", target(item))


def _host(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


def _forward(cidrs: Sequence[Network]) -> list[Rule]:
    return [rule(flag, str(cidr), jump("ACCEPT")) for cidr in cidrs for flag in ("-s", "-d")]


def _overlay(facts: FirewallFacts) -> list[Rule]:
    guard = facts.guard
    if guard is None:
        return []
    port = ("-p", "udp", "-m", "udp", "--dport", str(guard.port))
    others = [("-m", "addrtype", "!", "--dst-type", "LOCAL", "-d", str(one)) for one in guard.pods]
    never = [("-i", facts.bridge), ("-i", guard.link), *[("-s", str(one)) for one in guard.pods]]
    return [
        *[rule(one, jump("RETURN")) for one in others],  # a pod's own port of that number
        *[rule(one, port, jump("DROP")) for one in (*never, ("!", "-d", _host(guard.local)))],
    ]


def collapsed(networks: Iterable[Network]) -> list[Network]:
    """`networks`, all of one family, sorted and without those inside another: equal sets make equal rules."""
    distinct = sorted(set(networks), key=lambda n: (int(n.network_address), n.prefixlen))
    kept: list[Network] = []
    for item in distinct:
        # In this order what is inside any of them is inside the last: there is one for each address of each node.
        if not (kept and item.subnet_of(kept[-1])):  # type: ignore[arg-type]
            kept.append(item)
    return kept
