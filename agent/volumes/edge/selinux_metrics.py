"""volume_manager_selinux_*: volumes that are mounted with SELinux contexts, and pods that cannot have one.

Names and labels are those of pkg/kubelet/volumemanager/cache. "Errors" are pods that have to wait; a pod is counted
with each of its tries, as upstream does.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

_BY_MODE, _BY_VOLUME = ("access_mode",), ("volume_plugin", "access_mode")
TEXTS = {
    "container_errors": ("seLinuxOptions of containers that make no context", _BY_MODE),
    "container_warnings": ("The same where it does not matter for the access mode", _BY_MODE),
    "pod_context_mismatch_errors": ("Pods whose containers share a volume with different contexts", _BY_MODE),
    "pod_context_mismatch_warnings": ("The same where it does not matter for the access mode", _BY_MODE),
    "volume_context_mismatch_errors": ("Pods whose volume another pod has with a different context", _BY_VOLUME),
    "volume_context_mismatch_warnings": ("The same where it does not matter for the access mode", _BY_VOLUME),
    "volumes_admitted": ("Volumes whose context is known and the same for all of their pods", _BY_VOLUME),
}


class SelinuxCounts:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(f"volume_manager_selinux_{name}_total", text, labels, registry=registry)
            for name, (text, labels) in TEXTS.items()
        }

    def add(self, what: str, volume: str, mode: str) -> None:
        """One more. `volume`: the plugin, with its driver."""
        labels = (volume, mode) if TEXTS[what][1] == _BY_VOLUME else (mode,)
        self._gauges[what].labels(*labels).inc()
