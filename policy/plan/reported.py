"""What the name of a group says when a packet is reported under it. Pure."""

from __future__ import annotations

from ipaddress import ip_address

from nodelib.nft import wire
from policy.model import Address, Direction
from policy.plan import layout
from policy.plan.program import Program

_GOTO = "goto "


def members(program: Program) -> dict[str, frozenset[Address]]:
    """The addresses of the pods of each group."""
    found: dict[str, set[Address]] = {}
    for name in layout.MAPS.values():
        for raw in program.elements.get(name, frozenset()):
            verdict = wire.element_data(raw)
            if isinstance(verdict, str) and verdict.startswith(_GOTO):
                found.setdefault(verdict.removeprefix(_GOTO), set()).add(ip_address(wire.element_key(raw)))
    return {name: frozenset(addresses) for name, addresses in found.items()}


def direction(group: str) -> Direction | None:
    """In which direction the group isolates; None for what is not the name of a group."""
    return next((one for one, name in layout.MAPS.items() if group.startswith(f"group-{name}-")), None)
