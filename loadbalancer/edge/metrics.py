"""Metrics of the daemon, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """What /metrics shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, about: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"nodewright_loadbalancer_{name}", about, labels, registry=self.registry)

        self.announced = gauge("announced_addresses", "Addresses that this node announces")
        self.leader = gauge("leader", "1 if this node gives addresses to Services")
        self.taken = gauge("taken_addresses", "Addresses of the pool that Services have, as the leader knows it")
        self.pending = gauge("pending_services", "Services that wait for an address, as the leader knows it")
        self.moves = self._counter("moves", "Addresses that another node announces now, decided by this leader")
        self.answers = self._counter("frames_sent", "ARP and NDP frames that were sent")
        self.conflicts = gauge("conflicts", "Claims of others to an address that this node announces")

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"nodewright_loadbalancer_{name}", about, registry=self.registry)

    def text(self) -> bytes:
        """The Prometheus text format."""
        text: bytes = generate_latest(self.registry)
        return text
