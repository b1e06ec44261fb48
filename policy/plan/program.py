"""The whole content of our table in one family, from pods and policies. Pure, but for the caches of `Planner`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule
from policy.model import (
    VERSION,
    Address,
    Block,
    Direction,
    Name,
    NamedPort,
    Networks,
    NodeSelection,
    Pod,
    Policy,
    Selection,
    Tracked,
)
from policy.plan import cluster_layout, layout
from policy.plan.cluster_compile import CompiledTier
from policy.plan.compile import Compiled, Meaning, compiled
from policy.plan.groups import ClusterPlanner, Selected, Tiers, group_rules
from policy.plan.index import Index
from policy.plan.ranges import Range, block_ranges, network_ranges, port_ranges


@dataclass(frozen=True, slots=True)
class Program:
    """Chains with their rules and sets with their elements.

    `groups`: the NetworkPolicies that isolate the pods of a group. `denials`: of each chain of a ClusterNetworkPolicy
    that drops, the rule in words.
    """

    family: Family
    chains: dict[str, tuple[NftRule, ...]] = field(default_factory=dict)
    sets: dict[str, SetShape] = field(default_factory=dict)
    elements: dict[str, frozenset[bytes]] = field(default_factory=dict)
    groups: dict[str, tuple[Name, ...]] = field(default_factory=dict)
    denials: dict[str, str] = field(default_factory=dict)


class Planner:
    """Plans one family for one node. What has not changed since the last plan is not made again."""

    def __init__(self, family: Family, node: str, *, report: bool) -> None:
        self.family = family
        self._node = node
        self._report = report
        self._compiled: dict[Name, Compiled] = {}
        self._elements: dict[str, frozenset[bytes]] = {}
        self._open = layout.base_chains(family)
        self._guarded = layout.base_chains(family, guarded=True)
        self._cluster = ClusterPlanner(family, node, report=report)

    def plan(self, index: Index, changed: set[Tracked]) -> tuple[Program, set[Tracked]]:
        """The program, and the selections and named ports that it depends on."""
        used: set[Tracked] = set()
        compiled = self._policies(index)
        groups: dict[Direction, dict[Name, list[Compiled]]] = {one: {} for one in Direction}
        for policy in compiled:
            used.add(policy.policy.selection)
            for name in index.members(policy.policy.selection):
                if index.pods[name].node == self._node:
                    for direction in policy.names:
                        groups[direction].setdefault(name, []).append(policy)
        selected = self._cluster.select(index, used)
        guarded = any(groups.values()) or bool(selected.pods)
        program = Program(self.family, dict(self._guarded if guarded else self._open))
        meanings = self._write_groups(program, groups, selected, index)
        self._write_to_node(program, groups[Direction.EGRESS], selected, meanings, index)
        used |= {one for one in meanings.values() if isinstance(one, Tracked)}
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
        self,
        program: Program,
        groups: dict[Direction, dict[Name, list[Compiled]]],
        selected: Selected,
        index: Index,
    ) -> dict[str, Meaning]:
        meanings: dict[str, Meaning] = {}
        selves: dict[str, set[bytes]] = {layout.SELF: set(), cluster_layout.OWN: set()}
        for direction, by_pod in groups.items():
            lead: set[bytes] = set()
            names: dict[tuple[object, ...], str] = {}
            for pod in {**by_pod, **selected.tiers[direction]}:
                address = index.pods[pod].address(self.family)
                if address is None:
                    continue
                policies = by_pod.get(pod, [])
                # None: no ClusterNetworkPolicy selects the pod, in neither direction.
                tiers = selected.tiers[direction].get(pod, Tiers()) if pod in selected.pods else None
                key = (tiers, *[one.names[direction] for one in policies])
                if key not in names:
                    names[key] = self._group(program, direction, policies, tiers, meanings)
                lead.add(wire.verdict(address.packed, names[key]))
                if policies:
                    where = layout.SELF if tiers is None else cluster_layout.OWN
                    selves[where].add(wire.plain(address.packed + address.packed))
            self._put(program, layout.MAPS[direction], layout.MAP_SHAPE, frozenset(lead))
        self._put(program, layout.SELF, layout.SELF_SHAPE, frozenset(selves[layout.SELF]))
        if selves[cluster_layout.OWN]:
            self._put(program, cluster_layout.OWN, layout.SELF_SHAPE, frozenset(selves[cluster_layout.OWN]))
        if self.family is Family.IPV6:
            self._put(program, layout.NEIGHBOURS, layout.NEIGHBOURS_SHAPE, layout.neighbour_elements())
        return meanings

    def _group(
        self,
        program: Program,
        direction: Direction,
        policies: list[Compiled],
        tiers: Tiers | None,
        meanings: dict[str, Meaning],
    ) -> str:
        """Write the chains of a group. Returns the name of the first."""
        chains = {one.names[direction]: one.policy.name for one in policies}
        for one in policies:
            name = one.names[direction]
            program.chains[name] = one.chains[name]
            meanings |= one.sets
        if tiers is None:
            group = layout.group_name(chains, direction)
            program.chains[group] = layout.group_chain(chains, group, chains.values(), report=self._report)
        else:
            asked = tiers.asked(isolated=bool(policies))
            self._write_tiers(program, direction, asked, meanings)
            group = layout.group_name((cluster_layout.OWN, *[one.name for one in asked], *chains), direction)
            program.chains[group] = group_rules(group, asked, chains, report=self._report)
        program.groups[group] = tuple(chains.values())
        return group

    def _write_to_node(
        self,
        program: Program,
        isolated: dict[Name, list[Compiled]],
        selected: Selected,
        meanings: dict[str, Meaning],
        index: Index,
    ) -> None:
        """What pods send to their own node, which NetworkPolicies allow and ClusterNetworkPolicies may not."""
        lead: set[bytes] = set()
        for pod, tiers in selected.tiers[Direction.EGRESS].items():
            address = index.pods[pod].address(self.family)
            asked = tiers.asked(isolated=pod in isolated, to_node=True)
            if address is None or not asked:
                continue
            group = cluster_layout.to_node_name([one.name for one in asked])
            if group not in program.chains:
                self._write_tiers(program, Direction.EGRESS, asked, meanings)
                program.chains[group] = group_rules(group, asked, {}, report=self._report)
                program.groups[group] = ()
            lead.add(wire.verdict(address.packed, group))
        if lead:
            program.chains[cluster_layout.TO_NODE] = cluster_layout.base_chain()
            self._put(program, cluster_layout.TO_NODE, layout.MAP_SHAPE, frozenset(lead))

    @staticmethod
    def _write_tiers(
        program: Program, direction: Direction, tiers: tuple[CompiledTier, ...], meanings: dict[str, Meaning]
    ) -> None:
        for tier in tiers:
            if tier.name in program.chains:
                continue
            program.chains[tier.name] = tier.rules
            for one in tier.policies:
                program.chains.update(one.chains[direction])
                program.denials.update(one.denials)
                meanings |= one.sets[direction]

    def _write_sets(self, program: Program, meanings: dict[str, Meaning], index: Index, changed: set[Tracked]) -> None:
        kept: dict[str, frozenset[bytes]] = {}
        for name, meaning in meanings.items():
            # Asked for in any case: from the first time on the index keeps it up to date.
            members = _members(meaning, index)
            found = self._elements.get(name)
            if found is None or (isinstance(meaning, Tracked) and meaning in changed):
                found = self._encoded(meaning, members, index)
            kept[name] = found
            self._put(program, name, _shape(meaning), found)
        self._elements = kept

    def _encoded(self, meaning: Meaning, members: list[Pod], index: Index) -> frozenset[bytes]:
        if isinstance(meaning, Selection):
            return frozenset(wire.plain(address.packed) for address in self._addresses(members))
        if isinstance(meaning, NamedPort):
            return _named_elements(meaning, members, self.family)
        if isinstance(meaning, NodeSelection):
            found = index.node_addresses(meaning)
            return frozenset(wire.plain(one.packed) for one in found if one.version == VERSION[self.family])
        if isinstance(meaning, Block):
            return _range_elements(block_ranges(meaning), self.family)
        if isinstance(meaning, Networks):
            return _range_elements(network_ranges(meaning, VERSION[self.family]), self.family)
        elements = set()
        for protocol, ranges in port_ranges(meaning).items():
            part = layout.protocol_part(layout.PROTOCOLS[protocol])
            elements |= {wire.ranged(part + layout.port_part(a), part + layout.port_part(b)) for a, b in ranges}
        return frozenset(elements)

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
    if isinstance(meaning, NodeSelection):
        index.watch_nodes(meaning)
    return []


def _shape(meaning: Meaning) -> SetShape:
    if isinstance(meaning, Selection | NodeSelection):
        return layout.PEER_SHAPE
    if isinstance(meaning, NamedPort):
        return layout.NAMED_SHAPE
    return layout.BLOCK_SHAPE if isinstance(meaning, Block | Networks) else layout.PORTS_SHAPE


def _named_elements(port: NamedPort, pods: list[Pod], family: Family) -> frozenset[bytes]:
    found = set()
    part = layout.protocol_part(layout.PROTOCOLS[port.protocol])
    for pod in pods:
        address = pod.address(family)
        if address is not None:
            found |= {wire.plain(address.packed + part + layout.port_part(one)) for one in pod.ports[port]}
    return frozenset(found)


def _range_elements(ranges: Iterable[Range], family: Family) -> frozenset[bytes]:
    """The protocol is part of the key, because the kernel's ranges need a key of two parts: all of them."""
    size = 4 if family is Family.IPV4 else 16
    low, high = layout.protocol_part(0), layout.protocol_part(255)
    return frozenset(
        wire.ranged(first.to_bytes(size, "big") + low, last.to_bytes(size, "big") + high) for first, last in ranges
    )
