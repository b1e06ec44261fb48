"""Upstream's name of the plugin that makes a volume, as its metrics have it (GetFullQualifiedPluginNameForVolume)."""

from __future__ import annotations

from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.volumes import AtomicVolume, EmptyDir, HostPath, VolumePlan


def plugin_of(plan: VolumePlan) -> str:
    """kubernetes.io/configmap; kubernetes.io/csi:DRIVER."""
    match plan:
        case AtomicVolume():
            return plan.plugin.replace("~", "/")
        case CsiVolume():
            return f"kubernetes.io/csi:{plan.driver}"
        case LocalVolume():
            return "kubernetes.io/local-volume"
        case EmptyDir():
            return "kubernetes.io/empty-dir"
        case HostPath():
            return "kubernetes.io/host-path"
    return "kubernetes.io/image"
