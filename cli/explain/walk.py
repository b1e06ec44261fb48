"""Follows a packet from node to node, through the rules and routes of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cli.explain.balancer import announcer
from cli.explain.endpoints import unready
from cli.explain.facts import Facts, key, node_addresses, title
from cli.explain.listening import Listening, silence, unknown
from cli.explain.places import Sender, Target
from controlplane.cluster.advice import kubectl
from nodelib.firewall.objects import TableContent
from nodelib.firewall.trace import trace
from nodelib.firewall.trace_model import Base, Fib, Node, Outcome, Packet
from nodelib.firewall.trace_nft import bases
from nodelib.json_values import Json

NOWHERE = "NOWHERE"
_UPLINK = "eth0"  # where packets of other machines come in on a node of `up`
_LEGS = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """A node's rules, parsed, and its routing."""

    node: str
    tables: Mapping[str, TableContent]
    nftables: tuple[Base, ...]
    addresses: frozenset[str]
    links: frozenset[str]
    fib: Fib


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the nodes run on: its addresses on the `link` to them, the `gateways` by which their packets
    reach it, and its routing."""

    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    link: str
    fib: Fib


@dataclass(frozen=True, slots=True)
class Leg:
    """The packet on one node, and what that node does with it."""

    node: str
    packet: Packet
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Path:
    """One possible path from end to end; `arrived`: whether it got there, `why`: reasons for the outcome.

    `leaves`: it leaves the cluster, so what happens to it there is not known. `closed`: it comes to its end, and nobody
    listens there.
    """

    legs: tuple[Leg, ...]
    arrived: bool
    why: tuple[str, ...] = field(default=())
    leaves: bool = False
    closed: bool = False

    @property
    def verdict(self) -> str:
        """That of the last Outcome; NOWHERE when the packet reached no node."""
        return self.legs[-1].outcome.verdict if self.legs else NOWHERE

    @property
    def to(self) -> str:
        return self.legs[-1].outcome.to if self.legs else ""


def nftables_of(ruleset: Json, version: int) -> tuple[Base, ...]:
    return tuple(bases(ruleset, "ip" if version == 4 else "ip6", lenient=True))


def first_node(sender: Sender, to: Target, facts: Facts) -> str:
    """The node whose rules the packet meets first; from outside, the node that has the destination or announces it."""
    there = sender.node or facts.node_of(to.address) or announcer(to.address, facts)
    return there or next((key(node)[1] for node in facts.nodes), "")


def paths(
    sender: Sender,
    to: Target,
    rules: Mapping[str, Rules],
    facts: Facts,
    machine: Machine,
    listening: Listening = unknown,
) -> list[Path]:
    """Every path that the nodes' rules and routes allow, one for each random choice."""
    node = first_node(sender, to, facts)
    packet = Packet(sender.address, to.address, to.port, to.protocol, "")
    if not sender.node and (why := _no_way_in(packet, facts, machine)):
        return [Path((), False, why)]
    here = rules.get(node)
    if not sender.here and here is not None:
        packet = replace(packet, interface=_came_in(packet, here))
    return _onward(node, packet, _World(rules, facts, machine, listening), ())


@dataclass(frozen=True, slots=True)
class _World:
    rules: Mapping[str, Rules]
    facts: Facts
    machine: Machine
    listening: Listening


def _no_way_in(packet: Packet, facts: Facts, machine: Machine) -> tuple[str, ...]:
    """Why a packet from outside never reaches a node, if that can be known."""
    known = facts.named(packet.destination)
    if packet.source in machine.addresses:
        route = machine.fib(packet)
        if route.dev == machine.link and not route.verdict:
            silent = announcer(packet.destination, facts) == ""
            return (f"no node announces {known}, so nobody on the link answers for it",) if silent else ()
        described = route.describe(packet.destination)
        return (
            f"this machine's route to {known} does not lead to a node: {described}",
            *_ways_in(packet.destination, facts),
        )
    inside = facts.cluster_ip(packet.destination)
    return (f"{known} is a cluster IP: only nodes and their pods know it", *_ways_in("", facts)) if inside else ()


def _ways_in(address: str, facts: Facts) -> tuple[str, ...]:
    inside = not address or facts.cluster_ip(address) or facts.pod_at(address) is not None
    return (f"from outside, use a NodePort or {kubectl(facts.cluster, 'port-forward')}",) if inside else ()


def _came_in(packet: Packet, here: Rules) -> str:
    """The link that leads to the sender."""
    back = here.fib(Packet(packet.destination, packet.source, 0, packet.protocol, ""))
    return back.dev or _UPLINK


