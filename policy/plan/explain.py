"""Who may reach a pod and whom it may reach: the same model as the rules in the kernel are made of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import islice

from policy.drop_model import Party
from policy.model import Direction, Name, NamedPort, Peer, Pod, Policy, PolicyRule, Selection
from policy.plan import words
from policy.plan.nearest import selects

_PODS = 5  # that are named for one peer
_PEERS = 50  # of one rule
_RULES = 200  # of one policy
_NOWHERE = IPv4Address(0)  # selectors do not look at addresses

Labels = Mapping[str, Mapping[str, str]]  # of namespaces


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
class Side:
    """One direction. `isolated_by` is empty for a pod that is open; `shortened`: there is more than is said here."""

    direction: Direction
    isolated_by: tuple[Name, ...] = ()
    allowed: tuple[Allowed, ...] = ()
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class Explained:
    """`exempt`: why no policy applies to the pod, "" if policies do."""

    pod: Name
    exempt: str
    sides: tuple[Side, ...]


def explain(pod: Pod, policies: Iterable[Policy], pods: Sequence[Pod], namespaces: Labels) -> Explained:
    """`pods`: all of the cluster."""
    exempt = ""
    if pod.host_network:
        exempt = "it has the network of its node: policies do not apply to it, and select it as no peer"
    elif pod.ended:
        exempt = "it has ended"
    mine = [] if exempt else [one for one in policies if selects(one.selection, _party(pod, namespaces))]
    mine.sort(key=lambda one: one.name)
    known: dict[Selection, tuple[tuple[Name, ...], int]] = {}

    def selected(selection: Selection) -> tuple[tuple[Name, ...], int]:
        found = known.get(selection)
        if found is None:
            names = sorted(
                one.name
                for one in pods
                if not one.host_network and not one.ended and selects(selection, _party(one, namespaces))
            )
            found = known[selection] = (tuple(names[:_PODS]), len(names))
        return found

    sides = tuple([_side(direction, pod, mine, selected) for direction in Direction])
    return Explained(pod.name, exempt, sides)


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
    selected: Callable[[Selection], tuple[tuple[Name, ...], int]],
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
            text = ports(rule, direction, pod)
            if rule.peers is None:
                allowed.append(Allowed(policy.name, where, "anybody", text))
            for peer in (rule.peers or ())[:_PEERS]:
                allowed.append(_allowed(policy.name, where, peer, text, selected))
    return Side(direction, tuple([one.name for one in isolating]), tuple(allowed), shortened)


def _allowed(
    policy: Name, rule: str, peer: Peer, text: str, selected: Callable[[Selection], tuple[tuple[Name, ...], int]]
) -> Allowed:
    if not isinstance(peer, Selection):
        return Allowed(policy, rule, words.peer(peer), text)
    found, count = selected(peer)
    return Allowed(policy, rule, words.pods(peer), text, found, count)


def _party(pod: Pod, namespaces: Labels) -> Party:
    return Party(_NOWHERE, pod, namespaces.get(pod.name.namespace))
