"""One NetworkPolicy as chains: its rules, and the sets that they use. It depends on no pod. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.nft.actions import Counter, Verdict
from nodelib.nft.rules import NftRule, Statement, rule
from policy.model import Direction, Policy
from policy.plan import layout
from policy.plan.entries import POLICY_COST, Entry, Meaning, OfPods, entry


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A policy in one family. `chains`: the name of its chain in each direction in which it isolates, and its rules.

    Compared by identity: its rules are many.

    `sets`: what these use, by name; `of_pods`: those with pods as their elements. `cost`: see `entries.py`, without
    that of pods (`prices.py`); a policy that costs more than it may is `closed`: it isolates its pods and allows
    nothing.
    """

    policy: Policy
    names: dict[Direction, str]
    chains: dict[str, tuple[NftRule, ...]]
    sets: dict[str, Meaning] = field(default_factory=dict)
    of_pods: frozenset[OfPods] = frozenset()
    cost: int = 0
    closed: bool = False


def compiled(policy: Policy, family: Family, most: int) -> Compiled:
    """The policy's chains in one family, closed if they cost more than `most`."""
    names = {direction: layout.policy_chain_name(policy.name, direction) for direction in policy.rules}
    entries = {direction: [entry(one, family) for one in given] for direction, given in policy.rules.items()}
    cost = POLICY_COST + sum(one.cost for found in entries.values() for one in found)
    of_pods = frozenset(one for found in entries.values() for given in found for one in given.of_pods)
    if cost > most:
        return Compiled(policy, names, dict.fromkeys(names.values(), ()), {}, of_pods, cost, closed=True)
    sets: dict[str, Meaning] = {}
    chains = {names[direction]: _rules(policy, found, direction, sets) for direction, found in entries.items()}
    return Compiled(policy, names, chains, sets, of_pods, cost)


def _rules(
    policy: Policy, entries: Sequence[Entry], direction: Direction, sets: dict[str, Meaning]
) -> tuple[NftRule, ...]:
    written: dict[tuple[Statement, ...], NftRule] = {}
    for number, one in enumerate(entries):
        label = layout.comment(f"{policy.name} {direction.lower()}[{number}]")
        for statements in one.alternatives(direction, sets):
            written.setdefault(statements, rule(*statements, Counter(), Verdict("accept"), comment=label))
    return tuple(written.values())
