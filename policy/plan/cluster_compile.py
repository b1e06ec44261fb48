"""One ClusterNetworkPolicy as chains, and a tier of several as one chain. It depends on no pod. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft.actions import Counter, Verdict
from nodelib.nft.rules import NftRule, Statement, rule
from policy.cluster_model import Action, ClusterPolicy, ClusterRule, Tier
from policy.model import Direction, DomainNames, PolicyRule, Selection
from policy.plan import cluster_layout
from policy.plan.entries import POLICY_COST, Entry, Meaning, entry
from policy.plan.layout import Refusing

_CLOSED = (ClusterRule(Action.DENY, PolicyRule()),)


@dataclass(slots=True)
class CompiledCluster:
    """A policy in one family.

    `steps`: for each direction what a tier's chain has of it: jumps to its chains, and the rules that pass. `sets`:
    what its rules use, by name. `denies`, `to_node`: whether a rule of the direction denies anything, and whether one
    may fit the address of a node. `denials`: of each chain that drops, the rule in words. `cost`: see `entries.py`; a
    policy that costs more than it may is `closed`, as one whose rules are not understood: instead of its rules it has,
    in each direction in which one of them denies or passes anything, one that denies everything.
    """

    policy: ClusterPolicy
    steps: dict[Direction, tuple[NftRule, ...]] = field(default_factory=dict)
    chains: dict[Direction, dict[str, tuple[NftRule, ...]]] = field(default_factory=dict)
    sets: dict[Direction, dict[str, Meaning]] = field(default_factory=dict)
    denies: dict[Direction, bool] = field(default_factory=dict)
    to_node: bool = False
    denials: dict[str, str] = field(default_factory=dict)
    cost: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CompiledTier:
    """The chain of the policies of one tier that select the same pods. Compared by identity: its rules are many.

    `denial`: the words of a chain that refuses everything by itself, "" for any other. `named`: whether a rule has
    domain names.
    """

    name: str
    rules: tuple[NftRule, ...]
    policies: tuple[CompiledCluster, ...]
    denies: bool
    to_node: bool
    denial: str = ""
    named: bool = False


def compiled(policy: ClusterPolicy, family: Family, most: int, *, refusing: Refusing) -> CompiledCluster:
    """The policy's chains in one family, closed if they cost more than `most`."""
    rules = policy.rules
    entries = {direction: [entry(one.match, family) for one in given] for direction, given in rules.items()}
    cost = POLICY_COST + sum(POLICY_COST + one.cost for found in entries.values() for one in found)
    if cost > most:
        rules = {one: _CLOSED if _narrows(given) else () for one, given in rules.items()}
        entries = {direction: [entry(one.match, family) for one in given] for direction, given in rules.items()}
    made = CompiledCluster(policy, cost=cost, closed=cost > most)
    for direction, given in rules.items():
        made.sets[direction] = {}
        made.chains[direction] = {}
        made.denies[direction] = any(one.action is Action.DENY for one in given)
        made.steps[direction] = _steps(made, direction, given, entries[direction], refusing=refusing)
    made.to_node = any(_may_be_node(one) for one in rules.get(Direction.EGRESS, ()))
    return made


def compiled_tier(tier: Tier, direction: Direction, policies: Sequence[CompiledCluster]) -> CompiledTier:
    """The chain of these policies, which are in the order of their priorities."""
    return CompiledTier(
        cluster_layout.tier_name(tier, direction, [one.policy.name for one in policies]),
        tuple([step for one in policies for step in one.steps[direction]]),
        tuple(policies),
        any(one.denies[direction] for one in policies),
        direction is Direction.EGRESS and any(one.to_node for one in policies),
        named=any(isinstance(found, DomainNames) for one in policies for found in one.sets[direction].values()),
    )


def closed_tier(
    tier: Tier, direction: Direction, policies: Sequence[CompiledCluster], *, refusing: Refusing
) -> CompiledTier:
    """What stands for any tier of these that there is no room for: it refuses everything, or decides nothing."""
    if not any(_narrows(one.policy.rules.get(direction, ())) for one in policies):
        return CompiledTier(cluster_layout.tier_name(tier, direction, ()), (), (), denies=False, to_node=False)
    name = cluster_layout.closed_name(tier, direction)
    note = f"{tier} {direction.lower()} too many policies for the pods of a node"
    to_node = direction is Direction.EGRESS and any(one.to_node for one in policies)
    return CompiledTier(name, cluster_layout.denial(name, note, refusing=refusing), (), True, to_node, note)


def _steps(
    made: CompiledCluster,
    direction: Direction,
    rules: Sequence[ClusterRule],
    entries: Sequence[Entry],
    *,
    refusing: Refusing,
) -> tuple[NftRule, ...]:
    steps: list[NftRule] = []
    segment: list[NftRule] = []
    for number, (one, found) in enumerate(zip(rules, entries, strict=True)):
        written = _rules(made, direction, number, one, found, refusing=refusing)
        if one.action is not Action.PASS:
            segment += written
        elif written:
            _close(made, direction, segment, steps)
            segment = []
            steps += written
    _close(made, direction, segment, steps)
    return tuple(steps)


def _close(made: CompiledCluster, direction: Direction, segment: list[NftRule], steps: list[NftRule]) -> None:
    """Put the rules collected so far into a chain, and a jump to it into the tier's."""
    if segment:
        name = cluster_layout.segment_name(made.policy.name, direction, len(steps))
        made.chains[direction][name] = tuple(segment)
        steps.append(rule(Verdict("jump", name)))


def _rules(
    made: CompiledCluster, direction: Direction, number: int, of: ClusterRule, found: Entry, *, refusing: Refusing
) -> list[NftRule]:
    fits = dict.fromkeys(found.alternatives(direction, made.sets[direction]))
    if not fits:
        return []
    note = cluster_layout.label(made.policy, direction, number, of.name)
    end: tuple[Statement, ...] = (Counter(), Verdict("return" if of.action is Action.PASS else "accept"))
    if of.action is Action.DENY:
        name = cluster_layout.denial_name(made.policy.name, direction, number)
        made.chains[direction][name] = cluster_layout.denial(name, note, refusing=refusing)
        made.denials[name] = note
        end = (Verdict("goto", name),)
    return [rule(*one, *end, comment=note) for one in fits]


def _narrows(rules: Sequence[ClusterRule]) -> bool:
    return any(one.action is not Action.ACCEPT for one in rules)


def _may_be_node(of: ClusterRule) -> bool:
    peers = of.match.peers
    return peers is None or any(not isinstance(one, Selection) for one in peers)
