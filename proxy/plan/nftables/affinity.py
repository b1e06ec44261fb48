"""Session affinity: finds clients recorded with an endpoint that their Service no longer has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from nodelib.nft import wire
from nodelib.nft.wire import Element, Message, element_data, element_key
from proxy.model import ServicePortName
from proxy.plan.nftables import layout
from proxy.plan.nftables.ports import Frontend, PortElements, frontend_key
from proxy.plan.nftables.sync import AppliedState, Delta

Owners = Mapping[Frontend, ServicePortName]
Ports = Mapping[ServicePortName, PortElements]


def losing_frontends(delta: Delta, applied: AppliedState) -> set[Frontend]:
    """Those of which `delta`, which is applied, may leave such a client behind.

    Also one that has no affinity any more: another Service may have its address and port next, and its clients.
    """
    lost = _endpoints(delta.delete) - _endpoints(delta.add)
    keys, ended = {key for key, _ in lost}, _sticky(delta.delete) - _sticky(delta.add)
    if not keys and not ended:
        return set()
    found = set()
    for at in delta.owner:
        key = frontend_key(at)
        if key in ended or (key in keys and _sticky(_elements(at, applied.owner, applied.ports))):
            found.add(at)
    return found


def stale_clients(
    frontends: Collection[Frontend] | None, owners: Owners, ports: Ports, recorded: Iterable[bytes]
) -> list[Element]:
    """Elements of the affinity map to delete; `recorded` are those that the kernel has.

    `frontends`: whose clients may be stale; None: those of all, and then of any that nobody owns, too.
    """
    allowed: dict[bytes, set[bytes | str | None]] = {}
    for at in owners if frontends is None else frontends:
        mine = _elements(at, owners, ports)
        endpoints = allowed.setdefault(frontend_key(at), set())
        if _sticky(mine):
            endpoints.update(element_data(one.raw) for one in mine if one.set == layout.ENDPOINTS)
    found = []
    for raw in recorded:
        key = element_key(raw)
        address = (len(key) - 8) // 2
        known = allowed.get(key[:-address])
        if frontends is None if known is None else element_data(raw) not in known:
            found.append(Element(layout.AFFINITY, raw))
    return found


def forgotten(stale: Iterable[Element]) -> tuple[list[Message], list[Element]]:
    """What to write before these elements are deleted, and what to delete.

    Deleting fails for one that has expired meanwhile. So each is added first, which changes nothing if it is there.
    """
    values = [(element_key(one.raw), element_data(one.raw)) for one in stale]
    plain = [Element(layout.AFFINITY, wire.valued(key, data)) for key, data in values if isinstance(data, bytes)]
    return wire.added(layout.TABLE, plain), [Element(layout.AFFINITY, wire.plain(one.key)) for one in plain]


def _elements(at: Frontend, owners: Owners, ports: Ports) -> tuple[Element, ...]:
    owner = owners.get(at)
    port = ports.get(owner) if owner is not None else None
    return port.frontends.get(at, ()) if port is not None else ()


def _sticky(elements: Iterable[Element]) -> set[bytes]:
    return {one.key for one in elements if one.set == layout.STICKY}


def _endpoints(elements: Iterable[Element]) -> set[tuple[bytes, bytes | str | None]]:
    """By frontend, without their places in it."""
    return {(one.key[:-4], element_data(one.raw)) for one in elements if one.set == layout.ENDPOINTS}
