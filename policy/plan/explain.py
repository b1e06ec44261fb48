"""Who may reach a pod and whom it may reach: the same model as the rules in the kernel are made of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from itertools import islice

from policy.cluster_model import Action, ClusterPolicy, Tier
from policy.model import Direction, Name, NamedPort, Party, Peer, Pod, Policy, PolicyRule, Selection
from policy.plan import words

_PODS = 5  # that are named for one peer
_PEERS = 50  # of one rule
_RULES = 200  # of one policy
NOWHERE = IPv4Address(0)  # selectors do not look at addresses

Labels = Mapping[str, Mapping[str, str]]  # of namespaces
Selected = Callable[[Selection], tuple[tuple[Name, ...], int]]  # the first pods, and how many there are


@dataclass(frozen=True, slots=True)
class Allowed:
    """One peer of one rule. `pods`: the first of those it selects now, `count` all of them; None for an ipBlock."""

    policy: Name
    rule: str
    peer: str
    ports: str
    pods: tuple[Name, ...] = ()
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """One peer of one rule of a ClusterNetworkPolicy. `what`: its peer, ports, and where it is written."""

    action: Action
    what: Allowed


@dataclass(frozen=True, slots=True)
class Side:
    """One direction. `isolated_by` is empty for a pod that is open; `shortened`: there is more than is said here.

    `admin` is decided before all else, in this order; `baseline` after it, for a pod that nothing isolates.
    """

    direction: Direction
    isolated_by: tuple[Name, ...] = ()
    allowed: tuple[Allowed, ...] = ()
    shortened: bool = False
    admin: tuple[Decided, ...] = ()
    baseline: tuple[Decided, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """`exempt`: why no policy applies to the pod, "" if policies do."""

    pod: Name
    exempt: str
    sides: tuple[Side, ...]


def explain(
    pod: Pod,
    policies: Iterable[Policy],
    pods: Sequence[Pod],
    namespaces: Labels,
    cluster: Iterable[ClusterPolicy] = (),
) -> Explained:
    """`pods`: all of the cluster; `cluster`: its ClusterNetworkPolicies."""
    exempt = ""
    if pod.host_network:
        exempt = "it has the network of its node: policies do not apply to it, and select it as no peer"
    elif pod.ended:
        exempt = "it has ended"
    mine = [] if exempt else [one for one in policies if one.selection.selects(_party(pod, namespaces))]
    mine.sort(key=lambda one: one.name)
    known: dict[Selection, tuple[tuple[Name, ...], int]] = {}

    def selected(selection: Selection) -> tuple[tuple[Name, ...], int]:
        found = known.get(selection)
        if found is None:
            names = sorted(
                one.name
                for one in pods
                if not one.host_network and not one.ended and selection.selects(_party(one, namespaces))
            )
            found = known[selection] = (tuple(names[:_PODS]), len(names))
        return found

    above = [] if exempt else [one for one in cluster if one.subject.selects(_party(pod, namespaces))]
    above.sort(key=lambda one: one.order)
    sides = [_side(direction, pod, mine, selected) for direction in Direction]
    return Explained(pod.name, exempt, tuple([_with_tiers(side, pod, above, selected) for side in sides]))


def _with_tiers(side: Side, pod: Pod, policies: Sequence[ClusterPolicy], selected: Selected) -> Side:
    tiers: dict[Tier, list[Decided]] = {one: [] for one in Tier}
    for policy in policies:
        for number, rule in enumerate(policy.rules.get(side.direction, ())):
            where = f"{side.direction.lower()}[{number}] {rule.name}".rstrip()
            name = Name("", policy.name)
            found = _peers(name, where, rule.match, ports(rule.match, side.direction, pod), selected)
            tiers[policy.tier] += [Decided(rule.action, one) for one in found]
    # Baseline policies are not asked about a pod that a NetworkPolicy isolates.
    baseline = () if side.isolated_by else tuple(tiers[Tier.BASELINE])
    return replace(side, admin=tuple(tiers[Tier.ADMIN]), baseline=baseline)


def ports(rule: PolicyRule, direction: Direction, pod: Pod) -> str:
    """Of a rule in words; to the pod itself, named ports have numbers."""
    text = words.ports(rule)
    if direction is Direction.EGRESS or not rule.named:
        return text
    numbers = [_number(one, pod) for one in islice(rule.named, _PODS)]
    return f"{text} ({'; '.join(numbers)})"


def _number(port: NamedPort, pod: Pod) -> str:
    found = sorted(pod.ports.get(port, ()))
    return f"{port.name} is {', '.join(map(str, found))}" if found else f"it has no {port.protocol} port {port.name}"


def _side(
    direction: Direction,
    pod: Pod,
    policies: Sequence[Policy],
    selected: Selected,
) -> Side:
    isolating = [one for one in policies if direction in one.rules]
    allowed: list[Allowed] = []
    shortened = False
    for policy in isolating:
        rules = policy.rules[direction]
        shortened = shortened or len(rules) > _RULES
        for number, rule in enumerate(rules[:_RULES]):
            where = f"{direction.lower()}[{number}]"
            shortened = shortened or len(rule.peers or ()) > _PEERS
            allowed += _peers(policy.name, where, rule, ports(rule, direction, pod), selected)
    return Side(direction, tuple([one.name for one in isolating]), tuple(allowed), shortened)


def _peers(policy: Name, where: str, rule: PolicyRule, text: str, selected: Selected) -> list[Allowed]:
    if rule.peers is None:
        return [Allowed(policy, where, "anybody", text)]
    return [_allowed(policy, where, peer, text, selected) for peer in rule.peers[:_PEERS]]


def _allowed(policy: Name, rule: str, peer: Peer, text: str, selected: Selected) -> Allowed:
    if not isinstance(peer, Selection):
        return Allowed(policy, rule, words.peer(peer), text)
    found, count = selected(peer)
    return Allowed(policy, rule, words.pods(peer), text, found, count)


def _party(pod: Pod, namespaces: Labels) -> Party:
    return Party(NOWHERE, pod, namespaces.get(pod.name.namespace))
