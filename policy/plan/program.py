"""The whole content of our table in one family, from pods and policies. Pure, but for the caches of `Planner`."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule
from policy.model import Address, Block, Direction, Name, NamedPort, Pod, Policy, Selection
from policy.plan import layout
from policy.plan.compile import Compiled, Meaning, compiled
from policy.plan.index import Index
from policy.plan.ranges import block_ranges, port_ranges


@dataclass(frozen=True, slots=True)
class Program:
    """Chains with their rules and sets with their elements.

    `groups`: the policies that isolate the pods of a group.
    """

    family: Family
    chains: dict[str, tuple[NftRule, ...]] = field(default_factory=dict)
    sets: dict[str, SetShape] = field(default_factory=dict)
    elements: dict[str, frozenset[bytes]] = field(default_factory=dict)
    groups: dict[str, tuple[Name, ...]] = field(default_factory=dict)


class Planner:
    """Plans one family for one node. What has not changed since the last plan is not made again."""

    def __init__(self, family: Family, node: str, *, report: bool) -> None:
        self.family = family
        self._node = node
        self._report = report
        self._compiled: dict[Name, Compiled] = {}
        self._elements: dict[str, frozenset[bytes]] = {}
        self._fixed = layout.base_chains(family)

    def plan(self, index: Index, changed: set[Selection | NamedPort]) -> tuple[Program, set[Selection | NamedPort]]:
        """The program, and the selections and named ports that it depends on."""
        used: set[Selection | NamedPort] = set()
        compiled = self._policies(index)
        groups: dict[Direction, dict[Name, list[Compiled]]] = {one: {} for one in Direction}
        for policy in compiled:
            used.add(policy.policy.selection)
            for name in index.members(policy.policy.selection):
                if index.pods[name].node == self._node:
                    for direction in policy.names:
                        groups[direction].setdefault(name, []).append(policy)
        program = Program(self.family, dict(self._fixed))
        meanings = self._write_groups(program, groups, index)
        used |= {one for one in meanings.values() if isinstance(one, Selection | NamedPort)}
        self._write_sets(program, meanings, index, changed)
        return program, used

    def _policies(self, index: Index) -> list[Compiled]:
        """Every policy, in the order of the names."""
        found: dict[Name, Compiled] = {}
        for name in sorted(index.policies):
            policy: Policy = index.policies[name]
            known = self._compiled.get(name)
            found[name] = known if known is not None and known.policy is policy else compiled(policy, self.family)
        self._compiled = found
        return list(found.values())

    def _write_groups(
        self, program: Program, groups: dict[Direction, dict[Name, list[Compiled]]], index: Index
    ) -> dict[str, Meaning]:
        meanings: dict[str, Meaning] = {}
        own: set[bytes] = set()
        for direction, by_pod in groups.items():
            lead: set[bytes] = set()
            names: dict[tuple[str, ...], str] = {}
            for pod, policies in by_pod.items():
                address = index.pods[pod].address(self.family)
                if address is None:
                    continue
                chains = tuple([one.names[direction] for one in policies])
                group = names.get(chains)
                if group is None:
                    group = names[chains] = layout.group_name(chains, direction)
                    for one in policies:
                        name = one.names[direction]
                        program.chains[name] = one.chains[name]
                        meanings |= one.sets
                    names_of = program.groups[group] = tuple([one.policy.name for one in policies])
                    program.chains[group] = layout.group_chain(chains, group, names_of, report=self._report)
                lead.add(wire.verdict(address.packed, group))
                own.add(wire.plain(address.packed + address.packed))
            self._put(program, layout.MAPS[direction], layout.MAP_SHAPE, frozenset(lead))
        self._put(program, layout.SELF, layout.SELF_SHAPE, frozenset(own))
        if self.family is Family.IPV6:
            self._put(program, layout.NEIGHBOURS, layout.NEIGHBOURS_SHAPE, layout.neighbour_elements())
        return meanings

    def _write_sets(
        self, program: Program, meanings: dict[str, Meaning], index: Index, changed: set[Selection | NamedPort]
    ) -> None:
        kept: dict[str, frozenset[bytes]] = {}
        for name, meaning in meanings.items():
            # Asked for in any case: from the first time on the index keeps it up to date.
            members = _members(meaning, index)
            found = self._elements.get(name)
            if found is None or (isinstance(meaning, Selection | NamedPort) and meaning in changed):
                found = self._encoded(meaning, members)
            kept[name] = found
            self._put(program, name, _shape(meaning), found)
        self._elements = kept

    def _encoded(self, meaning: Meaning, members: list[Pod]) -> frozenset[bytes]:
        if isinstance(meaning, Selection):
            return frozenset(wire.plain(address.packed) for address in self._addresses(members))
        if isinstance(meaning, NamedPort):
            return _named_elements(meaning, members, self.family)
        if isinstance(meaning, Block):
            return _block_elements(meaning)
        found = set()
        for protocol, ranges in port_ranges(meaning).items():
            part = layout.protocol_part(layout.PROTOCOLS[protocol])
            found |= {wire.ranged(part + layout.port_part(a), part + layout.port_part(b)) for a, b in ranges}
        return frozenset(found)

    def _addresses(self, pods: list[Pod]) -> list[Address]:
        return [address for pod in pods if (address := pod.address(self.family)) is not None]

    @staticmethod
    def _put(program: Program, name: str, shape: SetShape, elements: frozenset[bytes]) -> None:
        program.sets[name] = shape
        program.elements[name] = elements


def _members(meaning: Meaning, index: Index) -> list[Pod]:
    if isinstance(meaning, Selection):
        return [index.pods[name] for name in index.members(meaning)]
    if isinstance(meaning, NamedPort):
        return [index.pods[name] for name in index.having(meaning)]
    return []


def _shape(meaning: Meaning) -> SetShape:
    if isinstance(meaning, Selection):
        return layout.PEER_SHAPE
    if isinstance(meaning, NamedPort):
        return layout.NAMED_SHAPE
    return layout.BLOCK_SHAPE if isinstance(meaning, Block) else layout.PORTS_SHAPE


def _named_elements(port: NamedPort, pods: list[Pod], family: Family) -> frozenset[bytes]:
    found = set()
    part = layout.protocol_part(layout.PROTOCOLS[port.protocol])
    for pod in pods:
        address = pod.address(family)
        if address is not None:
            found |= {wire.plain(address.packed + part + layout.port_part(one)) for one in pod.ports[port]}
    return frozenset(found)


def _block_elements(block: Block) -> frozenset[bytes]:
    """The protocol is part of the key, because the kernel's ranges need a key of two parts: all of them."""
    size = block.cidr.max_prefixlen // 8
    low, high = layout.protocol_part(0), layout.protocol_part(255)
    return frozenset(
        wire.ranged(first.to_bytes(size, "big") + low, last.to_bytes(size, "big") + high)
        for first, last in block_ranges(block)
    )
