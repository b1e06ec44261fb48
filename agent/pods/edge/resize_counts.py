"""Resizes that are pending or under way, counted when they are scraped; upstream's names (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

_PENDING = (
    "Number of pending resizes for pods. Label 'priority_bucket' classifies the pod priority (system-critical: "
    ">=2000000000, high: 100000..1999999999, medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000, "
    "unknown: nil pod). Label 'reason' describes the state (deferred, infeasible)."
)


class ResizeCounts:
    """A collector in the sense of prometheus_client.

    `counted()`: how many are pending, by reason and priority bucket, and how many are under way. It is called in
    another thread.
    """

    def __init__(self, counted: Callable[[], tuple[Mapping[tuple[str, str], int], int]]) -> None:
        self._counted = counted

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        pending_now, in_progress = self._counted()
        pending = GaugeMetricFamily("kubelet_pod_pending_resizes", _PENDING, labels=["reason", "priority_bucket"])
        for labels, count in sorted(pending_now.items()):
            pending.add_metric(labels, count)
        yield pending
        yield GaugeMetricFamily(
            "kubelet_pod_in_progress_resizes",
            "Number of in-progress resizes for pods.",
            value=in_progress,
        )
