"""The gauges of memory that is kept for pods, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.resources.plan.memory_qos import Kept


class KeptMemory:
    """A prometheus_client collector with upstream's names (pkg/kubelet/metrics), while the gate MemoryQoS is on."""

    def __init__(self, kept: Callable[[], Kept]) -> None:
        self._kept = kept

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        kept = self._kept()
        yield GaugeMetricFamily(
            "kubelet_memory_qos_node_memory_min_bytes",
            "Total memory.min (hard protection) in bytes of Guaranteed pods, on cgroup v2.",
            value=kept.guaranteed,
        )
        yield GaugeMetricFamily(
            "kubelet_memory_qos_node_memory_low_bytes",
            "Total memory.low (soft protection) in bytes of Burstable pods, on cgroup v2.",
            value=kept.burstable,
        )
