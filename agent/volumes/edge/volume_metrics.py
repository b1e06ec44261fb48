"""How full the claims of pods are (pkg/kubelet/metrics/collectors/volume_stats.go), and how many volumes there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from agent.stats.model import FsUsage

_GAUGES = (
    ("capacity_bytes", "Capacity in bytes of the volume", "capacity"),
    ("available_bytes", "Number of available bytes in the volume", "available"),
    ("used_bytes", "Number of used bytes in the volume", "used"),
    ("inodes", "Maximum number of inodes in the volume", "inodes"),
    ("inodes_free", "Number of free inodes in the volume", "inodes_free"),
    ("inodes_used", "Number of used inodes in the volume", "inodes_used"),
)


class VolumeCounts:
    """volume_manager_total_volumes (pkg/kubelet/volumemanager/metrics). `counts()` by plugin and state."""

    def __init__(self, counts: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        gauge = GaugeMetricFamily(
            "volume_manager_total_volumes", "Number of volumes in Volume Manager", labels=["plugin_name", "state"]
        )
        for (plugin, state), count in sorted(self._counts().items()):
            gauge.add_metric([plugin, f"{state}_state_of_world"], count)
        yield gauge


class VolumeStatsCollector:
    """A prometheus_client collector. `latest()` gives ((namespace, claim), usage)."""

    def __init__(self, latest: Callable[[], Iterable[tuple[tuple[str, str], FsUsage]]]) -> None:
        self._latest = latest

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        found = dict(self._latest())  # pods that share a claim show it once
        for name, text, field in _GAUGES:
            gauge = GaugeMetricFamily(
                f"kubelet_volume_stats_{name}", text, labels=["namespace", "persistentvolumeclaim"]
            )
            for labels, usage in sorted(found.items()):
                gauge.add_metric(list(labels), getattr(usage, field))
            yield gauge
