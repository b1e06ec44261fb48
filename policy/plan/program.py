"""The whole content of our table in one family, from pods and policies. Pure, but for the caches of `Planner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from nodelib.firewall.objects import Family
from nodelib.nft import wire
from nodelib.nft.objects import SetShape
from nodelib.nft.rules import NftRule
from policy.model import Direction, DomainNames, Name, Resolvers, Tracked
from policy.plan import cluster_layout, layout, marks
from policy.plan.cluster_compile import CompiledTier
from policy.plan.elements import SetCache
from policy.plan.entries import MOST_JUMPS, Meaning
from policy.plan.groups import ClusterPlanner, Selected, Tiers, group_rules
from policy.plan.index import Changes, Index
from policy.plan.isolation import Groups, Isolated, Isolation, Policies
from policy.plan.layout import Refusing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Program:
    """Chains with their rules and sets with their elements.

    `groups`: the NetworkPolicies that isolate the pods of a group. `denials`: of each chain of a ClusterNetworkPolicy
    that drops, the rule in words. `left_out`: the policies that allow nothing, because those of their namespace (or all
    ClusterNetworkPolicies, whose namespace is "") are too many or too large. `names`: the domain names of sets.
    """

    family: Family
    chains: dict[str, tuple[NftRule, ...]] = field(default_factory=dict)
    sets: dict[str, SetShape] = field(default_factory=dict)
    elements: dict[str, frozenset[bytes]] = field(default_factory=dict)
    groups: dict[str, tuple[Name, ...]] = field(default_factory=dict)
    denials: dict[str, str] = field(default_factory=dict)
    left_out: tuple[Name, ...] = ()
    names: dict[str, DomainNames] = field(default_factory=dict)

    def put(self, name: str, shape: SetShape, elements: frozenset[bytes]) -> None:
        self.sets[name] = shape
        self.elements[name] = elements


class Planner:
    """Plans one family for one node. What has not changed since the last plan is not made again."""

    def __init__(
        self, family: Family, node: str, *, report: bool, marked: bool = True, resolvers: Resolvers | None = None
    ) -> None:
        self.family = family
        self._node = node
        self._refusing = Refusing(report, marked)
        self._resolvers = resolvers
        self._sets = SetCache(family)
        self._isolation = Isolation(family, node)
        self._groups = Groups(self._refusing)
        self._encoded: dict[str, tuple[object, frozenset[bytes]]] = {}
        self._cluster = ClusterPlanner(family, node, refusing=self._refusing)

    def plan(self, index: Index, changes: Changes, generation: int = 1) -> tuple[Program, set[Tracked]]:
        """The program, and the selections and named ports that it depends on. `generation`: what the kernel has."""
        isolated = self._isolation.of(index, changes)
        used: set[Tracked] = set(isolated.selections)
        selected = self._cluster.select(index, used)
        left_out = isolated.closed | selected.left_out
        program = Program(self.family)
        isolating = any(isolated.by_pod.values()) or bool(selected.pods)
        self._write_fixed(program, index, generation, isolating=isolating)
        meanings = self._write_groups(program, isolated, selected, index, left_out)
        self._write_to_node(program, isolated.by_pod[Direction.EGRESS], selected, meanings, index)
        self._write_answers(program, selected, index)
        for name, one in self._sets.filled(meanings, index, changes.tracked).items():
            program.put(name, one.shape, one.elements)
            used.update(one.uses)
            if isinstance(one.meaning, DomainNames):
                program.names[layout.names_name(one.meaning)] = one.meaning
        return replace(program, left_out=tuple(sorted(left_out))), used

    def _write_fixed(self, program: Program, index: Index, generation: int, *, isolating: bool) -> None:
        """What does not depend on what the policies say. `isolating`: whether one selects any pod of this node."""
        if self.family is Family.IPV6:
            for name, elements in layout.icmp_elements().items():
                program.put(name, layout.ICMP_SHAPE, elements)
        known, addresses = self._sets.senders(index.runtimes.values())
        program.put(layout.SENDERS, layout.SENDERS_SHAPE, known)
        program.put(layout.SENDERS_ADDRESSES, layout.SENDERS_ADDRESSES_SHAPE, addresses)
        marked = isolating and self._refusing.marked
        program.chains.update(layout.base_chains(self.family, marked=marked))
        program.chains[layout.STRAY] = layout.stray_chain(self.family, isolating=isolating)
        if marked:
            program.chains.update(marks.chains(generation))

    def _write_groups(
        self, program: Program, isolated: Isolated, selected: Selected, index: Index, left_out: set[Name]
    ) -> dict[str, Meaning]:
        """Lead each pod that any policy selects to the chain of its group, and those to the policies' chains."""
        meanings: dict[str, Meaning] = {}
        own: dict[str, set[bytes]] = {layout.SELF: set(), cluster_layout.OWN: set()}
        jumps: dict[str, int] = {}
        for direction, by_pod in isolated.by_pod.items():
            lead: dict[bytes, str] = {}
            # By identity: to look at all of 20,000 policies for each pod takes longer than all else.
            names: dict[tuple[Tiers | None, int], str] = {}
            for pod in sorted({**by_pod, **selected.tiers[direction]}, key=lambda one: (one not in by_pod, one)):
                address = index.subject(pod, self.family)
                # Of two pods with one address (a status may be late, or wrong) one is enough: the kernel refuses both.
                if address is None or address.packed in lead:
                    continue
                policies = by_pod.get(pod, ())
                # None: no ClusterNetworkPolicy selects the pod, in neither direction.
                tiers = selected.tiers[direction].get(pod, Tiers()) if pod in selected.pods else None
                key = (tiers, id(policies))
                if key not in names:
                    jumps[pod.namespace] = jumps.get(pod.namespace, 0) + len(policies)
                    closed = jumps[pod.namespace] > MOST_JUMPS
                    left_out.update(one.policy.name for one in policies if closed)
                    names[key] = self._group(program, direction, policies, tiers, meanings, closed=closed)
                lead[address.packed] = names[key]
                if policies:
                    where = layout.SELF if tiers is None else cluster_layout.OWN
                    own[where].add(address.packed)
            elements = self._elements(layout.MAPS[direction], lead, _leading)
            program.put(layout.MAPS[direction], layout.MAP_SHAPE, elements)
        self._groups.forget()
        after_admin = own[cluster_layout.OWN]
        alone = self._elements(layout.SELF, own[layout.SELF] - after_admin, _to_itself)
        program.put(layout.SELF, layout.SELF_SHAPE, alone)
        if after_admin:
            elements = self._elements(cluster_layout.OWN, after_admin, _to_itself)
            program.put(cluster_layout.OWN, layout.SELF_SHAPE, elements)
        return meanings

    def _elements(self, name: str, given: T, encode: Callable[[T], Iterable[bytes]]) -> frozenset[bytes]:
        """The elements that stand for `given`: those of the last plan if it was the same then."""
        known = self._encoded.get(name)
        if known is None or known[0] != given:
            known = self._encoded[name] = given, frozenset(encode(given))
        return known[1]

    def _group(
        self,
        program: Program,
        direction: Direction,
        policies: Policies,
        tiers: Tiers | None,
        meanings: dict[str, Meaning],
        *,
        closed: bool,
    ) -> str:
        """Write the chains of a group. Returns the name of the first. `closed`: its policies allow nothing."""
        group = self._groups.of(direction, policies, closed=closed)
        program.chains.update(group.chains)
        meanings.update(group.meanings)
        name, rules = group.name, group.rules
        if tiers is not None:
            asked = tiers.asked(isolated=bool(policies))
            self._write_tiers(program, direction, asked, meanings)
            name = layout.group_name((cluster_layout.OWN, *[one.name for one in asked], *group.words), direction)
            rules = group_rules(name, asked, tuple(group.chains), group.isolated_by, refusing=self._refusing)
        program.chains[name] = rules
        program.groups[name] = group.isolated_by
        return name

    def _write_to_node(
        self,
        program: Program,
        isolated: dict[Name, Policies],
        selected: Selected,
        meanings: dict[str, Meaning],
        index: Index,
    ) -> None:
        """What pods send to their own node, which NetworkPolicies allow and ClusterNetworkPolicies may not."""
        lead: dict[bytes, str] = {}
        for pod, tiers in sorted(selected.tiers[Direction.EGRESS].items()):
            address = index.subject(pod, self.family)
            asked = tiers.asked(isolated=pod in isolated, to_node=True)
            if address is None or address.packed in lead or not asked:
                continue
            group = cluster_layout.to_node_name([one.name for one in asked])
            if group not in program.chains:
                self._write_tiers(program, Direction.EGRESS, asked, meanings)
                program.chains[group] = group_rules(group, asked, (), (), refusing=self._refusing)
                program.groups[group] = ()
            lead[address.packed] = group
        if lead:
            program.chains[cluster_layout.TO_NODE] = cluster_layout.base_chain(self.family)
            elements = self._elements(cluster_layout.TO_NODE, lead, _leading)
            program.put(cluster_layout.TO_NODE, layout.MAP_SHAPE, elements)

    def _write_answers(self, program: Program, selected: Selected, index: Index) -> None:
        """Whose DNS answers are read, and from which servers."""
        found = [index.pods[pod] for pod, tiers in selected.tiers[Direction.EGRESS].items() if tiers.named]
        asking = [address for one in found if (address := one.address(self.family)) is not None]
        if asking and self._resolvers is not None:
            program.put(cluster_layout.ASKING, layout.PEER_SHAPE, frozenset(wire.plain(one.packed) for one in asking))
            servers = cluster_layout.servers(self._resolvers, self.family)
            program.put(cluster_layout.SERVERS, cluster_layout.SERVERS_SHAPE, servers)
            limited = self._refusing.reports
            if limited:
                program.put(cluster_layout.OFTEN, cluster_layout.OFTEN_SHAPE, frozenset())
            program.chains[cluster_layout.ANSWERS] = cluster_layout.answers_chain(self._resolvers, limited=limited)

    @staticmethod
    def _write_tiers(
        program: Program, direction: Direction, tiers: tuple[CompiledTier, ...], meanings: dict[str, Meaning]
    ) -> None:
        for tier in tiers:
            if tier.name in program.chains:
                continue
            program.chains[tier.name] = tier.rules
            if tier.denial:
                program.denials[tier.name] = tier.denial
            for one in tier.policies:
                program.chains.update(one.chains[direction])
                program.denials.update(one.denials)
                meanings |= one.sets[direction]


def _leading(lead: dict[bytes, str]) -> Iterator[bytes]:
    return (wire.verdict(packed, group) for packed, group in lead.items())


def _to_itself(addresses: set[bytes]) -> Iterator[bytes]:
    return (wire.plain(packed + packed) for packed in addresses)
