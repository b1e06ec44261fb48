"""One ClusterNetworkPolicy as chains, and a tier of several as one chain. It depends on no pod. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft.rules import Count, NftRule, Statement, Verdict, rule
from policy.cluster_model import Action, ClusterPolicy, ClusterRule, Tier
from policy.model import Direction, Selection
from policy.plan import cluster_layout
from policy.plan.compile import Meaning, alternatives


@dataclass(slots=True)
class CompiledCluster:
    """A policy in one family.

    `steps`: for each direction what a tier's chain has of it: jumps to its chains, and the rules that pass. `sets`:
    what its rules use, by name. `denies`, `to_node`: whether a rule of the direction denies anything, and whether one
    may fit the address of a node. `denials`: of each chain that drops, the rule in words.
    """

    policy: ClusterPolicy
    steps: dict[Direction, tuple[NftRule, ...]] = field(default_factory=dict)
    chains: dict[Direction, dict[str, tuple[NftRule, ...]]] = field(default_factory=dict)
    sets: dict[Direction, dict[str, Meaning]] = field(default_factory=dict)
    denies: dict[Direction, bool] = field(default_factory=dict)
    to_node: bool = False
    denials: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledTier:
    """The chain of the policies of one tier that select the same pods. Compared by identity: its rules are many."""

    name: str
    rules: tuple[NftRule, ...]
    policies: tuple[CompiledCluster, ...]
    denies: bool
    to_node: bool


def compiled(policy: ClusterPolicy, family: Family, *, report: bool) -> CompiledCluster:
    """The policy's chains in one family."""
    made = CompiledCluster(policy)
    for direction, entries in policy.rules.items():
        made.sets[direction] = {}
        made.chains[direction] = {}
        made.denies[direction] = any(one.action is Action.DENY for one in entries)
        made.steps[direction] = _steps(made, direction, entries, family, report=report)
    made.to_node = any(_may_be_node(one) for one in policy.rules.get(Direction.EGRESS, ()))
    return made


def compiled_tier(tier: Tier, direction: Direction, policies: Sequence[CompiledCluster]) -> CompiledTier:
    """The chain of these policies, which are in the order of their priorities."""
    return CompiledTier(
        cluster_layout.tier_name(tier, direction, [one.policy.name for one in policies]),
        tuple([step for one in policies for step in one.steps[direction]]),
        tuple(policies),
        any(one.denies[direction] for one in policies),
        direction is Direction.EGRESS and any(one.to_node for one in policies),
    )


def _steps(
    made: CompiledCluster, direction: Direction, entries: Sequence[ClusterRule], family: Family, *, report: bool
) -> tuple[NftRule, ...]:
    steps: list[NftRule] = []
    segment: list[NftRule] = []
    for number, entry in enumerate(entries):
        written = _rules(made, direction, number, family, report=report)
        if entry.action is not Action.PASS:
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


def _rules(made: CompiledCluster, direction: Direction, number: int, family: Family, *, report: bool) -> list[NftRule]:
    entry = made.policy.rules[direction][number]
    fits = dict.fromkeys(alternatives(entry.match, direction, family, made.sets[direction]))
    if not fits:
        return []
    note = cluster_layout.label(made.policy, direction, number, entry.name)
    end: tuple[Statement, ...] = (Count(), Verdict("return" if entry.action is Action.PASS else "accept"))
    if entry.action is Action.DENY:
        name = cluster_layout.denial_name(made.policy.name, direction, number)
        made.chains[direction][name] = cluster_layout.denial(name, note, report=report)
        made.denials[name] = note
        end = (Verdict("goto", name),)
    return [rule(*one, *end, comment=note) for one in fits]


def _may_be_node(entry: ClusterRule) -> bool:
    peers = entry.match.peers
    return peers is None or any(not isinstance(one, Selection) for one in peers)
