"""The way of a new connection's first packet through the rules of a node: every outcome that is possible. Pure.

Follows the kernel's hooks: prerouting or output, then input or forward, then postrouting; on each the chains of
all tables by priority, iptables' and nftables' alike. A rule of chance splits the way in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodelib.firewall.objects import TableContent
from nodelib.firewall.trace_iptables import bases
from nodelib.firewall.way import Base, Hop, Node, Outcome, Packet, Way, endpoint_text

__all__ = ["Base", "Hop", "Node", "Outcome", "Packet", "trace"]


def trace(
    tables: Mapping[str, TableContent],
    packet: Packet,
    node: Node,
    *,
    more: Sequence[Base] = (),
    lenient: bool = False,
) -> tuple[Outcome, ...]:
    """All outcomes, in the order of the rules, each once. `more`: chains of nftables (trace_nft.bases)."""
    chains = sorted([*bases(tables, lenient=lenient), *more], key=lambda base: base.priority)
    from_here = not packet.interface
    ways = _hook(chains, "output" if from_here else "prerouting", [Way(packet, original=packet)], node)
    stopped = [way for way in ways if way.verdict]
    going = [way for way in ways if not way.verdict]
    if not from_here:
        passed: list[Way] = []
        for way in going:
            onward = "input" if node.is_local(way.packet.destination) else "forward"
            passed += _hook(chains, onward, [way], node)
        stopped += [way for way in passed if way.verdict]
        going = [way for way in passed if not way.verdict]
    outcomes: dict[Outcome, None] = {}
    for way in [*stopped, *_hook(chains, "postrouting", going, node)]:
        to = endpoint_text(way.packet.destination, way.packet.port)
        outcomes[Outcome(way.verdict or "ACCEPT", to, way.translated, way.masqueraded, way.trail)] = None
    return tuple(outcomes)


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
