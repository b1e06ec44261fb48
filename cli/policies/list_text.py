"""What `policy list` says: each policy in the order in which they decide, and which pods it selects now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.policies.objects import Objects
from nodelib.json_values import Json
from nodelib.text import first_of, one_line
from policy.cluster_model import Tier
from policy.model import Direction, Name

HEADS = ("POLICY", "TIER", "DIRECTIONS", "PODS")
NONE = "selects no pod"
_CELL = 200  # bytes
_PODS = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """One policy. `tier`: with the priority, of a ClusterNetworkPolicy; "" for a NetworkPolicy."""

    policy: str
    tier: str
    directions: tuple[str, ...]
    pods: tuple[Name, ...]


def listings(objects: Objects, namespace: str = "") -> list[Listing]:
    """`namespace`: only its NetworkPolicies; ClusterNetworkPolicies are of all."""
    own = (one for one in objects.policies if namespace in ("", one.name.namespace))
    between = [
        Listing(str(one.name), "", _directions(one.rules), objects.selected(one.selection))
        for one in sorted(own, key=lambda one: one.name)
    ]
    return [*_tier(objects, Tier.ADMIN), *between, *_tier(objects, Tier.BASELINE)]


def _tier(objects: Objects, tier: Tier) -> Iterator[Listing]:
    for one in sorted(objects.cluster, key=lambda one: one.order):
        if one.tier is tier:
            words = f"{tier} {one.priority}"
            yield Listing(one.name, words, _directions(one.rules), objects.selected(one.subject))


def _directions(rules: Mapping[Direction, object]) -> tuple[str, ...]:
    return tuple(one.lower() for one in Direction if one in rules)


def row(one: Listing) -> tuple[str, ...]:
    cells = (
        one.policy,
        one.tier or "-",
        ", ".join(one.directions) or "no rules",
        first_of(one.pods, _PODS) or NONE,
    )
    return tuple(one_line(cell, _CELL) for cell in cells)


def document(every: Sequence[Listing], notes: Sequence[str]) -> Json:
    """For scripts."""
    return {
        "policies": [
            {
                "policy": one.policy,
                "tier": one.tier,
                "directions": list(one.directions),
                "pods": list(map(str, one.pods)),
            }
            for one in every
        ],
        "notes": list(notes),
    }
