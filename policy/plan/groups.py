"""Which ClusterNetworkPolicies select which pods of this node, and the chains of the groups of these pods.

Pure, but for the cache of `ClusterPlanner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft.actions import Verdict
from nodelib.nft.matches import InSet
from nodelib.nft.rules import NftRule, rule
from policy.cluster_model import Tier
from policy.model import Direction, Name, Tracked
from policy.plan import cluster_layout, layout
from policy.plan.cluster_compile import CompiledCluster, CompiledTier, closed_tier, compiled, compiled_tier
from policy.plan.entries import MOST, MOST_JUMPS
from policy.plan.index import Index
from policy.plan.layout import Refusing

_Key = tuple[Tier, Direction, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of a pod in one direction, None for one that has no policy for it."""

    admin: CompiledTier | None = None
    baseline: CompiledTier | None = None

    def asked(self, *, isolated: bool, to_node: bool = False) -> tuple[CompiledTier, ...]:
        """Those that count, in their order, for a pod that NetworkPolicies do or do not isolate."""
        found = (self.admin, None if isolated else self.baseline)
        return tuple(one for one in found if one is not None and (one.to_node or not to_node))

    @property
    def named(self) -> bool:
        """Whether a rule has domain names."""
        return any(one is not None and one.named for one in (self.admin, self.baseline))


@dataclass(frozen=True, slots=True)
class Selected:
    """The tiers of each pod that any ClusterNetworkPolicy selects. `pods`: those of either direction.

    `left_out`: the policies that are closed, because they are too many or too large.
    """

    tiers: dict[Direction, dict[Name, Tiers]] = field(default_factory=lambda: {one: {} for one in Direction})
    pods: set[Name] = field(default_factory=set)
    left_out: set[Name] = field(default_factory=set)


class ClusterPlanner:
    """Compiles policies for one family of one node. What has not changed since the last plan is not made again."""

    def __init__(self, family: Family, node: str, *, refusing: Refusing) -> None:
        self._family, self._node, self._refusing = family, node, refusing
        self._compiled: dict[str, CompiledCluster] = {}

    def select(self, index: Index, used: set[Tracked]) -> Selected:
        """Who is selected by what. The selections that this depends on are added to `used`."""
        lists: dict[Tier, dict[Direction, dict[Name, list[CompiledCluster]]]] = {
            tier: {direction: {} for direction in Direction} for tier in Tier
        }
        for one in self._policies(index):
            used.add(one.policy.subject)
            for name in index.members(one.policy.subject):
                if index.pods[name].node == self._node:
                    for direction in one.steps:
                        lists[one.policy.tier][direction].setdefault(name, []).append(one)
        tiers = _TierChains(refusing=self._refusing)
        selected = Selected(left_out={Name("", one.policy.name) for one in self._compiled.values() if one.closed})
        for direction, by_pod in selected.tiers.items():
            admin, baseline = (lists[tier][direction] for tier in Tier)
            for name in sorted({**admin, **baseline}):  # the same ones have no room whenever it is asked
                by_pod[name] = Tiers(
                    tiers.of(Tier.ADMIN, direction, admin.get(name, ())),
                    tiers.of(Tier.BASELINE, direction, baseline.get(name, ())),
                )
                selected.pods.add(name)
        selected.left_out.update(tiers.left_out)
        return selected

    def _policies(self, index: Index) -> list[CompiledCluster]:
        """Every policy, in the order in which the policies of a tier are checked."""
        found: dict[str, CompiledCluster] = {}
        spent = 0
        for policy in sorted(index.cluster_policies.values(), key=lambda one: (one.tier is Tier.BASELINE, *one.order)):
            known, room = self._compiled.get(policy.name), MOST - spent
            if known is None or known.policy is not policy or known.closed is not (known.cost > room):
                known = compiled(policy, self._family, room, refusing=self._refusing)
            found[policy.name] = known
            spent += 0 if known.closed else known.cost
        self._compiled = found
        return list(found.values())


class _TierChains:
    """The chains of the tiers, made once for all pods that the same policies select."""

    def __init__(self, *, refusing: Refusing) -> None:
        self._refusing = refusing
        self._made: dict[_Key, CompiledTier] = {}
        self._rules = dict.fromkeys(Tier, 0)
        self.left_out: set[Name] = set()

    def of(self, tier: Tier, direction: Direction, policies: Sequence[CompiledCluster]) -> CompiledTier | None:
        if not policies:
            return None
        key = (tier, direction, tuple([one.policy.name for one in policies]))
        found = self._made.get(key)
        if found is None:
            self._rules[tier] += sum(len(one.steps[direction]) for one in policies)
            if self._rules[tier] > MOST_JUMPS:
                self.left_out |= {Name("", one.policy.name) for one in policies}
                found = closed_tier(tier, direction, policies, refusing=self._refusing)
            else:
                found = compiled_tier(tier, direction, policies)
            self._made[key] = found
        return found


def group_rules(
    name: str, asked: Sequence[CompiledTier], chains: Sequence[str], isolated_by: Sequence[Name], *, refusing: Refusing
) -> tuple[NftRule, ...]:
    """The rules of a group that has tiers. `chains`: those of the NetworkPolicies that isolate it."""
    jumps = [rule(Verdict("jump", one.name)) for one in asked]
    if isolated_by:
        # Baseline policies are not asked about an isolated pod, so all of the jumps come first.
        own = rule(
            InSet((layout.CLIENT, layout.SERVER), cluster_layout.OWN),
            Verdict("accept"),
            comment="no NetworkPolicy cuts a pod off from itself",
        )
        return (*jumps, own, *layout.group_chain(chains, name, isolated_by, refusing=refusing))
    if any(one.denies for one in asked):
        return (*jumps, *cluster_layout.closing(refusing=refusing, name=name))
    return tuple(jumps)
