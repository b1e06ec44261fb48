"""What pods have learnt as messages to the kernel. Pure.

Before Linux 6.12 an element that is there keeps its timeout when it is added again, and deleting one that is not there
fails. So it is added, which changes nothing if it is there, deleted, and added as it shall be, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.wire import Element, Message
from policy.domains.model import Key, Learnt
from policy.model import VERSION, Address, DomainNames
from policy.plan import layout
from policy.plan.entries import KNOWN


def written(family: Family, news: Iterable[Learnt], gone: Iterable[Key]) -> list[Message]:
    """What changes in the table of one family. What goes comes first: the kernel adds nothing to a set that is full."""
    fresh = [one for one in news if one.key.pod.version == VERSION[family]]
    added = [one for learnt in fresh for one in _elements(learnt)]
    return [
        *_removed([one for one in gone if one.pod.version == VERSION[family]]),
        *_removed([one.key for one in fresh]),
        *wire.added(layout.TABLE, added),
    ]


def _removed(keys: Iterable[Key]) -> list[Message]:
    plain = [Element(name, wire.plain(_raw(key))) for key in keys for name in _sets(key)]
    return [*wire.added(layout.TABLE, plain), *wire.removed(layout.TABLE, plain)]


def kept(family: Family, sets: Mapping[str, DomainNames], learnt: Iterable[Learnt]) -> list[Message]:
    """The elements of these sets in a table that is written anew."""
    found = [one for one in learnt if one.key.set in sets and one.key.pod.version == VERSION[family]]
    return wire.added(layout.TABLE, [element for one in found for element in _elements(one)])


def read(family: Family, name: str, raws: Iterable[bytes]) -> list[Learnt]:
    """What the elements of a set stand for."""
    size = 4 if family is Family.IPV4 else 16
    found = []
    for raw in raws:
        key = wire.element_key(raw)
        if len(key) == 2 * size:
            ends = _address(key[:size]), _address(key[size:])
            found.append(Learnt(Key(name, *ends), wire.element_seconds(raw)))
    return found


def _elements(learnt: Learnt) -> list[Element]:
    names, known = _sets(learnt.key)
    raw, found = _raw(learnt.key), []
    if learnt.seconds > 0:
        found.append(Element(names, wire.timed(raw, learnt.seconds)))
    if learnt.seconds + KNOWN > 0:
        found.append(Element(known, wire.timed(raw, learnt.seconds + KNOWN)))
    return found


def _sets(key: Key) -> tuple[str, str]:
    return key.set, layout.known_name(key.set)


def _raw(key: Key) -> bytes:
    return key.pod.packed + key.address.packed


def _address(packed: bytes) -> Address:
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
