"""A program as text for the golden dumps: chains as nft prints them, elements decoded."""

from __future__ import annotations

from ipaddress import ip_address

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.expressions import size
from nodelib.nft.objects import SetShape
from policy.plan import layout
from policy.plan.program import Program

_PROTOCOLS = {number: name.lower() for name, number in layout.PROTOCOLS.items()}


def dump(program: Program) -> str:
    """The whole table, in an order that depends on nothing else."""
    lines = []
    for name, rules in sorted(program.chains.items()):
        lines.append(f"chain {name}")
        lines += [f"    {one.text(program.family)}" for one in rules]
    for name, shape in sorted(program.sets.items()):
        lines.append(f"{'map' if shape.verdicts else 'set'} {name} {' . '.join(shape.parts)}")
        lines += sorted(f"    {element(raw, shape, program.family)}" for raw in program.elements[name])
    return "\n".join([*lines, ""])


def element(raw: bytes, shape: SetShape, family: Family) -> str:
    """One element: its key, the two ends of its range, or what its key leads to."""
    key = wire.element_key(raw)
    if shape.ranges:
        half = len(key) // 2
        return f"{_key(key[:half], shape, family)} to {_key(key[half:], shape, family)}"
    data = wire.element_data(raw)
    return _key(key, shape, family) + (f" : {data}" if isinstance(data, str) else "")


def _key(key: bytes, shape: SetShape, family: Family) -> str:
    words, at = [], 0
    for part in shape.parts:
        length = {"addr": size(family), "ether": 8}.get(part, 4)
        value = key[at : at + length]
        at += length
        if part == "addr":
            words.append(str(ip_address(value)))
        elif part == "ether":
            words.append(value[:6].hex(":"))
        elif part == "service":
            words.append(str(int.from_bytes(value[:2], "big")))
        else:
            words.append(_PROTOCOLS.get(value[0], str(value[0])))
    return " . ".join(words)
