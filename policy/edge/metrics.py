"""Metrics of the daemon, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_FAST = tuple(0.001 * 2**power for power in range(14))


class Metrics:
    """What /metrics shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sync = Histogram(
            "nodewright_policy_sync_duration_seconds",
            "Time from planning to the kernel's acknowledgement of one sync",
            registry=self.registry,
            buckets=_FAST,
        )
        self.failures = Counter(
            "nodewright_policy_sync_failures", "Syncs that the kernel refused", registry=self.registry
        )
        self.policies = Gauge("nodewright_policy_policies", "NetworkPolicies of the cluster", registry=self.registry)
        self.isolated = Gauge(
            "nodewright_policy_isolated_pods",
            "Pods of this node that a policy isolates",
            ("direction", "ip_family"),
            registry=self.registry,
        )
        self.enforcing = Gauge(
            "nodewright_policy_enforcing",
            "1 if policies are in force, 0 if another implementation was found",
            registry=self.registry,
        )
        self.protected = Histogram(
            "nodewright_policy_protection_duration_seconds",
            "Time that a new pod waited for its policies",
            registry=self.registry,
            buckets=_FAST,
        )

    def text(self) -> bytes:
        """The Prometheus text format."""
        text: bytes = generate_latest(self.registry)
        return text
