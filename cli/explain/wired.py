"""How a node is wired, of what its kernel has: its links with the pods behind them, where its routes lead. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from cli.explain.facts import Facts, alive, key, pod_addresses
from controlplane.machine.edge.wiring import SYSCTLS, Wiring
from nodelib.addresses import hardware_address
from nodelib.firewall.nft_text import expression_text
from nodelib.json_values import Json, object_or_empty, objects_in
from policy.cluster_model import ClusterPolicy
from policy.plan.cluster_layout import closed_name, denial_name, label, segment_name
from view.model.network import Link, Sysctl, TableRule, Wired, WiredRoute
from view.model.objects import POD, row_key

_LINKS, _ROUTES, _RULES = 300, 300, 400
_MEANINGS = {
    "ipv4/ip_forward": "packets of pods are forwarded",
    "ipv6/conf/all/forwarding": "packets of pods are forwarded (IPv6)",
    "ipv4/conf/all/rp_filter": "1: a packet must come by the way back to its source",
    "ipv4/conf/all/route_localnet": "1: NodePorts answer on 127.0.0.1",
    "ipv4/conf/all/arp_ignore": "which addresses are answered for",
    "bridge/bridge-nf-call-iptables": "1: packets from pod to pod of one node meet the rules too",
    "bridge/bridge-nf-call-ip6tables": "the same for IPv6",
    "netfilter/nf_conntrack_count": "connections that are tracked now",
    "netfilter/nf_conntrack_max": "connections that can be tracked; what is beyond is dropped",
    "netfilter/nf_conntrack_tcp_be_liberal": "1: packets out of a connection's window pass",
    "netfilter/nf_conntrack_tcp_timeout_established": "seconds until a silent connection is forgotten",
}


def wired(found: Wiring, facts: Facts, node: str) -> Wired:
    """`facts`: whose pods and nodes addresses belong to."""
    addresses = {str(one.get("ifname")): _addresses(one) for one in found.addresses}
    pods = _by_hardware_address(facts, node)
    behind = {
        str(one.get("ifname")): row_key(POD, pods[str(one.get("mac"))])
        for one in found.forwarding
        if str(one.get("mac")) in pods
    }
    links = tuple(_link(one, addresses, behind) for one in found.links[:_LINKS] if one.get("ifname") != "lo")
    sysctls = tuple(
        Sysctl(f"net.{one.replace('/', '.')}", found.sysctls[one], _MEANINGS[one])
        for one in SYSCTLS
        if one in found.sysctls
    )
    return Wired(links, tuple(_routes(found.routes, facts)), sysctls)


def table_rules(objects: Sequence[Json], chains: Iterable[str]) -> Iterator[TableRule]:
    """The rules of these chains, of those that jump to them, and the elements of the sets that they name."""
    wanted, every = set(chains), _rules(objects)
    jumping = {str(rule.get("chain")) for rule in every if wanted & set(_targets(rule))}
    yield from _shown([rule for rule in every if str(rule.get("chain")) in wanted | jumping], objects)


def cluster_rules(objects: Sequence[Json], policy: ClusterPolicy) -> Iterator[TableRule]:
    """The rules of a ClusterNetworkPolicy: its chains, and what the chains of its tier, which others share, have of it.

    With the chain that stands for the whole tier where that has no room: it refuses everything.
    """
    every = _rules(objects)
    begins = tuple(name(policy.name, one, 0)[:-1] for name in (segment_name, denial_name) for one in policy.rules)
    closed = {closed_name(policy.tier, one) for one in policy.rules}
    labels = tuple(label(policy, way, at, "") for way, rules in policy.rules.items() for at in range(len(rules)))

    def mine(rule: Json) -> bool:
        chain, note = str(rule.get("chain")), str(rule.get("comment") or "")
        if chain.startswith(begins) or chain in closed:
            return True
        of_tier = chain.startswith("tier-") and f"{note} ".startswith(tuple(f"{one} " for one in labels))
        return of_tier or any(one.startswith(begins) for one in _targets(rule))

    found = [rule for rule in every if mine(rule)] if policy.rules else []
    yield from _shown(sorted(found, key=_rank), objects)


def _rank(rule: Json) -> int:
    """As a packet meets them: the tier, its policy's rules, the chain that drops."""
    words = ("tier-", "cluster-", "deny-")
    return next((at for at, one in enumerate(words) if str(rule.get("chain")).startswith(one)), 0)


