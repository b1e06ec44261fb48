"""What a set stands for as its elements, from the pods and nodes of an index. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nodelib.addresses import hardware_address
from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.objects import SetShape
from policy.model import VERSION, Address, DomainNames, NamedPort, NodeSelection, Pod, Selection, Tracked
from policy.plan import layout
from policy.plan.entries import Blocks, Meaning, NamedPorts, Ports, watched
from policy.plan.index import Index
from policy.plan.ranges import Range

Elements = frozenset[bytes]


class Filled(NamedTuple):
    """A set: what it stands for, what of the index that depends on, its shape and its elements."""

    meaning: Meaning
    uses: tuple[Tracked, ...]
    shape: SetShape
    elements: Elements


class SetCache:
    """The sets of one family. What has not changed since the last plan is not made again.

    A set's name follows from what it stands for. Whatever was in the last plan is kept up to date by the index since.
    """

    def __init__(self, family: Family) -> None:
        self._family = family
        self._sets: dict[str, Filled] = {}
        self._senders: tuple[tuple[tuple[Address, ...], ...], tuple[Elements, Elements]] = ((), senders((), family))

    def filled(self, meanings: dict[str, Meaning], index: Index, changed: set[Tracked]) -> dict[str, Filled]:
        """The sets with these names."""
        found: dict[str, Filled] = {}
        for name, meaning in meanings.items():
            known = self._sets.get(name)
            if known is None or (changed and not changed.isdisjoint(known.uses)):
                known = self._made(meaning, index)
            found[name] = known
        self._sets = found
        return found

    def _made(self, meaning: Meaning, index: Index) -> Filled:
        elements = _encoded(meaning, _members(meaning, index), index, self._family)
        return Filled(meaning, watched(meaning), _shape(meaning), elements)

    def senders(self, given: Iterable[tuple[Address, ...]]) -> tuple[Elements, Elements]:
        """See `senders()` of this module."""
        now = tuple(given)
        if now != self._senders[0]:
            self._senders = now, senders(now, self._family)
        return self._senders[1]


def senders(given: Iterable[tuple[Address, ...]], family: Family) -> tuple[Elements, Elements]:
    """The hardware addresses of pods, and these with the addresses that each may send by.

    The pod network gives each pod the hardware address that follows from its first address.
    """
    known: set[bytes] = set()
    addresses: set[bytes] = set()
    for own in given:
        sender = layout.sender_part(hardware_address(own[0])) if own else b""
        known |= {wire.plain(sender)} if sender else set()
        addresses |= {wire.plain(sender + one.packed) for one in own if one.version == VERSION[family]}
    return frozenset(known), frozenset(addresses)


def _encoded(meaning: Meaning, members: list[Pod], index: Index, family: Family) -> Elements:
    match meaning:
        case Selection():
            found = [address for pod in members if (address := pod.address(family)) is not None]
            return frozenset(wire.plain(address.packed) for address in found)
        case NodeSelection():
            nodes = index.node_addresses(meaning)
            return frozenset(wire.plain(one.packed) for one in nodes if one.version == VERSION[family])
        case DomainNames():
            return frozenset()  # what pods have learnt is no part of the plan
        case NamedPorts(ports):
            return frozenset(raw for one in ports for raw in _named_elements(one, members, family))
        case Blocks(ranges):
            return _block_elements(ranges, family)
        case Ports(ranges):
            return frozenset(_port_element(*one) for one in ranges)


def _members(meaning: Meaning, index: Index) -> list[Pod]:
    match meaning:
        case Selection():
            return [index.pods[name] for name in index.members(meaning)]
        case NamedPorts(ports):
            return [index.pods[name] for name in set().union(*map(index.having, ports))]
        case NodeSelection():
            index.watch_nodes(meaning)
    return []


def _shape(meaning: Meaning) -> SetShape:
    match meaning:
        case Selection() | NodeSelection():
            return layout.PEER_SHAPE
        case DomainNames():
            return layout.DOMAINS_SHAPE
        case NamedPorts():
            return layout.NAMED_SHAPE
        case Blocks():
            return layout.BLOCK_SHAPE
        case Ports():
            return layout.PORTS_SHAPE


def _port_element(protocol: str, first: int, last: int) -> bytes:
    part = layout.protocol_part(layout.PROTOCOLS[protocol])
    return wire.ranged(part + layout.port_part(first), part + layout.port_part(last))


def _named_elements(port: NamedPort, pods: list[Pod], family: Family) -> Elements:
    found = set()
    part = layout.protocol_part(layout.PROTOCOLS[port.protocol])
    for pod in pods:
        address = pod.address(family)
        if address is not None:
            found |= {wire.plain(address.packed + part + layout.port_part(one)) for one in pod.ports.get(port, ())}
    return frozenset(found)


def _block_elements(ranges: Iterable[Range], family: Family) -> Elements:
    """The protocol is part of the key, because the kernel's ranges need a key of two parts: all of them."""
    size = 4 if family is Family.IPV4 else 16
    low, high = layout.protocol_part(0), layout.protocol_part(255)
    return frozenset(
        wire.ranged(first.to_bytes(size, "big") + low, last.to_bytes(size, "big") + high) for first, last in ranges
    )
