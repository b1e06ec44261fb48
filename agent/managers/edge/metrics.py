"""Metrics of the CPU and topology managers, made when they are scraped; upstream's names (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from agent.managers.model.counts import DURATION_BUCKETS, ManagerCounts

_ALIGNED = (
    ("container", "physical_cpu"),
    ("container", "uncore_cache"),
    ("container", "numa_node"),
    ("pod", "numa_node"),
)


class ManagerMetrics:
    """A collector in the sense of prometheus_client."""

    def __init__(self, counts: Callable[[], ManagerCounts]) -> None:
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        found = self._counts()
        counts = found.admissions
        for name, text, count in (
            ("cpu_manager_pinning_requests", "The number of cpu core allocations which required pinning.",
             counts.cpu_requests),
            ("cpu_manager_pinning_errors", "The number of cpu core allocations which required pinning failed.",
             counts.cpu_errors),
            ("memory_manager_pinning_requests", "The number of memory pages allocations which required pinning.",
             counts.memory_requests),
            ("memory_manager_pinning_errors", "The number of memory pages allocations which required pinning that "
             "failed.", counts.memory_errors),
            ("topology_manager_admission_requests", "The number of admission requests where resources have to be "
             "aligned.", counts.topology_requests),
            ("topology_manager_admission_errors", "The number of admission request failures where resources could not "
             "be aligned.", counts.topology_errors),
        ):  # fmt: skip
            yield CounterMetricFamily(f"kubelet_{name}", text, value=count)
        yield from self._aligned(found)
        yield from self._cpus(found)
        yield self._took(found)

    def _aligned(self, found: ManagerCounts) -> Iterator[Metric]:
        for name, text, counted in (
            ("count", "Cumulative number of aligned compute resources allocated to containers by alignment type.",
             found.admissions.aligned),
            ("failure_count", "Cumulative number of failures to allocate aligned compute resources to containers by "
             "alignment type.", found.admissions.unaligned),
        ):  # fmt: skip
            family = CounterMetricFamily(
                f"kubelet_container_aligned_compute_resources_{name}", text, labels=["scope", "boundary"]
            )
            for scope, boundary in _ALIGNED:
                family.add_metric([scope, boundary], counted[scope, boundary])
            yield family

    def _cpus(self, found: ManagerCounts) -> Iterator[Metric]:
        if found.shared is None:
            return
        yield GaugeMetricFamily(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.",
            value=found.shared * 1000,
        )
        yield GaugeMetricFamily(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "The total number of CPUs exclusively allocated to containers running on this node",
            value=found.exclusive,
        )
        per_numa = GaugeMetricFamily(
            "kubelet_cpu_manager_allocation_per_numa", "Number of CPUs allocated per NUMA node", labels=["numa_node"]
        )
        for node, count in sorted(found.per_numa.items()):
            per_numa.add_metric([str(node)], count)
        yield per_numa

    def _took(self, found: ManagerCounts) -> Metric:
        family = HistogramMetricFamily(
            "kubelet_topology_manager_admission_duration_ms",
            "Duration in milliseconds to serve a pod admission request.",
        )
        bounds = [*(f"{bound:g}" for bound in DURATION_BUCKETS), "+Inf"]
        total, buckets = 0, []
        for bound, count in zip(bounds, found.durations, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([], buckets, found.duration_sum)
        return family
