"""What can be built, from which Go module and with which flags. Facts only.

A binary's cache key covers everything that decides its bytes (module files, flags, GOARCH),
so a changed pin is built beside the old one, and a run that still uses the old one is not disturbed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodelib.version import KUBERNETES_VERSION as KUBERNETES_VERSION

CONTAINERD_VERSION = "v2.4.2"
TRAEFIK_VERSION = "v3.7.9"
AGNHOST_VERSION = "2.66.1"

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class Kind(StrEnum):
    """How Go builds it."""

    BUILD = "build"  # go build of a package of a required module
    TEST = "test"  # go test -c
    SELF = "self"  # go build of the module's own main package


@dataclass(frozen=True, slots=True)
class Binary:
    """One executable: `package` is what Go is asked for, `cold` a rough build time with empty caches on two cores."""

    name: str
    module: str
    package: str = "."
    kind: Kind = Kind.BUILD
    ldflags: tuple[str, ...] = ("-s", "-w")
    tags: tuple[str, ...] = ()
    cold: str = "under 1 min"
    aliases: tuple[str, ...] = ()  # other names of the same file (argv[0] picks the component)


def _kubernetes_ldflags(version: str) -> tuple[str, ...]:
    """Without them every component reports v0.0.0-master, which clients refuse as version skew."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    component, client = ([f"-X {package}.{name}={value}" for name, value in values.items()] for package in _STAMPED)
    return ("-s", "-w", *component, f"-X {_STAMPED[0]}.gitCommit={version}", *client)


_KUBE = _kubernetes_ldflags(KUBERNETES_VERSION)
_CONTAINERD = ("-s", "-w", f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD_VERSION}")
_NO_STORAGE_DRIVERS = ("no_btrfs", "no_zfs", "no_devmapper")


def _kube(name: str, package: str, cold: str = "under 1 min", kind: Kind = Kind.BUILD) -> Binary:
    return Binary(name, "kube", package, kind, ldflags=_KUBE, cold=cold)


def _containerd(name: str) -> Binary:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Binary(name, "containerd", package, ldflags=_CONTAINERD, tags=_NO_STORAGE_DRIVERS, cold="about 1 min")


CONTROL_PLANE = Binary(
    "nodewright-controlplane",
    "kube",
    kind=Kind.SELF,
    ldflags=_KUBE,
    cold="about 6 min",
    aliases=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
)

BINARIES: tuple[Binary, ...] = (
    CONTROL_PLANE,
    _kube("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    _kube("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    _kube("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    _kube("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    _kube("sample-apiserver", "k8s.io/sample-apiserver"),
    _kube("e2e.test", "k8s.io/kubernetes/test/e2e", "about 4 min", Kind.TEST),
    _kube("e2e_node.test", "k8s.io/kubernetes/test/e2e_node", "about 4 min", Kind.TEST),
    Binary(
        "agnhost",
        "kube",
        "k8s.io/kubernetes/test/images/agnhost",
        ldflags=(*_KUBE, f"-X main.Version={AGNHOST_VERSION}"),
    ),
    Binary("nnp", "kube", "k8s.io/kubernetes/test/images/nonewprivs"),
    Binary("regression-issue-74839", "kube", "k8s.io/kubernetes/test/images/regression-issue-74839"),
    _kube("sample-device-plugin", "k8s.io/kubernetes/test/images/sample-device-plugin"),
    Binary("ginkgo", "kube", "github.com/onsi/ginkgo/v2/ginkgo"),
    Binary("etcd-server", "kube", "go.etcd.io/etcd/server/v3"),
    _containerd("containerd"),
    _containerd("containerd-shim-runc-v2"),
    _containerd("ctr"),
    Binary("cnitool", "cnitool", "github.com/containernetworking/cni/cnitool"),
    Binary("coredns", "coredns", "github.com/coredns/coredns", cold="about 2 min"),
    Binary(
        "traefik",
        "traefik",
        "github.com/traefik/traefik/v3/cmd/traefik",
        ldflags=("-s", "-w", f"-X github.com/traefik/traefik/v3/pkg/version.Version={TRAEFIK_VERSION[1:]}"),
        cold="about 15 min",
    ),
    Binary("metrics-server", "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", cold="about 2 min"),
)

# Control planes of other minor versions, by the value of `up --kubernetes`. During an upgrade a cluster may have nodes
# newer than its API server; upstream's version skew policy allows only the reverse, and our nodes serve both
# (https://kubernetes.io/releases/version-skew-policy/).
OLDER = {
    "1.36": Binary(
        "nodewright-controlplane-1.36",
        "kube-1.36",
        kind=Kind.SELF,
        ldflags=_kubernetes_ldflags("v1.36.3"),
        cold="about 10 min",
        aliases=CONTROL_PLANE.aliases,
    )
}

TABLE: dict[str, Binary] = {name: binary for binary in BINARIES for name in (binary.name, *binary.aliases)}


def of_release(release: str) -> dict[str, Binary]:
    """TABLE with the control plane of minor version `release` ("": ours). Raises KeyError for an unknown one."""
    if not release or KUBERNETES_VERSION.startswith(f"v{release}."):
        return TABLE
    older = OLDER[release]
    return {**TABLE, **dict.fromkeys((older.name, *older.aliases), older)}


def go_arguments(binary: Binary, output: str) -> list[str]:
    """The arguments of `go` that build it at the path `output`."""
    verb = ["test", "-c"] if binary.kind is Kind.TEST else ["build"]
    tags = ["-tags", ",".join(binary.tags)] if binary.tags else []
    return [*verb, "-trimpath", *tags, "-ldflags", " ".join(binary.ldflags), "-o", output, binary.package]


def cache_key(binary: Binary, module_files: Sequence[tuple[str, bytes]], goarch: str) -> str:
    """Key of the folder that holds the binary; `module_files` are (name, content) of go.mod, go.sum and *.go.

    Binaries of one module with the same flags share a folder: containerd looks for its shim beside its own binary.
    """
    digest = hashlib.sha256()
    for part in (goarch, *binary.ldflags, *binary.tags):
        digest.update(part.encode() + b"\0")
    for name, content in sorted(module_files):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{binary.module}-{digest.hexdigest()[:16]}"
