"""Session affinity: finds clients recorded with an endpoint that their Service no longer has. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from nodelib.nft import wire
from nodelib.nft.wire import Element, element_data, element_key
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import PortElements


def loses_endpoints(delete: Iterable[Element], ports: Iterable[PortElements | None]) -> bool:
    """Whether a change that deletes these elements may leave such a client behind."""
    frontends = {
        one.key
        for port in ports
        if port
        for mine in port.frontends.values()
        for one in mine
        if one.set == layout.STICKY
    }
    return any(one.set == layout.ENDPOINTS and one.key[:-4] in frontends for one in delete)


def stale_clients(ports: Iterable[PortElements], recorded: Iterable[bytes]) -> list[Element]:
    """Elements of the affinity map to delete; `recorded` are those that the kernel has."""
    allowed: dict[bytes, set[bytes | str | None]] = {}
    for port in ports:
        for mine in port.frontends.values():
            if any(one.set == layout.STICKY for one in mine):
                for one in mine:
                    if one.set == layout.ENDPOINTS:
                        allowed.setdefault(one.key[:-4], set()).add(element_data(one.raw))
    found = []
    for raw in recorded:
        key = element_key(raw)
        address = (len(key) - 8) // 2
        if element_data(raw) not in allowed.get(key[:-address], ()):
            found.append(Element(layout.AFFINITY, wire.plain(key)))
    return found
