"""Names of images that several others ask for, as test/utils/image/manifest.go of Kubernetes has them. Pure."""

from __future__ import annotations

E2E = "registry.k8s.io/e2e-test-images"

PAUSE_NAME = "registry.k8s.io/pause:3.10.2"
AGNHOST_NAME = f"{E2E}/agnhost:2.66.1"
BUSYBOX_NAME = f"{E2E}/busybox:1.37.0-2"
OLD_BUSYBOX_NAME = f"{E2E}/busybox:1.36.1-1"  # some tests name it themselves
ETCD_NAME = "registry.k8s.io/etcd:3.7.0-0"
COREDNS_NAME = "registry.k8s.io/coredns/coredns:v1.15.0"
