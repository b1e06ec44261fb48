"""A packet from node to node: the rules of the first, and of the node that its new destination is on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cli.explain.endpoints import unready
from cli.explain.facts import Facts, Json, key, node_addresses, title
from cli.explain.places import Sender, Target
from nodelib.firewall.objects import TableContent
from nodelib.firewall.trace import trace
from nodelib.firewall.trace_nft import bases
from nodelib.firewall.way import Base, Node, Outcome, Packet

POD_BRIDGE = "nw0"  # where a pod's packets come in
_LEGS = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """A node's rules, ready to be walked."""

    node: str
    tables: Mapping[str, TableContent]
    nftables: tuple[Base, ...]
    addresses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Leg:
    """The packet on one node, and what may become of it there."""

    node: str
    packet: Packet
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Path:
    """One possible way from end to end; `why` says more about the end, `arrived` whether it got there."""

    legs: tuple[Leg, ...]
    arrived: bool
    why: tuple[str, ...] = field(default=())

    @property
    def last(self) -> Outcome:
        return self.legs[-1].outcome


def nftables_of(ruleset: Mapping[str, object], version: int) -> tuple[Base, ...]:
    return tuple(bases(ruleset, "ip" if version == 4 else "ip6", lenient=True))


def first_node(come: Sender, to: Target, facts: Facts) -> str:
    """Where the packet meets the first rules: an outside packet goes to the node that has its destination."""
    return come.node or facts.node_of(to.address) or next((key(node)[1] for node in facts.nodes), "")


def paths(come: Sender, to: Target, rules: Mapping[str, Rules], facts: Facts) -> list[Path]:
    """Every way that the rules of the nodes allow, chance by chance."""
    node = first_node(come, to, facts)
    interface = "" if come.here else POD_BRIDGE if come.pod is not None else "eth0"
    packet = Packet(come.address, to.address, to.port, to.protocol, interface)
    return _onward(node, packet, rules, facts, ())


def _onward(node: str, packet: Packet, rules: Mapping[str, Rules], facts: Facts, before: tuple[Leg, ...]) -> list[Path]:
    here = rules.get(node)
    if here is None:
        return [Path(before, False, (f"node {node} is not one of this machine: its rules cannot be read",))]
    found: list[Path] = []
    kernel = Node(here.addresses)
    for outcome in trace(here.tables, packet, kernel, more=here.nftables, lenient=True):
        legs = (*before, Leg(node, packet, outcome))
        host, port = _split(outcome.to)
        next_node = facts.node_of(host)
        if outcome.verdict != "ACCEPT" or next_node in ("", node) or len(legs) == _LEGS:
            found.append(_ended(legs, host, next_node, kernel, facts))
            continue
        source = _node_address(node, facts) if outcome.masqueraded else packet.source
        onward = replace(packet, source=source, destination=host, port=port, interface="eth0", mark=0)
        found += _onward(next_node, onward, rules, facts, legs)
    return found


def _ended(legs: tuple[Leg, ...], host: str, owner: str, kernel: Node, facts: Facts) -> Path:
    outcome = legs[-1].outcome
    if outcome.verdict != "ACCEPT":
        return Path(legs, False)
    pod = facts.pod_at(host)
    if pod is not None:
        late = unready(pod)
        why = (f"pod {title(pod)} {late}",) if late else ()
        return Path(legs, True, why)
    if owner or kernel.is_local(host):
        return Path(legs, True)
    known = facts.names.get(host, "")
    if known.startswith("Service"):
        return Path(legs, False, (f"no rule of {legs[-1].node} translates {outcome.to}: {known} has no such port",))
    return Path(legs, True, ("it leaves the cluster",))


def policies(pod: Json | None, facts: Facts, direction: str) -> list[str]:
    """NetworkPolicies that select the pod: this pod network does not enforce them, and that must be said."""
    if pod is None:
        return []
    found = []
    for policy in facts.policies:
        spec = policy.get("spec") or {}
        wanted = (spec.get("podSelector") or {}).get("matchLabels") or {}
        labels = pod["metadata"].get("labels") or {}
        kinds = spec.get("policyTypes") or ["Ingress"]
        if key(policy)[0] == key(pod)[0] and direction in kinds and all(labels.get(k) == v for k, v in wanted.items()):
            found.append(
                f"NetworkPolicy {title(policy)} selects pod {title(pod)} ({direction}):"
                " the pod network has no NetworkPolicy, the packet passes all the same"
            )
    return found


def _node_address(node: str, facts: Facts) -> str:
    obj = next((one for one in facts.nodes if key(one)[1] == node), None)
    return next(iter(node_addresses(obj) if obj is not None else []), "0.0.0.0")


def _split(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