def _onward(node: str, packet: Packet, world: _World, before: tuple[Leg, ...]) -> list[Path]:
    here = world.rules.get(node)
    if here is None:
        return [Path(before, False, (f"node {node} is not on this machine, so its rules cannot be read",))]
    found: list[Path] = []
    for outcome in trace(here.tables, packet, Node(here.addresses), more=here.nftables, lenient=True, fib=here.fib):
        legs = (*before, Leg(node, packet, outcome))
        following = _next_node(outcome, node, world.facts)
        if outcome.verdict != "ACCEPT" or not following or len(legs) == _LEGS:
            found.append(_ended(legs, world))
            continue
        host, port = split(outcome.to)
        source = _node_address(node, world.facts) if outcome.masqueraded else packet.source
        links = world.rules[following].links if following in world.rules else frozenset()
        dev = outcome.route.dev if outcome.route and outcome.route.dev in links else _UPLINK
        onward = replace(packet, source=source, destination=host, port=port, interface=dev, mark=0)
        found += _onward(following, onward, world, legs)
    return found


def _next_node(outcome: Outcome, node: str, facts: Facts) -> str:
    """The node that the packet goes to next, "" when it goes to none."""
    route, host = outcome.route, split(outcome.to)[0]
    if route is not None and route.kind == "local":
        return ""
    by_gateway = facts.node_of(route.via) if route is not None and route.via else ""
    found = by_gateway or facts.node_of(host)
    return "" if found == node else found


def _ended(legs: tuple[Leg, ...], world: _World) -> Path:
    leg, facts = legs[-1], world.facts
    outcome, (host, _) = leg.outcome, split(leg.outcome.to)
    route, known = outcome.route, facts.names.get(host, "")
    untranslated = f"no rule of {leg.node} translates {outcome.to}: {known} {_why_untranslated(outcome)}"
    if outcome.verdict != "ACCEPT":
        why = [f"{leg.node}: {route.describe(facts.named(host))}"] if route is not None and route.verdict else []
        return Path(legs, False, (*why, *([untranslated] if why and known.startswith("Service") else [])))
    pod = facts.pod_at(host)
    if pod is not None:
        late = unready(pod)
        why = [f"pod {title(pod)} {late}"] if late else []
        return _delivered(legs, tuple(why), f"pod {title(pod)}", host, world)
    if facts.node_of(host) or (route is not None and route.kind == "local"):
        node = facts.node_of(host) or leg.node
        return _delivered(legs, (), f"node {node}", _node_address(node, facts), world)
    if known.startswith("Service"):
        return Path(legs, False, (untranslated,))
    return _left(legs, host, world)


def _delivered(legs: tuple[Leg, ...], why: tuple[str, ...], who: str, address: str, world: _World) -> Path:
    """The packet is at its end; `address` leads to the network namespace where somebody has to listen."""
    leg = legs[-1]
    host, port = split(leg.outcome.to)
    closed = silence(world.listening(address), host, port, leg.packet.protocol)
    return Path(legs, False, (*why, f"in {who} {closed}"), closed=True) if closed else Path(legs, True, why)


def _why_untranslated(outcome: Outcome) -> str:
    ranges = any("-j KUBE-FW-" in hop.text or "firewall" in hop.chain for hop in outcome.trail)
    return "does not serve this source, which is in none of loadBalancerSourceRanges" if ranges else "has no such port"


def _left(legs: tuple[Leg, ...], host: str, world: _World) -> Path:
    """The packet goes to an address of no node and no pod; this machine's routing decides if it is the next hop."""
    route, machine = legs[-1].outcome.route, world.machine
    if host in machine.addresses:
        return _delivered(legs, ("the destination is this machine",), "this machine", host, world)
    if route is not None and not route.via:
        why = f"no node, pod or Service has the address {host}, and its route ends on the link {route.dev}"
        return Path(legs, False, (why,))
    if route is None or route.via not in machine.gateways:
        return Path(legs, True, ("it leaves the cluster",), leaves=True)
    onward = machine.fib(replace(legs[-1].packet, source=route.via, destination=host, interface="", mark=0))
    if onward.verdict:
        return Path(legs, False, (f"on this machine: {onward.describe(host)}",))
    return Path(legs, True, (f"it leaves the cluster; on this machine {onward.describe(host)}",), leaves=True)


def policies(pod: Json | None, facts: Facts, direction: str) -> list[str]:
    """A line for each NetworkPolicy that selects the pod, and whether the nodes enforce it."""
    if pod is None:
        return []
    found = []
    for policy in facts.policies:
        spec = policy.get("spec") or {}
        wanted = (spec.get("podSelector") or {}).get("matchLabels") or {}
        labels = pod["metadata"].get("labels") or {}
        kinds = spec.get("policyTypes") or ["Ingress"]
        if key(policy)[0] == key(pod)[0] and direction in kinds and all(labels.get(k) == v for k, v in wanted.items()):
            line = f"NetworkPolicy {title(policy)} selects pod {title(pod)} ({direction})"
            if not facts.enforced:
                line += ": the nodes do not enforce NetworkPolicies, so the packet still passes"
            found.append(line)
    return found


def _node_address(node: str, facts: Facts) -> str:
    obj = next((one for one in facts.nodes if key(one)[1] == node), None)
    return next(iter(node_addresses(obj) if obj is not None else []), "0.0.0.0")


def split(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
