"""Which NetworkPolicies isolate which pods of this node, and the chains of the groups of these pods.

Pure, but for the caches of `Isolation` and `Groups`. NetworkPolicies select pods of their own namespace, so that what
changes in one namespace leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodelib.firewall.objects import Family
from nodelib.nft.rules import NftRule
from policy.model import Direction, Name, Policy, Selection
from policy.plan import layout
from policy.plan.compile import Compiled, compiled
from policy.plan.entries import MOST, Meaning, OfPods
from policy.plan.index import Changes, Index
from policy.plan.layout import Refusing
from policy.plan.prices import price

Policies = tuple[Compiled, ...]
_MOST_NAMED = 64  # policies that are named of a group without room for them


@dataclass(frozen=True, slots=True)
class Isolated:
    """The policies of each pod that any isolates, in the order of their names.

    `selections`: what that depends on. `closed`: the policies that there is no room for.
    """

    by_pod: dict[Direction, dict[Name, Policies]]
    selections: set[Selection]
    closed: set[Name]


@dataclass(frozen=True, slots=True, eq=False)
class _Space:
    """One namespace. `pods`: those of this node that each selection selects; `closed`: as in `Isolated`."""

    compiled: dict[Name, Compiled]
    pods: dict[Selection, tuple[Name, ...]]
    by_pod: dict[Direction, dict[Name, Policies]]
    closed: tuple[Name, ...] = ()


class Isolation:
    """For one family of one node. Only what has changed since the last plan is made again."""

    def __init__(self, family: Family, node: str) -> None:
        self._family, self._node = family, node
        self._spaces: dict[str, _Space] = {}
        self._size = 0

    def of(self, index: Index, changes: Changes) -> Isolated:
        spaces: dict[str, _Space] = {}
        grown, self._size = index.size != self._size, index.size
        for namespace, policies in index.policies_of.items():
            known = self._spaces.get(namespace)
            if known is None or grown or namespace in changes.namespaces or not changes.tracked.isdisjoint(known.pods):
                known = self._made(policies, index, changes, known or _Space({}, {}, {}))
            spaces[namespace] = known
        self._spaces = spaces
        isolated = Isolated({one: {} for one in Direction}, set(), set())
        for space in spaces.values():
            for direction, by_pod in space.by_pod.items():
                isolated.by_pod[direction].update(by_pod)
            isolated.selections.update(space.pods)
            isolated.closed.update(space.closed)
        return isolated

    def _made(self, policies: Mapping[Name, Policy], index: Index, changes: Changes, last: _Space) -> _Space:
        pods = self._pods_here(policies, index, changes, last)
        made = self._compiled(policies, pods, index, last)
        closed = tuple([name for name, one in made.items() if one.closed])
        return _Space(made, pods, _by_pod(made, pods, last), closed)

    def _pods_here(
        self, policies: Mapping[Name, Policy], index: Index, changes: Changes, last: _Space
    ) -> dict[Selection, tuple[Name, ...]]:
        """The pods of this node that each selection of the policies selects."""
        pods: dict[Selection, tuple[Name, ...]] = {}
        for selection in dict.fromkeys(policies[name].selection for name in sorted(policies)):
            here = last.pods.get(selection)
            if here is None or selection in changes.tracked:
                here = tuple([pod for pod in index.members(selection) if index.pods[pod].node == self._node])
            pods[selection] = here
        return pods

    def _compiled(
        self, policies: Mapping[Name, Policy], pods: Mapping[Selection, tuple[Name, ...]], index: Index, last: _Space
    ) -> dict[Name, Compiled]:
        """Every policy, in the order of the names."""
        found: dict[Name, Compiled] = {}
        paid: set[OfPods] = set()  # sets that the policies of a namespace share
        spent = 0
        for name in sorted(policies):
            policy, known, room = policies[name], last.compiled.get(name), MOST - spent
            if known is None or known.policy is not policy:
                known = compiled(policy, self._family, room)
            cost = known.cost
            # No pod of this node needs the sets of the others.
            parties = known.of_pods - paid if pods[policy.selection] else frozenset()
            if cost <= room:
                cost += price(parties, index, room - cost)
            # Only then: those that are closed because of the pods of the cluster would be made again in each plan.
            if known.closed is not (cost > room):
                known = compiled(policy, self._family, room if cost <= room else -1)
            found[name] = known
            if not known.closed:
                spent += cost
                paid |= parties
        return found


def _by_pod(
    made: Mapping[Name, Compiled], pods: Mapping[Selection, tuple[Name, ...]], last: _Space
) -> dict[Direction, dict[Name, Policies]]:
    """The policies of each pod. Of the pods for which nothing has changed, those of the last plan; the others are made
    once for all that the same selections select: a namespace may have 20,000 policies, and a hundred pods here.
    """
    touched = _touched(made, pods, last)
    alike = _alike(touched, pods)
    numbers = {selection: number for number, selection in enumerate(pods)}
    numbered = [(one, numbers[one.policy.selection]) for one in made.values()] if alike else []
    found: dict[Direction, dict[Name, Policies]] = {}
    for direction in Direction:
        by_pod = {pod: policies for pod, policies in last.by_pod.get(direction, {}).items() if pod not in touched}
        known = {policies: policies for policies in {id(one): one for one in by_pod.values()}.values()}
        for selected, names in alike.items():
            within = frozenset(selected)
            policies = tuple([one for one, number in numbered if number in within and direction in one.names])
            if policies:
                # One tuple for all pods that the same policies isolate.
                by_pod.update(dict.fromkeys(names, known.setdefault(policies, policies)))
        found[direction] = by_pod
    return found


def _alike(touched: set[Name], pods: Mapping[Selection, tuple[Name, ...]]) -> dict[tuple[int, ...], list[Name]]:
    """The pods that the same selections select, by the numbers of these."""
    selected: dict[Name, list[int]] = {}
    for number, here in enumerate(pods.values() if touched else ()):
        for pod in here:
            if pod in touched:
                selected.setdefault(pod, []).append(number)
    alike: dict[tuple[int, ...], list[Name]] = {}
    for pod, found in selected.items():
        alike.setdefault(tuple(found), []).append(pod)
    return alike


def _touched(made: Mapping[Name, Compiled], pods: Mapping[Selection, tuple[Name, ...]], last: _Space) -> set[Name]:
    """The pods that other policies isolate than before, or other ones of the same names."""
    found: set[Name] = set()
    for selection in pods.keys() | last.pods.keys():
        before, now = last.pods.get(selection, ()), pods.get(selection, ())
        if before is not now:
            found.update(set(before) ^ set(now))
    for name in made.keys() | last.compiled.keys():
        old, new = last.compiled.get(name), made.get(name)
        if old is not new:
            for one in (old, new):
                if one is not None:
                    found.update((last.pods if one is old else pods).get(one.policy.selection, ()))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What policies are for the pods that they and no others isolate in one direction.

    `name`, `rules`: its chain where no ClusterNetworkPolicy selects the pods. `chains`, `meanings`: those of the
    policies, and the sets that they use. `words`: what makes the group another one than all others.
    """

    words: tuple[str, ...]
    name: str
    rules: tuple[NftRule, ...]
    isolated_by: tuple[Name, ...]
    chains: dict[str, tuple[NftRule, ...]]
    meanings: dict[str, Meaning]


