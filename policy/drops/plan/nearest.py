"""Which rule of a policy came nearest to allowing a flow, and what it lacks. Pure.

A policy may have thousands of rules with thousands of peers and ports each, a selector a hundred requirements, and a
network a hundred thousand exceptions: only so many of them are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from policy.drops.model import Flow, Near
from policy.model import Block, Direction, NamedPort, Party, Peer, Policy, PolicyRule, Selection
from policy.plan import words
from policy.plan.entries import requirements

# Rules, peers, ports and exceptions that are compared for one flow; four requirements of a selector count as one.
_LOOKS = 2000
_BOTH, _PEER, _PORT, _NONE = 3, 2, 1, 0

T = TypeVar("T")


class Looks:
    """How many comparisons are left, of all policies of a flow together."""

    def __init__(self, left: int = _LOOKS) -> None:
        self.left = left

    def take(self, of: object) -> bool:
        self.left -= 1
        if isinstance(of, Selection):
            self.left -= requirements(of) // 4
        elif isinstance(of, Block):
            self.left -= len(of.excepted)
        return self.left >= 0

    def over(self, given: Iterable[T]) -> Iterator[T]:
        """Those that there are looks for: not even counting goes on after that."""
        for one in given:
            if not self.take(one):
                return
            yield one


def near(policy: Policy, flow: Flow, client: Party, server: Party, looks: Looks) -> Near:
    """The policy isolates the pod in the flow's direction."""
    peer = client if flow.direction is Direction.INGRESS else server
    rules = policy.rules.get(flow.direction, ())
    best, at = _NONE if rules else -1, 0
    for number, rule in enumerate(looks.over(rules)):
        rank = _rank(rule, flow, peer, server, looks)
        if rank > best:
            best, at = rank, number
        if best == _BOTH:
            break
    found = _described(policy, flow, rules, best, at)
    cut_off = looks.left < 0 and best < _BOTH
    return replace(found, text=f"{found.text} (only part of it was looked at: it is very long)") if cut_off else found


def best(found: Iterable[Near]) -> Near | None:
    """The one that lacks least."""
    order = ("", "port", "peer", "peer and port", "rule")
    return min(found, key=lambda one: order.index(one.missing) if one.missing in order else len(order), default=None)


def remedy(one: Near | None, flow: Flow) -> str:
    """What would allow the flow, in a few words."""
    if one is None:
        return ""
    port = words.port(flow.port, flow.protocol)
    where = f"{one.policy} {one.rule}"
    side = flow.direction.lower()
    return {
        "": f"{where}, which allows it now",
        "port": f"{where}, if it listed port {port}",
        "peer": f"{where}, if it selected the peer",
        "peer and port": f"a rule of {one.policy} for this peer and port {port}",
        "rule": f"an {side} rule in {one.policy} for this peer and port {port}",
    }.get(one.missing, "")


def _described(policy: Policy, flow: Flow, rules: tuple[PolicyRule, ...], rank: int, at: int) -> Near:
    side, port = flow.direction.lower(), words.port(flow.port, flow.protocol)
    towards = "from" if flow.direction is Direction.INGRESS else "to"
    if rank < _NONE:
        return Near(policy.name, "", "rule", f"it has no {side} rule, so it allows nothing")
    rule, name = rules[at], f"{side}[{at}]"
    if rank == _BOTH:
        text = f"{name} allows it now: policy or pod has changed, or the packet belonged to no connection"
        return Near(policy.name, name, "", text)
    if rank == _PEER:
        return Near(policy.name, name, "port", f"{name} allows this peer, but only {words.ports(rule)}, not {port}")
    if rank == _PORT:
        text = f"{name} allows {port}, but only {towards} {words.peers(rule.peers)}"
        return Near(policy.name, name, "peer", text)
    if len(rules) == 1:
        text = f"its only {side} rule allows neither this peer nor port {port}"
    else:
        text = f"none of its {len(rules)} {side} rules allows this peer or port {port}"
    return Near(policy.name, name, "peer and port", text)


def _rank(rule: PolicyRule, flow: Flow, peer: Party, server: Party, looks: Looks) -> int:
    fits_port = _port(rule, flow, server, looks)
    fits_peer = rule.peers is None or any(_peer(one, peer) for one in looks.over(rule.peers))
    if fits_peer:
        return _BOTH if fits_port else _PEER
    return _PORT if fits_port else _NONE


def _peer(of: Peer, party: Party) -> bool:
    if isinstance(of, Block):
        address = party.address
        return address in of.cidr and not any(address in one for one in of.excepted)
    # NetworkPolicies know no other peers.
    return isinstance(of, Selection) and of.selects(party)


def _port(rule: PolicyRule, flow: Flow, server: Party, looks: Looks) -> bool:
    if rule.ports is None:
        return True
    ports = looks.over(rule.ports)
    if any(one.protocol == flow.protocol and one.first <= flow.port <= one.last for one in ports):
        return True
    pod = server.pod
    return pod is not None and any(_has(pod.ports.get(one), one, flow) for one in looks.over(rule.named))


def _has(numbers: frozenset[int] | None, port: NamedPort, flow: Flow) -> bool:
    return numbers is not None and port.protocol == flow.protocol and flow.port in numbers
