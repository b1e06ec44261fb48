"""Metrics of the daemon, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_MOST_POLICIES = 1000  # with counters of their own
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
        self.refused = Counter(
            "nodewright_policy_refused_packets",
            "Packets refused while the policy isolated the pod; each of several policies counts them",
            ("namespace", "policy", "direction"),
            registry=self.registry,
        )
        self.reports = Counter(
            "nodewright_policy_drop_reports", "Refused packets that the kernel has reported", registry=self.registry
        )
        self.lost = Counter(
            "nodewright_policy_drop_reports_lost",
            "Reports that the kernel threw away because they were not read in time",
            registry=self.registry,
        )
        self.answers = Counter(
            "nodewright_policy_dns_answers",
            "DNS answers that were held and read for domain names",
            registry=self.registry,
        )
        self.learnt = Gauge(
            "nodewright_policy_domain_addresses",
            "Addresses that pods have been given for domain names of policies",
            registry=self.registry,
        )
        self._policies: set[tuple[str, str, str]] = set()

    def count_reports(self, came: int, lost: int) -> None:
        self.reports.inc(came)
        self.lost.inc(lost)

    def count_refused(self, namespace: str, policy: str, direction: str, packets: int) -> None:
        """Policies beyond the first _MOST_POLICIES are counted together."""
        key = (namespace, policy, direction)
        if key not in self._policies:
            if len(self._policies) >= _MOST_POLICIES:
                key = ("", "others", direction)
            self._policies.add(key)
        self.refused.labels(*key).inc(packets)

    def forget_policy(self, namespace: str, policy: str) -> None:
        """The policy is gone, and so are its counters."""
        for direction in ("ingress", "egress"):
            key = (namespace, policy, direction)
            if key in self._policies:
                self._policies.discard(key)
                self.refused.remove(*key)

    def text(self) -> bytes:
        """The Prometheus text format."""
        text: bytes = generate_latest(self.registry)
        return text
