"""The way of a new connection's first packet through the rules of a node: every outcome that is possible. Pure.

Follows the kernel's hooks: prerouting or output, the route, then input or forward, then postrouting; on each the
chains of all tables by priority, iptables' and nftables' alike. A rule of chance splits the way in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodelib.firewall.objects import TableContent
from nodelib.firewall.trace_iptables import bases
from nodelib.firewall.trace_model import Base, Fib, Hop, Node, Outcome, Packet, Way, endpoint_text

__all__ = ["Base", "Hop", "Node", "Outcome", "Packet", "trace"]


def trace(
    tables: Mapping[str, TableContent],
    packet: Packet,
    node: Node,
    *,
    more: Sequence[Base] = (),
    lenient: bool = False,
    fib: Fib | None = None,
) -> tuple[Outcome, ...]:
    """All outcomes, in the order of the rules, each once. `more`: chains of nftables (trace_nft.bases).

    Without `fib` every packet has a route.
    """
    chains = sorted([*bases(tables, lenient=lenient), *more], key=lambda base: base.priority)
    first = Way(packet, original=packet)
    if packet.interface:
        ways = [_routed(way, fib) for way in _hook(chains, "prerouting", [first], node)]
        going = [way for way in ways if not way.verdict]
        passed = [left for way in going for left in _hook(chains, _onward(way, node), [way], node)]
    else:
        ways = _hook(chains, "output", [_routed(first, fib)], node)
        passed = [_routed(way, fib) if way.translated else way for way in ways if not way.verdict]
    stopped = [way for way in [*ways, *passed] if way.verdict]
    going = [way for way in passed if not way.verdict]
    outcomes: dict[Outcome, None] = {}
    for way in [*stopped, *_hook(chains, "postrouting", going, node)]:
        to = endpoint_text(way.packet.destination, way.packet.port)
        found = Outcome(way.verdict or "ACCEPT", to, way.translated, way.masqueraded, way.trail, way.route)
        outcomes.setdefault(found)
    return tuple(outcomes)


def _routed(way: Way, fib: Fib | None) -> Way:
    """With the kernel's route for the packet as it is now, and ended where that leads nowhere."""
    if fib is None or way.verdict:
        return way
    route = fib(way.packet)
    return replace(way, route=route, verdict=route.verdict)


def _onward(way: Way, node: Node) -> str:
    local = way.route.kind == "local" if way.route else node.is_local(way.packet.destination)
    return "input" if local else "forward"


def _hook(chains: Iterable[Base], hook: str, ways: Sequence[Way], node: Node) -> list[Way]:
    """Ways with a verdict (DROP or REJECT) have ended; ACCEPT ends one chain only."""
    current = list(ways)
    for base in chains:
        if base.hook != hook:
            continue
        after: list[Way] = []
        for way in current:
            # The kernel asks no further nat chain once one has translated.
            done = way.masqueraded if hook == "postrouting" else way.translated
            if way.verdict or (base.nat and done):
                after.append(way)
            else:
                after += [_reopened(left) for left in base.walk(way, node)]
        current = after
    return current


def _reopened(way: Way) -> Way:
    return replace(way, verdict="") if way.verdict == "ACCEPT" else way
