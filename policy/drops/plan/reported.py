"""What the name of a group says when a packet is reported under it. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from nodelib.nft import wire
from policy.model import Address, Direction
from policy.plan import cluster_layout, layout
from policy.plan.program import Program

_GOTO = "goto "


def members(program: Program) -> dict[str, frozenset[Address]]:
    """The addresses of the pods of each group; for a rule that denies, of all pods that are judged in its direction."""
    found: dict[str, set[Address]] = {}
    judged: dict[Direction, set[Address]] = {one: set() for one in Direction}
    for name in (*layout.MAPS.values(), cluster_layout.TO_NODE):
        for raw in program.elements.get(name, frozenset()):
            verdict, address = wire.element_data(raw), ip_address(wire.element_key(raw))
            if isinstance(verdict, str) and verdict.startswith(_GOTO):
                group = verdict.removeprefix(_GOTO)
                found.setdefault(group, set()).add(address)
                judged[direction(group) or Direction.EGRESS].add(address)
    found |= {name: judged[direction(name) or Direction.EGRESS] for name in program.denials}
    return {name: frozenset(addresses) for name, addresses in found.items()}


def direction(chain: str) -> Direction | None:
    """In which direction the chain refuses; None for what is no name of a group or of a rule that denies."""
    if chain.startswith("group-to-node-"):
        return Direction.EGRESS
    starts = {one: (f"group-{name}-", f"deny-{name}-") for one, name in layout.MAPS.items()}
    return next((one for one, words in starts.items() if chain.startswith(words)), None)