class Groups:
    """Makes groups of one family. Those of the last plan are not made again as long as their policies are the same."""

    def __init__(self, refusing: Refusing) -> None:
        self._refusing = refusing
        self._last: dict[tuple[object, ...], Group] = {}
        self._now: dict[tuple[object, ...], Group] = {}

    def of(self, direction: Direction, policies: Policies, *, closed: bool) -> Group:
        """The group of these policies. `closed`: they allow nothing."""
        key = (direction, closed, policies)
        group = self._last.get(key) or self._made(direction, policies, closed=closed)
        self._now[key] = group
        return group

    def forget(self) -> None:
        """The plan has asked for all of its groups: keep no others."""
        self._last, self._now = self._now, {}

    def _made(self, direction: Direction, policies: Policies, *, closed: bool) -> Group:
        names = tuple([one.names[direction] for one in policies])
        words = ("closed", *names) if closed else names
        name = layout.group_name(words, direction)
        isolated_by = tuple([one.policy.name for one in policies])
        chains: dict[str, tuple[NftRule, ...]] = {}
        meanings: dict[str, Meaning] = {}
        if closed:
            isolated_by = isolated_by[:_MOST_NAMED]
        else:
            for one in policies:
                chains[one.names[direction]] = one.chains[one.names[direction]]
                meanings |= one.sets
        rules = layout.group_chain(chains, name, isolated_by, refusing=self._refusing)
        return Group(words, name, rules, isolated_by, chains, meanings)
