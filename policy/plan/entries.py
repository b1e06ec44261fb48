"""One entry of ingress or egress as statements of rules, and what it costs. Pure.

The words of a policy are a tenant's, and its chains are every node's work: what they cost is counted before they are
made. An entry costs its peers plus its ports, never their product, except where selectors meet ranges of ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodelib.firewall.objects import Family
from nodelib.nft.actions import UpdateSet
from nodelib.nft.keys import Field
from nodelib.nft.matches import Connection, InSet
from nodelib.nft.rules import Statement
from policy.model import (
    VERSION,
    Block,
    Direction,
    DomainNames,
    NamedPort,
    Networks,
    NodeSelection,
    Peer,
    PolicyRule,
    Selection,
    Tracked,
)
from policy.plan import layout
from policy.plan.marks import FORGOTTEN
from policy.plan.ranges import Range, block_ranges, merged, network_ranges, port_ranges

T = TypeVar("T")

# What the policies of one namespace, or all ClusterNetworkPolicies, may cost a node: some four seconds of the kernel's
# time. Who may write policies in one namespace does not hold up the rules, and with them the new pods, of all others.
MOST = 100_000
# Jumps from pods' chains to policies' chains, of one namespace or of a tier: pods times policies, at worst.
MOST_JUMPS = 20_000
# Elements in one set of ranges: the kernel copies such a set for each element that it adds (nft_set_pipapo.c), so that
# one of 50,000 takes 16 s and 13 of 4,000 take one. A lookup costs the same either way.
MOST_RANGES = 4096
# Seconds for which a connection to an address goes on without a packet, after the address has expired. The proxy lets
# conntrack forget one that is silent for so long.
KNOWN = 86400
# What is made for one policy, in units of about 40 µs of the kernel's time (one range in a set).
_RULE, _SET, POLICY_COST = 5, 12, 5


@dataclass(frozen=True, slots=True)
class Blocks:
    """Addresses as numbers, of one family."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of protocols: (protocol, first, last)."""

    ranges: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class NamedPorts:
    """What the target pods' containers call by one of these names."""

    ports: tuple[NamedPort, ...]


# What a set stands for.
Meaning = Selection | NodeSelection | DomainNames | Blocks | Ports | NamedPorts
_Party = Selection | NodeSelection | DomainNames | Blocks
# What has pods of the cluster as its elements.
OfPods = Selection | NamedPorts


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a policy, before its rules are made. None: everybody, or every port."""

    peers: tuple[_Party, ...] | None
    ports: tuple[Ports | NamedPorts, ...] | None

    @property
    def of_pods(self) -> Iterator[OfPods]:
        return (one for one in (*(self.peers or ()), *(self.ports or ())) if isinstance(one, OfPods))

    @property
    def cost(self) -> int:
        peers, ports = self.peers, self.ports
        rules = (1 if peers is None else len(peers)) * (1 if ports is None else len(ports))
        return _RULE * rules + sum(_size(one) for one in (*(peers or ()), *(ports or ())))

    def alternatives(self, direction: Direction, sets: dict[str, Meaning]) -> Iterator[tuple[Statement, ...]]:
        """Each is enough for a packet to fit the entry. What they use is added to `sets`."""
        party = layout.CLIENT if direction is Direction.INGRESS else layout.SERVER
        # Ports first: a packet to another port needs no look at the peers.
        for port in _alternatives(self.ports, party, sets):
            for peer in _alternatives(self.peers, party, sets):
                yield (*port, *peer)


def entry(rule: PolicyRule, family: Family) -> Entry:
    """The entry as far as it is about one family."""
    return Entry(_peers(rule.peers, family), _ports(rule))


def watched(meaning: Meaning) -> tuple[Tracked, ...]:
    """What of the index its elements depend on."""
    if isinstance(meaning, NamedPorts):
        return meaning.ports
    return (meaning,) if isinstance(meaning, Selection | NodeSelection) else ()


def _alternatives(
    meanings: Sequence[Meaning] | None, party: Field, sets: dict[str, Meaning]
) -> Iterator[tuple[Statement, ...]]:
    if meanings is None:
        yield ()
        return
    for meaning in meanings:
        name, key = _named(meaning, party)
        sets[name] = meaning
        if isinstance(meaning, DomainNames):
            # Not to be spared: time changes what such a rule says, and each packet prolongs it.
            yield InSet(key, name), FORGOTTEN
            known = layout.known_name(name)
            sets[known] = meaning
            yield (
                Connection("state", "established,related"),
                InSet(key, known),
                UpdateSet(key, known, KNOWN),
                FORGOTTEN,
            )
        else:
            yield (InSet(key, name),)


def _named(meaning: Meaning, party: Field) -> tuple[str, tuple[Field, ...]]:
    match meaning:
        case Selection():
            return layout.peer_name(meaning), (party,)
        case NodeSelection():
            return layout.nodes_name(meaning), (party,)
        case DomainNames():
            return layout.names_name(meaning), (layout.CLIENT, layout.SERVER)
        case Blocks(ranges):
            return layout.block_name(ranges), (party, layout.PROTOCOL)
        case Ports(ranges):
            return layout.ports_name(ranges), (layout.PROTOCOL, layout.PORT)
        case NamedPorts(ports):
            return layout.named_name(ports), (layout.SERVER, layout.PROTOCOL, layout.PORT)


def _size(meaning: Meaning) -> int:
    if isinstance(meaning, Blocks | Ports):
        return _SET + len(meaning.ranges)
    return _SET + (requirements(meaning) if isinstance(meaning, Selection) else 0)


def requirements(selection: Selection) -> int:
    """How much is asked of a pod to know whether it is selected."""
    namespaces = selection.namespaces
    return len(selection.pods.requirements) + (0 if namespaces is None else len(namespaces.requirements))


def _peers(peers: tuple[Peer, ...] | None, family: Family) -> tuple[_Party, ...] | None:
    if peers is None:
        return None
    ranges = merged(part for one in peers for part in _ranges(one, VERSION[family]))
    chosen = [one for one in peers if isinstance(one, Selection | NodeSelection | DomainNames)]
    return (*chosen, *(Blocks(part) for part in _pieces(ranges)))


def _ranges(peer: Peer, version: int) -> list[Range]:
    if isinstance(peer, Networks):
        return network_ranges(peer, version)
    return block_ranges(peer) if isinstance(peer, Block) and peer.cidr.version == version else []


def _ports(rule: PolicyRule) -> tuple[Ports | NamedPorts, ...] | None:
    if rule.ports is None:
        return None
    ranges = [(protocol, *one) for protocol, found in port_ranges(rule.ports).items() for one in found]
    named = [NamedPorts(tuple(sorted(rule.named)))] if rule.named else []
    return (*(Ports(part) for part in _pieces(ranges)), *named)


def _pieces(ranges: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(ranges), MOST_RANGES):
        yield tuple(ranges[at : at + MOST_RANGES])
