"""Health of the proxy and of the node, for /healthz and /livez (upstream pkg/proxy/healthcheck/proxy_health.go).

A family is unhealthy when a change has been waiting for longer than `timeout` without a successful sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.kube.times import format_micro
from proxy.model import NodeFacts


@dataclass(slots=True)
class Health:
    """`timeout` is in seconds; all times are steady seconds (nodelib/clock.py) and come from the caller."""

    timeout: float
    node: Callable[[], NodeFacts]
    _updated: dict[Family, float] = field(default_factory=dict)
    _waiting: dict[Family, float] = field(default_factory=dict)

    def updated(self, family: Family, now: float) -> None:
        """A sync of `family` succeeded, or the family has just been started."""
        self._waiting.pop(family, None)
        self._updated[family] = now

    def queued(self, family: Family, now: float) -> None:
        """A change of `family` is waiting for a sync."""
        self._waiting.setdefault(family, now)

    def family_healthy(self, family: Family, now: float) -> bool:
        since = self._waiting.get(family)
        return since is None or now - since < self.timeout

    def healthy(self, now: float) -> bool:
        return all(self.family_healthy(family, now) for family in self._updated)

    def node_eligible(self) -> bool:
        """Whether load balancers should send traffic here: the node is neither deleted nor about to be."""
        node = self.node()
        return node.exists and not node.deleting and not node.to_be_deleted

    def report(self, now: float, *, with_node: bool, ahead: float = 0.0) -> tuple[bool, Json]:
        """(healthy, JSON body) of /healthz; without the node, of /livez.

        `ahead`: how far the wall clock, whose times are shown, is ahead of `now`.
        """
        healthy = syncing = self.healthy(now)
        body: Json = {}
        if with_node:
            body["nodeEligible"] = self.node_eligible()
            healthy = syncing and body["nodeEligible"]
        newest = max(self._updated.values(), default=0.0)
        body = {
            "lastUpdated": format_micro((now if healthy else newest) + ahead),
            "currentTime": format_micro(now + ahead),
            **body,
            "healthy": syncing,
            "status": {
                family.value: {"lastUpdated": format_micro(time + ahead), "healthy": self.family_healthy(family, now)}
                for family, time in sorted(self._updated.items())
            },
        }
        return healthy, body
