"""Rules and encoded elements as nft prints them, for the golden dumps."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Mapping

from nodelib.firewall.objects import Family
from nodelib.nft.wire import element_data, element_key
from proxy.plan.context import Context
from proxy.plan.nftables import layout

_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp"}
# The parts of each key: a for an address, s for protocol and port, i for an index. Frontends, "as", are the rest.
_KEYS = {
    layout.CLUSTER_IPS: "a",
    layout.ENDPOINTS: "asi",
    layout.HAIRPIN: "aas",
    layout.RANGES: "asa",
    layout.AFFINITY: "asa",
}


def element_text(name: str, raw: bytes, family: Family) -> str:
    """An element of the set `name` as nft prints it: "10.96.0.1 . tcp . 443 : goto pick-2"."""
    parts, key = _KEYS.get(name, "as"), element_key(raw)
    words: list[str] = []
    offset = 0
    size = 4 if family is Family.IPV4 else 16
    for part in parts:
        if part == "a":
            words.append(_address(key[offset : offset + size]))
            offset += size
        elif part == "s":
            words += [_PROTOCOLS.get(key[offset], str(key[offset])), str(struct.unpack_from(">H", key, offset + 4)[0])]
            offset += 8
        else:
            words.append(str(struct.unpack_from("=I", key, offset)[0]))
            offset += 4
    if offset < len(key):
        words[-1] = f"{words[-1]}-{_address(key[-size:])}"
    text, data = " . ".join(words), element_data(raw)
    if data is None:
        return text
    if isinstance(data, bytes):
        data = f"{_address(data[:size])} . {struct.unpack_from('>H', data, size)[0]}"
    return f"{text} : {data}"


def dump(chains: Iterable[str], elements: Mapping[str, Iterable[bytes]], ctx: Context) -> str:
    """The whole table: the input that creates it, its rules chain by chain, its elements sorted."""
    lines = [layout.table_text(ctx)]
    rules = layout.fixed_chains(ctx) | {name: layout.chain_rules(name) for name in chains}
    for chain, ones in rules.items():
        lines.append(f"\nchain {chain}\n" + "".join([f"    {one.text(ctx.family)}\n" for one in ones]))
    for name in layout.FILLED:
        texts = sorted([element_text(name, raw, ctx.family) for raw in elements.get(name, ())])
        if texts:
            lines.append(f"\nelements {name}\n" + "".join([f"    {text}\n" for text in texts]))
    return "".join(lines)


def _address(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))
