"""OCI image archives without Docker: one short recipe per image, deterministic, cached."""

from controlplane.images.build import binaries_for, ensure_images
from controlplane.images.known import CONFORMANCE, DEMO, KUBEADM, NODE_SUITE
from controlplane.images.seed import seed_containerd_root

__all__ = [
    "CONFORMANCE",
    "DEMO",
    "KUBEADM",
    "NODE_SUITE",
    "binaries_for",
    "ensure_images",
    "seed_containerd_root",
]
