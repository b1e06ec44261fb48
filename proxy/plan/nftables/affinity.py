"""Session affinity: finds clients recorded with an endpoint that their Service no longer has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodelib.nft import wire
from nodelib.nft.wire import Element, Message, element_data, element_key
from proxy.model import ServicePortName
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import PortElements


def losing_endpoints(
    delete: Iterable[Element], ports: Mapping[ServicePortName, PortElements | None]
) -> set[ServicePortName]:
    """Those of these ports of which a change that deletes these elements may leave such a client behind."""
    gone = {one.key[:-4] for one in delete if one.set == layout.ENDPOINTS}
    return {name for name, port in ports.items() if gone and port and not gone.isdisjoint(_sticky(port))}


def stale_clients(ports: Iterable[PortElements], recorded: Iterable[bytes], *, all_ports: bool) -> list[Element]:
    """Elements of the affinity map to delete; `recorded` are those that the kernel has.

    `all_ports`: there are no other ports, and clients of any other frontend are stale, too.
    """
    allowed: dict[bytes, set[bytes | str | None]] = {}
    for port in ports:
        sticky = set(_sticky(port))
        for key in sticky:
            allowed.setdefault(key, set())
        for mine in port.frontends.values() if sticky else ():
            for one in mine:
                if one.set == layout.ENDPOINTS and one.key[:-4] in sticky:
                    allowed[one.key[:-4]].add(element_data(one.raw))
    found = []
    for raw in recorded:
        key = element_key(raw)
        address = (len(key) - 8) // 2
        known = allowed.get(key[:-address])
        if all_ports if known is None else element_data(raw) not in known:
            found.append(Element(layout.AFFINITY, raw))
    return found


def forgotten(stale: Iterable[Element]) -> tuple[list[Message], list[Element]]:
    """What to write before these elements are deleted, and what to delete.

    Deleting fails for one that has expired meanwhile. So each is added first, which changes nothing if it is there.
    """
    values = [(element_key(one.raw), element_data(one.raw)) for one in stale]
    plain = [Element(layout.AFFINITY, wire.valued(key, data)) for key, data in values if isinstance(data, bytes)]
    return wire.added(layout.TABLE, plain), [Element(layout.AFFINITY, wire.plain(one.key)) for one in plain]


def _sticky(port: PortElements) -> list[bytes]:
    return [one.key for mine in port.frontends.values() for one in mine if one.set == layout.STICKY]