def _rules(objects: Iterable[Json]) -> list[Json]:
    return [rule for one in objects if (rule := object_or_empty(one.get("rule")))]


def _shown(rules: Iterable[Json], objects: Iterable[Json]) -> Iterator[TableRule]:
    """These rules, and the elements of the sets that they name."""
    named: dict[str, None] = {}
    for rule in rules:
        text = " ".join(filter(None, map(expression_text, objects_in(rule.get("expr")))))
        named |= dict.fromkeys(word[1:] for word in text.split() if word.startswith("@"))
        yield TableRule(str(rule.get("chain")), text, _packets(rule), str(rule.get("comment") or ""))
    for one in objects:
        group = object_or_empty(one.get("set"))
        if group.get("name") in named:
            elements = group.get("elem") or []
            yield TableRule(
                f"set {group['name']}",
                expression_text(elements).replace(",", ", ") or "empty",
                None,
                f"{len(elements)} in it",
            )


def _targets(rule: Json) -> Iterator[str]:
    for one in objects_in(rule.get("expr")):
        for verb in ("jump", "goto"):
            if isinstance(one.get(verb), Mapping):
                yield str(one[verb].get("target"))


def _packets(rule: Json) -> int | None:
    for one in objects_in(rule.get("expr")):
        count = object_or_empty(one.get("counter")).get("packets")
        if isinstance(count, int):
            return count
    return None


def _by_hardware_address(facts: Facts, node: str) -> dict[str, tuple[str, str]]:
    """Who has which, as it is derived from a pod's address."""
    found = {}
    for pod in facts.pods:
        spec = object_or_empty(pod.get("spec"))
        if spec.get("nodeName") == node and alive(pod) and not spec.get("hostNetwork"):
            for one in pod_addresses(pod)[:1]:
                try:
                    found[hardware_address(ip_address(one))] = key(pod)
                except ValueError:
                    continue  # whoever wrote the status
    return found


def _link(one: Json, addresses: Mapping[str, tuple[str, ...]], behind: Mapping[str, str]) -> Link:
    name = str(one.get("ifname"))
    info, stats = object_or_empty(one.get("linkinfo")), object_or_empty(one.get("stats64"))
    rx, tx = object_or_empty(stats.get("rx")), object_or_empty(stats.get("tx"))
    return Link(
        name,
        str(info.get("info_kind") or one.get("link_type") or ""),
        str(one.get("master") or ""),
        addresses.get(name, ()),
        str(one.get("operstate") or ""),
        _number(one, "mtu"),
        behind.get(name, ""),
        _number(rx, "packets"),
        _number(tx, "packets"),
        _number(rx, "dropped") + _number(tx, "dropped"),
        json.dumps(one, indent=1),
    )


def _addresses(one: Json) -> tuple[str, ...]:
    every = objects_in(one.get("addr_info"))
    return tuple(f"{each.get('local')}/{each.get('prefixlen')}" for each in every if each.get("scope") == "global")


def _routes(every: Iterable[Json], facts: Facts) -> Iterator[WiredRoute]:
    ranges = {
        str(cidr): str(one["metadata"]["name"])
        for one in facts.nodes
        for cidr in object_or_empty(one.get("spec")).get("podCIDRs") or []
    }
    for one in list(every)[:_ROUTES]:
        to, via = str(one.get("dst") or ""), str(one.get("gateway") or "")
        if to.startswith(("fe80", "ff00", "multicast")):
            continue
        leads = f"pods of {ranges[to]}" if to in ranges else ""
        yield WiredRoute(
            to, via, str(one.get("dev") or ""), str(one.get("type") or ""), leads, facts.node_of(via) if via else ""
        )


def _number(one: Json, name: str) -> int:
    found = one.get(name)
    return found if isinstance(found, int) else 0
