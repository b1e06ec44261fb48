"""Stand-ins around the policy enforcer."""

from __future__ import annotations

from collections.abc import Mapping

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.enforcer import Enforcer
from policy.plan import parse
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


class Watched:
    """Tells `enforcer` what watches would."""

    enforcer: Enforcer

    def pods(self, *objects: Json) -> None:
        for obj in objects:
            one = parse.pod(obj)
            self.enforcer.set_pod(one.name, one)

    def policies(self, *objects: Json) -> None:
        for obj in objects:
            one, _ = parse.policy(obj)
            self.enforcer.set_policy(one.name, one)
