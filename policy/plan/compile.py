"""One policy as chains: its rules, and the sets that they use. It depends on no pod. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft.rules import Count, InSet, NftRule, Statement, Verdict, rule
from policy.model import VERSION, Block, Direction, Networks, Peer, Policy, PolicyRule, PortRange, Tracked
from policy.plan import layout

# What a set stands for.
Meaning = Tracked | Block | Networks | tuple[PortRange, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A policy in one family. `chains`: the name of its chain in each direction in which it isolates, and its rules.

    `sets`: what these use, by name.
    """

    policy: Policy
    names: dict[Direction, str]
    chains: dict[str, tuple[NftRule, ...]]
    sets: dict[str, Meaning] = field(default_factory=dict)


def compiled(policy: Policy, family: Family) -> Compiled:
    """The policy's chains in one family."""
    sets: dict[str, Meaning] = {}
    names: dict[Direction, str] = {}
    chains: dict[str, tuple[NftRule, ...]] = {}
    for direction, entries in policy.rules.items():
        name = layout.policy_chain_name(policy.name, direction)
        names[direction] = name
        written: dict[tuple[Statement, ...], NftRule] = {}
        for number, entry in enumerate(entries):
            label = layout.comment(f"{policy.name} {direction.lower()}[{number}]")
            for statements in alternatives(entry, direction, family, sets):
                written.setdefault(statements, rule(*statements, Count(), Verdict("accept"), comment=label))
        chains[name] = tuple(written.values())
    return Compiled(policy, names, chains, sets)


def alternatives(
    entry: PolicyRule, direction: Direction, family: Family, sets: dict[str, Meaning]
) -> Iterator[tuple[Statement, ...]]:
    """Each is enough for a packet to fit the entry. What they use is added to `sets`."""
    peers = list(_peers(entry.peers, direction, family, sets))
    # Ports first: a packet to another port needs no look at the peers.
    for port in _ports(entry, sets):
        for peer in peers:
            yield (*port, *peer)


def _peers(
    peers: tuple[Peer, ...] | None, direction: Direction, family: Family, sets: dict[str, Meaning]
) -> Iterator[tuple[Statement, ...]]:
    if peers is None:
        yield ()
        return
    party = layout.CLIENT if direction is Direction.INGRESS else layout.SERVER
    for peer in peers:
        if isinstance(peer, Block | Networks):
            cidrs = peer.cidrs if isinstance(peer, Networks) else (peer.cidr,)
            if all(one.version != VERSION[family] for one in cidrs):
                continue
            name = layout.addresses_name(peer)
            sets[name] = peer
            yield (InSet((party, layout.PROTOCOL), name),)
        else:
            name = layout.peer_name(peer)
            sets[name] = peer
            yield (InSet((party,), name),)


def _ports(entry: PolicyRule, sets: dict[str, Meaning]) -> Iterator[tuple[Statement, ...]]:
    if entry.ports is None:
        yield ()
        return
    if entry.ports:
        name = layout.ports_name(entry.ports)
        sets[name] = entry.ports
        yield (InSet((layout.PROTOCOL, layout.PORT), name),)
    for port in entry.named:
        name = layout.named_name(port)
        sets[name] = port
        yield (InSet((layout.SERVER, layout.PROTOCOL, layout.PORT), name),)
