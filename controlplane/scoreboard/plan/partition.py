"""Puts every spec into one part, or behind the one rule that says why it cannot run here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from controlplane.scoreboard.model import Group, Match, Part, Partition, Rule, Spec
from controlplane.scoreboard.plan.groups import GROUPS
from controlplane.scoreboard.plan.rules import RULES

LARGEST = 60  # specs of a part: what a run that is killed has to repeat


def matches(match: Match, spec: Spec) -> bool:
    """Whether the spec is one of those."""
    if match.program is not None and spec.program is not match.program:
        return False
    if not match.tags and not match.text:
        return True
    if match.text and re.search(match.text, spec.name):
        return True
    return any(fnmatchcase(tag, pattern) for tag in spec.tags for pattern in match.tags)


def place(spec: Spec, abilities: frozenset[str]) -> Rule | Group:
    """The first rule that keeps it out, otherwise the first group that takes it; the last groups take all."""
    for rule in RULES:
        if rule.unless not in abilities and matches(rule.match, spec):
            return rule
    return next(group for group in GROUPS if matches(group.match, spec))


def partition(specs: Iterable[Spec], abilities: frozenset[str]) -> Partition:
    """All specs, in the order of rules and groups; the same specs always give the same parts."""
    kept_out: dict[str, list[Spec]] = {rule.reason: [] for rule in RULES}
    taken: dict[str, list[Spec]] = {group.name: [] for group in GROUPS}
    for spec in sorted(set(specs), key=lambda one: (one.name, one.program)):
        where = place(spec, abilities)
        if isinstance(where, Rule):
            kept_out[where.reason].append(spec)
        else:
            taken[where.name].append(spec)
    parts = [part for group in GROUPS for part in _parts(group, taken[group.name])]
    return Partition(
        tuple(parts), tuple((rule, tuple(kept_out[rule.reason])) for rule in RULES if kept_out[rule.reason])
    )


def _parts(group: Group, specs: list[Spec]) -> list[Part]:
    """Parts of about the same size, none larger than LARGEST; [Conformance] has parts of its own, which run first."""
    first = [spec for spec in specs if "Conformance" in spec.tags]
    rest = [spec for spec in specs if "Conformance" not in spec.tags]
    return [*_slices(f"{group.name}-conformance", group, first), *_slices(group.name, group, rest)]


def _slices(name: str, group: Group, specs: list[Spec]) -> list[Part]:
    if not specs:
        return []
    count = -(-len(specs) // LARGEST)
    size = -(-len(specs) // count)
    ranges = (specs[first : first + size] for first in range(0, len(specs), size))
    return [Part(f"{name}-{number:02}", group, tuple(one)) for number, one in enumerate(ranges, 1)]
