"""Stand-ins around the policy enforcer."""

from __future__ import annotations

from collections.abc import Mapping

from nodelib.firewall.objects import Family
from policy.plan.program import Program


class Silent:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.syncs = 0

    def synced(self, seconds: float, programs: Mapping[Family, Program]) -> None:
        self.syncs += 1

    def failed(self, error: Exception) -> None:
        self.errors.append(error)
