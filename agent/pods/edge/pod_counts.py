"""The gauges of pods and containers, counted at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.common.model.pods import Kind, PodStage, RunState
from agent.common.ports import PodView

_LIFECYCLES = ("sync", "terminating", "terminated")
_ORIGINS = (("desired", ""), ("desired", "true"), ("orphan", ""), ("orphan", "true"), ("runtime_only", "unknown"))
_STATIC = ("", "true")


class PodCounts:
    """A prometheus_client collector. Names and labels are upstream's, with a series for each label value, even if 0.

    See pkg/kubelet/metrics, and HandlePodCleanups of pkg/kubelet/kubelet_pods.go, which sets them upstream.
    """

    def __init__(self, pods: PodView, stages: Callable[[], Iterable[PodStage]]) -> None:
        self._pods, self._stages = pods, stages

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from self._of_the_runtime()
        stages = list(self._stages())
        desired = [one for one in stages if one.config == "desired"]
        yield _by_static(
            "kubelet_desired_pods",
            "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the "
            "apiserver.",
            desired,
        )
        yield _by_static(
            "kubelet_active_pods",
            "The number of pods the kubelet considers active and which are being considered when admitting new pods. "
            "static is true if the pod is not from the apiserver.",
            [one for one in desired if one.active],
        )
        yield GaugeMetricFamily(
            "kubelet_mirror_pods",
            "The number of mirror pods the kubelet will try to create (one per admitted static pod)",
            value=sum(one.mirrored for one in stages),
        )
        yield GaugeMetricFamily(
            "kubelet_managed_ephemeral_containers",
            "Current number of ephemeral containers in pods managed by this kubelet.",
            value=sum(1 for pod in self._pods.pods() for _ in pod.containers(Kind.EPHEMERAL)),
        )
        yield _working(stages)

    def _of_the_runtime(self) -> Iterable[Metric]:
        states = dict.fromkeys(("created", "running", "exited", "unknown"), 0)
        running = 0
        for pod in self._pods.pods():
            observed = self._pods.observed(pod.uid)
            running += bool(observed.sandbox is not None and observed.sandbox.ready)
            for container in observed.containers:
                state = container.state.value if isinstance(container.state, RunState) else "unknown"
                states[state] += 1
        yield GaugeMetricFamily("kubelet_running_pods", "Number of pods that have a running pod sandbox", value=running)
        containers = GaugeMetricFamily(
            "kubelet_running_containers", "Number of containers currently running", labels=["container_state"]
        )
        for state, count in states.items():
            containers.add_metric([state], count)
        yield containers


def _by_static(name: str, text: str, stages: Sequence[PodStage]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=["static"])
    counted = Counter(one.static for one in stages)
    for static in _STATIC:
        gauge.add_metric([static], counted[static])
    return gauge


def _working(stages: Sequence[PodStage]) -> Metric:
    gauge = GaugeMetricFamily(
        "kubelet_working_pods",
        "Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is desired, "
        "orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed "
        "from local configuration or force deleted in the API and consumes resources that are not otherwise visible.",
        labels=["lifecycle", "config", "static"],
    )
    counted = Counter((one.lifecycle, one.config, one.static) for one in stages)
    for lifecycle in _LIFECYCLES:
        for config, static in _ORIGINS:
            gauge.add_metric([lifecycle, config, static], counted[lifecycle, config, static])
    return gauge
