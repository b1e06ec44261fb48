"""Upstream's binaries, built from the pinned Go modules into the cache and only when asked for."""

from controlplane.binaries.ensure import BinDir, Progress, ensure, goarch
from controlplane.binaries.table import (
    AGNHOST_VERSION,
    CONTAINERD_VERSION,
    COREDNS_VERSION,
    KUBERNETES_VERSION,
    TABLE,
)

__all__ = [
    "AGNHOST_VERSION",
    "CONTAINERD_VERSION",
    "COREDNS_VERSION",
    "KUBERNETES_VERSION",
    "TABLE",
    "BinDir",
    "Progress",
    "ensure",
    "goarch",
]
