"""The values that ClusterNetworkPolicies are made of, frozen (policy.networking.k8s.io/v1alpha2, API of v0.2.0)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.model import Direction, PolicyRule, Selection


class Tier(StrEnum):
    """Admin policies decide before NetworkPolicies, Baseline policies where no NetworkPolicy isolates the pod."""

    ADMIN = "Admin"
    BASELINE = "Baseline"


class Action(StrEnum):
    """What becomes of the traffic that a rule matches. Pass: the rest of the tier does not see it."""

    ACCEPT = "Accept"
    DENY = "Deny"
    PASS = "Pass"


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """One entry of ingress or egress. `match` without peers (an empty tuple) fits nothing, with None everything."""

    action: Action
    match: PolicyRule
    name: str = ""


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """A ClusterNetworkPolicy. `rules`: of each direction that has any, in their order."""

    name: str
    tier: Tier
    priority: int
    subject: Selection
    rules: Mapping[Direction, tuple[ClusterRule, ...]] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, str]:
        """Lower ones are checked first. Equal priorities are in the order of the names, so on every node the same."""
        return self.priority, self.name
