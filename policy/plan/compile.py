"""One policy as chains: its rules, and the sets that they use. It depends on no pod. Pure.

The words of a policy are a tenant's, and its chains are every node's work: what they cost is counted before they are
made. An entry costs its peers plus its ports, never their product, except where selectors meet ranges of ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nodelib.firewall.objects import Family
from nodelib.nft.rules import Count, Field, InSet, NftRule, Statement, Verdict, rule
from policy.model import VERSION, Block, Direction, NamedPort, Peer, Policy, PolicyRule, Selection
from policy.plan import layout
from policy.plan.ranges import Range, block_ranges, merged, port_ranges

T = TypeVar("T")

# Elements in one set of ranges: the kernel copies such a set for each element that it adds (nft_set_pipapo.c), so that
# one of 50,000 takes 16 s and 13 of 4,000 take one. A lookup costs the same either way.
MOST_RANGES = 4096
# What is made for one policy, in units of about 40 µs of the kernel's time (one range in a set).
_RULE, _SET, _POLICY = 5, 12, 5


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
Meaning = Selection | Blocks | Ports | NamedPorts


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy in one family. `chains`: the name of its chain in each direction in which it isolates, and its rules.

    `sets`: what these use, by name. `cost`: see above; a policy that costs more than it may is `closed`: it isolates
    its pods and allows nothing.
    """

    policy: Policy
    names: dict[Direction, str]
    chains: dict[str, tuple[NftRule, ...]]
    sets: dict[str, Meaning] = field(default_factory=dict)
    cost: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of ingress or egress, before its rules are made. None: everybody, or every port."""

    peers: list[Selection | Blocks] | None
    ports: list[Ports | NamedPorts] | None
    label: str

    @property
    def cost(self) -> int:
        peers, ports = self.peers, self.ports
        rules = (1 if peers is None else len(peers)) * (1 if ports is None else len(ports))
        return _RULE * rules + sum(_size(one) for one in (*(peers or ()), *(ports or ())))


def compiled(policy: Policy, family: Family, most: int) -> Compiled:
    """The policy's chains in one family, closed if they cost more than `most`."""
    names = {direction: layout.policy_chain_name(policy.name, direction) for direction in policy.rules}
    entries: dict[Direction, list[_Entry]] = {}
    cost = _POLICY
    for direction, given in policy.rules.items():
        entries[direction] = [
            _Entry(_peers(one.peers, family), _ports(one), f"{policy.name} {direction.lower()}[{number}]")
            for number, one in enumerate(given)
        ]
        cost += sum(one.cost for one in entries[direction])
    if cost > most:
        return Compiled(policy, names, dict.fromkeys(names.values(), ()), {}, cost, closed=True)
    sets: dict[str, Meaning] = {}
    chains = {names[direction]: _rules(found, direction, sets) for direction, found in entries.items()}
    return Compiled(policy, names, chains, sets, cost)


def _rules(entries: list[_Entry], direction: Direction, sets: dict[str, Meaning]) -> tuple[NftRule, ...]:
    party = layout.CLIENT if direction is Direction.INGRESS else layout.SERVER
    written: dict[tuple[Statement, ...], NftRule] = {}
    for entry in entries:
        label = layout.comment(entry.label)
        # Ports first: a packet to another port needs no look at the peers.
        for port in _alternatives(entry.ports, party, sets):
            for peer in _alternatives(entry.peers, party, sets):
                statements = (*port, *peer)
                written.setdefault(statements, rule(*statements, Count(), Verdict("accept"), comment=label))
    return tuple(written.values())


def _alternatives(
    meanings: Sequence[Meaning] | None, party: Field, sets: dict[str, Meaning]
) -> Iterator[tuple[Statement, ...]]:
    """Each is enough."""
    if meanings is None:
        yield ()
        return
    for meaning in meanings:
        name, key = _named(meaning, party)
        sets[name] = meaning
        yield (InSet(key, name),)


def _named(meaning: Meaning, party: Field) -> tuple[str, tuple[Field, ...]]:
    match meaning:
        case Selection():
            return layout.peer_name(meaning), (party,)
        case Blocks(ranges):
            return layout.block_name(ranges), (party, layout.PROTOCOL)
        case Ports(ranges):
            return layout.ports_name(ranges), (layout.PROTOCOL, layout.PORT)
        case NamedPorts(ports):
            return layout.named_name(ports), (layout.SERVER, layout.PROTOCOL, layout.PORT)


def _size(meaning: Meaning) -> int:
    return _SET + (len(meaning.ranges) if isinstance(meaning, Blocks | Ports) else 0)


def _peers(peers: tuple[Peer, ...] | None, family: Family) -> list[Selection | Blocks] | None:
    if peers is None:
        return None
    blocks = [one for one in peers if isinstance(one, Block) and one.cidr.version == VERSION[family]]
    ranges = merged(part for one in blocks for part in block_ranges(one))
    selections = [one for one in peers if isinstance(one, Selection)]
    return [*selections, *(Blocks(part) for part in _pieces(ranges))]


def _ports(entry: PolicyRule) -> list[Ports | NamedPorts] | None:
    if entry.ports is None:
        return None
    ranges = [(protocol, *one) for protocol, found in port_ranges(entry.ports).items() for one in found]
    named = [NamedPorts(tuple(sorted(entry.named)))] if entry.named else []
    return [*(Ports(part) for part in _pieces(ranges)), *named]


def _pieces(ranges: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(ranges), MOST_RANGES):
        yield tuple(ranges[at : at + MOST_RANGES])
