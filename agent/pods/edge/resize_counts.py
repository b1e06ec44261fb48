"""Resizes that are pending or under way, counted when they are scraped; upstream's names (pkg/kubelet/metrics)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.common.model.pods import Pod
from agent.resources.model import ResizeState
from agent.resources.plan.resize_labels import priority_bucket

_PENDING = (
    "Number of pending resizes for pods. Label 'priority_bucket' classifies the pod priority (system-critical: "
    ">=2000000000, high: 100000..1999999999, medium: 1..99999, normal: 0/default, low: -999..-1, very-low: <=-1000, "
    "unknown: nil pod). Label 'reason' describes the state (deferred, infeasible)."
)


class ResizeCounts:
    """A collector in the sense of prometheus_client; `resizes()`: of all pods. It is called in another thread."""

    def __init__(self, resizes: Callable[[], Iterable[tuple[Pod, ResizeState]]]) -> None:
        self._resizes = resizes

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        found = list(self._resizes())
        pending = GaugeMetricFamily("kubelet_pod_pending_resizes", _PENDING, labels=["reason", "priority_bucket"])
        counted = Counter(
            (state.pending.reason.lower(), priority_bucket(pod)) for pod, state in found if state.pending is not None
        )
        for labels, count in sorted(counted.items()):
            pending.add_metric(labels, count)
        yield pending
        yield GaugeMetricFamily(
            "kubelet_pod_in_progress_resizes",
            "Number of in-progress resizes for pods.",
            value=sum(state.progress is not None for _, state in found),
        )
