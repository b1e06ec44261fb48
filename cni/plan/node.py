"""The node's half: its bridge and what has to change, and the MTU of its uplink. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface

from cni.model import Address, AddressRange, BridgePlan, Interface, LinkFacts, RouteFacts
from cni.plan.links import DEFAULT_MTU
from nodelib.addresses import hardware_address


@dataclass(frozen=True, slots=True)
class BridgeChanges:
    """In this order. `set_mtu` 0 and `set_mac` "": already right. `route`: addresses whose network has no route."""

    create: bool = False
    bring_up: bool = False
    set_mtu: int = 0
    set_mac: str = ""
    add: tuple[Interface, ...] = ()
    remove: tuple[Interface, ...] = ()
    route: tuple[Interface, ...] = ()


def bridge(name: str, ranges: Sequence[AddressRange], mtu: int) -> BridgePlan:
    """The bridge of a node whose pods have addresses from `ranges`: it has the gateway of each."""
    addresses = tuple(ip_interface(f"{item.gateway}/{item.subnet.prefixlen}") for item in ranges)
    return BridgePlan(name, hardware_address(addresses[0].ip), mtu, addresses)


def changes(
    plan: BridgePlan,
    link: LinkFacts | None,
    present: Collection[Interface],
    in_use: Iterable[Address],
    routes: Iterable[RouteFacts],
) -> BridgeChanges:
    """What has to change to get to `plan`. An address stays while its subnet has pods (`in_use`).

    The kernel makes an address's route when it gets the address, and not again when somebody removes it.
    """
    if link is None:
        return BridgeChanges(create=True, add=plan.addresses)
    used = list(in_use)
    routed = {route.destination for route in routes if route.link == link.index}
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
        route=tuple(item for item in plan.addresses if item in present and item.network not in routed),
    )


def uplink_mtu(
    links: Iterable[LinkFacts],
    addresses: Iterable[tuple[int, Interface]],
    routes: Iterable[RouteFacts],
    own_ips: Collection[Address],
) -> int:
    """The MTU of the link with one of `own_ips`, else of the default route's link, else 1500."""
    by_index = {link.index: link for link in links}
    for index, address in addresses:
        if address.ip in own_ips and index in by_index:
            return by_index[index].mtu
    for route in routes:
        if route.destination.prefixlen == 0 and route.link in by_index:
            return by_index[route.link].mtu
    return DEFAULT_MTU


def connected(addresses: Iterable[tuple[int, Interface]], own_links: Collection[int]) -> list[Interface]:
    """Addresses of links that lead to other nodes: not of loopback, nor of bridge and overlay (`own_links`).

    Link-local ones are left out: fe80::/64 is on every link and says nothing about which nodes are there.
    """
    return [
        item
        for index, item in addresses
        if index not in own_links and not item.ip.is_loopback and not (item.version == 6 and item.ip.is_link_local)
    ]
