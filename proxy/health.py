"""Is the proxy well, and is the node fit for load balancers (upstream healthcheck/proxy_health.go)?

A family is unwell when a change has been waiting for longer than `timeout` without a sync that succeeded.
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
    """`timeout` and all times in seconds; times are wall time, given by the caller."""

    timeout: float
    node: Callable[[], NodeFacts]
    _updated: dict[Family, float] = field(default_factory=dict)
    _waiting: dict[Family, float] = field(default_factory=dict)

    def updated(self, family: Family, now: float) -> None:
        """A sync of `family` succeeded (or it has just been started)."""
        self._waiting.pop(family, None)
        self._updated[family] = now

    def queued(self, family: Family, now: float) -> None:
        """A change of `family` waits to be synced."""
        self._waiting.setdefault(family, now)

    def family_well(self, family: Family, now: float) -> bool:
        since = self._waiting.get(family)
        return since is None or now - since < self.timeout

    def well(self, now: float) -> bool:
        return all(self.family_well(family, now) for family in self._updated)

    def node_eligible(self) -> bool:
        """Not deleted and not about to be: load balancers are to send traffic here."""
        node = self.node()
        return node.exists and not node.deleting and not node.to_be_deleted

    def report(self, now: float, *, with_node: bool) -> tuple[bool, Json]:
        """(healthy, body) of /healthz, or of /livez without the node."""
        healthy = well = self.well(now)
        body: Json = {}
        if with_node:
            body["nodeEligible"] = self.node_eligible()
            healthy = well and body["nodeEligible"]
        newest = max(self._updated.values(), default=0.0)
        body = {
            "lastUpdated": format_micro(now if healthy else newest),
            "currentTime": format_micro(now),
            **body,
            "healthy": well,
            "status": {
                family.value: {"lastUpdated": format_micro(time), "healthy": self.family_well(family, now)}
                for family, time in sorted(self._updated.items())
            },
        }
        return healthy, body
