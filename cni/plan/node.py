"""The node's half: its bridge and what of it must change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface

from cni.model import Address, AddressRange, BridgePlan, Interface, LinkFacts, RouteFacts
from cni.plan.links import DEFAULT_MTU
from cni.plan.names import mac


@dataclass(frozen=True, slots=True)
class BridgeChanges:
    """`create` first, then `set_mtu` (0: right already) and `set_mac` (""), then addresses."""

    create: bool = False
    bring_up: bool = False
    set_mtu: int = 0
    set_mac: str = ""
    add: tuple[Interface, ...] = ()
    remove: tuple[Interface, ...] = ()


def bridge(name: str, ranges: Sequence[AddressRange], mtu: int) -> BridgePlan:
    """The bridge of a node whose pods come from `ranges`: it has the gateway of each."""
    addresses = tuple(ip_interface(f"{item.gateway}/{item.subnet.prefixlen}") for item in ranges)
    return BridgePlan(name, mac(addresses[0].ip), mtu, addresses)


def changes(
    plan: BridgePlan, link: LinkFacts | None, present: Collection[Interface], in_use: Iterable[Address]
) -> BridgeChanges:
    """From what is there to `plan`. An address whose subnet still has pods (`in_use`) stays until they are gone."""
    if link is None:
        return BridgeChanges(create=True, add=plan.addresses)
    used = list(in_use)
    stale = tuple(
        item
        for item in present
        if item not in plan.addresses
        and not item.ip.is_link_local
        and not any(address in item.network for address in used)
    )
    return BridgeChanges(
        bring_up=not link.up,
        set_mtu=plan.mtu if link.mtu != plan.mtu else 0,
        set_mac=plan.mac if link.mac != plan.mac else "",
        add=tuple(item for item in plan.addresses if item not in present),
        remove=stale,
    )


def uplink_mtu(
    links: Iterable[LinkFacts],
    addresses: Iterable[tuple[int, Interface]],
    routes: Iterable[RouteFacts],
    own_ips: Collection[Address],
) -> int:
    """The MTU of the link that has a node address, else of the default route's link, else 1500."""
    by_index = {link.index: link for link in links}
    for index, address in addresses:
        if address.ip in own_ips and index in by_index:
            return by_index[index].mtu
    for route in routes:
        if route.destination.prefixlen == 0 and route.link in by_index:
            return by_index[route.link].mtu
    return DEFAULT_MTU


def connected(addresses: Iterable[tuple[int, Interface]], own_links: Collection[int]) -> list[Interface]:
    """Addresses whose links lead to other nodes: not loopback, not the bridge and the overlay (`own_links`).

    Nor link-local ones: fe80::/64 is on every link, and tells nothing about who is there.
    """
    return [
        item
        for index, item in addresses
        if index not in own_links and not item.ip.is_loopback and not (item.version == 6 and item.ip.is_link_local)
    ]
