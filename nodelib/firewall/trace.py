"""Traces the first packet of a new connection through a node's rules, to every possible outcome. Pure.

Follows the kernel's hooks: prerouting or output, the route, then input or forward, then postrouting; at each hook the
chains of all tables by priority, of iptables and nftables alike. At a random rule the trace branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodelib.firewall.objects import TableContent
from nodelib.firewall.trace_iptables import bases
from nodelib.firewall.trace_model import Base, Branch, Fib, Hop, Node, Outcome, Packet, endpoint_text

__all__ = ["MOST_WAYS", "Base", "Hop", "Node", "Outcome", "Packet", "trace"]

MOST_WAYS = 100
"""Ways of a packet that are followed: a Service may have thousands of endpoints, one of which is chosen by chance."""


def trace(
    tables: Mapping[str, TableContent],
    packet: Packet,
    node: Node,
    *,
    more: Sequence[Base] = (),
    lenient: bool = False,
    fib: Fib | None = None,
) -> tuple[Outcome, ...]:
    """All distinct outcomes, in the order of the rules; of more than MOST_WAYS the first.

    `more`: chains of nftables (trace_nft.bases). Without `fib` every packet has a route. An unknown match raises
    Invalid; with `lenient` it may or may not match.
    """
    chains = sorted([*bases(tables, lenient=lenient), *more], key=lambda base: base.priority)
    first = Branch(packet, original=packet)
    if packet.interface:
        branches = [_routed(branch, fib) for branch in _hook(chains, "prerouting", [first], node)[:MOST_WAYS]]
        going = [branch for branch in branches if not branch.verdict]
        passed = [left for branch in going for left in _hook(chains, _onward(branch, node), [branch], node)]
    else:
        branches = _hook(chains, "output", [_routed(first, fib)], node)[:MOST_WAYS]
        passed = [_routed(branch, fib) if branch.translated else branch for branch in branches if not branch.verdict]
    stopped = [branch for branch in [*branches, *passed] if branch.verdict]
    going = [branch for branch in passed if not branch.verdict]
    outcomes: dict[Outcome, None] = {}
    for branch in [*stopped, *_hook(chains, "postrouting", going, node)]:
        to = endpoint_text(branch.packet.destination, branch.packet.port)
        verdict = branch.verdict or (branch.route.verdict if branch.route else "") or "ACCEPT"
        found = Outcome(verdict, to, branch.translated, branch.masqueraded, branch.trail, branch.route)
        outcomes.setdefault(found)
    return tuple(outcomes)


def _routed(branch: Branch, fib: Fib | None) -> Branch:
    """The branch with the kernel's route for its packet; it ends if there is none.

    The next hop is asked for only after all rules: they may lead the packet somewhere else.
    """
    if fib is None or branch.verdict:
        return branch
    route = fib(branch.packet)
    return replace(branch, route=route, verdict=route.refusal)


def _onward(branch: Branch, node: Node) -> str:
    local = branch.route.kind == "local" if branch.route else node.is_local(branch.packet.destination)
    return "input" if local else "forward"


def _hook(chains: Iterable[Base], hook: str, branches: Sequence[Branch], node: Node) -> list[Branch]:
    """The branches after all chains of `hook`. DROP and REJECT end a branch, ACCEPT only its current chain."""
    current = list(branches)
    for base in chains:
        if base.hook != hook:
            continue
        after: list[Branch] = []
        for branch in current:
            # The kernel calls no further nat chain once one has translated the packet.
            done = branch.masqueraded if hook == "postrouting" else branch.translated
            if branch.verdict or (base.nat and done):
                after.append(branch)
            else:
                after += [_reopened(left) for left in base.walk(branch, node)]
        current = after
    return current


def _reopened(branch: Branch) -> Branch:
    return replace(branch, verdict="") if branch.verdict == "ACCEPT" else branch
