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

# Without DWARF, which a stripped binary does not have: the compiler is quicker and its cache smaller.
COMPILER = ("-trimpath", "-gcflags=all=-dwarf=false")

_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class Kind(StrEnum):
    """How Go builds it."""

    BUILD = "build"  # go build of a main package
    TEST = "test"  # go test -c


@dataclass(frozen=True, slots=True)
class Binary:
    """One executable: `package` is what Go is asked for, in the folder `module` of controlplane/go."""

    name: str
    module: str
    package: str
    kind: Kind = Kind.BUILD
    ldflags: tuple[str, ...] = ("-s", "-w")
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()  # other names of the same file (argv[0] picks the component)
    c: bool = False  # parts of it are C


def _kubernetes_ldflags(version: str) -> tuple[str, ...]:
    """Without them every component reports v0.0.0-master, which clients refuse as version skew."""
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    component, client = ([f"-X {package}.{name}={value}" for name, value in values.items()] for package in _STAMPED)
    return ("-s", "-w", *component, f"-X {_STAMPED[0]}.gitCommit={version}", *client)


# The same for every binary of the module, since Go builds together what has equal flags; the linker passes over a
# variable of a package that a binary does not have.
_CLUSTER = (
    *_kubernetes_ldflags(KUBERNETES_VERSION),
    f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD_VERSION}",
    f"-X main.Version={AGNHOST_VERSION}",
)
_NO_STORAGE_DRIVERS = ("no_btrfs", "no_zfs", "no_devmapper")
_MULTI_CALL = "./nodewright-controlplane"


def _cluster(name: str, package: str, kind: Kind = Kind.BUILD, aliases: tuple[str, ...] = ()) -> Binary:
    return Binary(name, "cluster", package, kind, _CLUSTER, _NO_STORAGE_DRIVERS, aliases)


CONTROL_PLANE = _cluster(
    "nodewright-controlplane",
    _MULTI_CALL,
    aliases=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
)

# In the order of their use, which is about the order in which Go builds them.
BINARIES: tuple[Binary, ...] = (
    CONTROL_PLANE,
    *(
        _cluster(name, f"github.com/containerd/containerd/v2/cmd/{name}")
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    Binary(
        "runc",
        "runc",
        "github.com/opencontainers/runc",
        ldflags=("-s", "-w", "-linkmode=external", "-extldflags=-static"),
        tags=("seccomp", "urfave_cli_no_docs", "netgo", "osusergo"),
        c=True,
    ),
    _cluster("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    _cluster("coredns", "./coredns"),
    _cluster("agnhost", "k8s.io/kubernetes/test/images/agnhost"),
    _cluster("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
    _cluster("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    _cluster("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    _cluster("sample-apiserver", "k8s.io/sample-apiserver"),
    _cluster("e2e.test", "k8s.io/kubernetes/test/e2e", Kind.TEST),
    _cluster("e2e_node.test", "k8s.io/kubernetes/test/e2e_node", Kind.TEST),
    _cluster("nnp", "k8s.io/kubernetes/test/images/nonewprivs"),
    _cluster("regression-issue-74839", "k8s.io/kubernetes/test/images/regression-issue-74839"),
    _cluster("sample-device-plugin", "k8s.io/kubernetes/test/images/sample-device-plugin"),
    _cluster("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo"),
    _cluster("etcd-server", "go.etcd.io/etcd/server/v3"),
    Binary("cnitool", "cnitool", "github.com/containernetworking/cni/cnitool"),
    Binary(
        "traefik",
        "traefik",
        "github.com/traefik/traefik/v3/cmd/traefik",
        ldflags=("-s", "-w", f"-X github.com/traefik/traefik/v3/pkg/version.Version={TRAEFIK_VERSION[1:]}"),
    ),
    *(
        Binary(name, "csi", f"github.com/kubernetes-csi/{module}/cmd/{name}")
        for name, module in (
            ("csi-attacher", "external-attacher/v4"),
            ("csi-provisioner", "external-provisioner/v6"),
            ("csi-resizer", "external-resizer/v2"),
            ("csi-snapshotter", "external-snapshotter/v8"),
            ("snapshot-controller", "external-snapshotter/v8"),
            ("csi-sanity", "csi-test/v5"),
        )
    ),
    *(Binary(name, "csi", f"./{name}") for name in ("csi-node-driver-registrar", "hostpathplugin")),
    Binary("metrics-server", "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server"),
    # Without the service discoveries of clouds: it is told the addresses of its targets in a file.
    Binary(
        "prometheus",
        "prometheus",
        "github.com/prometheus/prometheus/cmd/prometheus",
        tags=("remove_all_sd",),
    ),
    Binary(
        "network-policy-api.test",
        "network-policy-api",
        "sigs.k8s.io/network-policy-api/conformance",
        Kind.TEST,
    ),
    Binary("cyclonus", "cyclonus", "./cyclonus"),
    Binary("cyclonus-worker", "cyclonus", "./worker"),
    Binary("kind", "kind", "sigs.k8s.io/kind"),
    Binary("crictl", "kind", "sigs.k8s.io/cri-tools/cmd/crictl"),
    Binary("local-path-provisioner", "local-path", "github.com/rancher/local-path-provisioner"),
    # Peers of tests/bench/policy_peers.
    Binary("kube-router", "kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    Binary("kube-network-policies", "kube-network-policies", "sigs.k8s.io/kube-network-policies/cmd"),
)

# Control planes of other minor versions, by the value of `up --kubernetes`. During an upgrade a cluster may have nodes
# newer than its API server; upstream's version skew policy allows only the reverse, and our nodes serve both
# (https://kubernetes.io/releases/version-skew-policy/).
OLDER = {
    "1.36": Binary(
        "nodewright-controlplane-1.36",
        "kube-1.36",
        _MULTI_CALL,
        ldflags=_kubernetes_ldflags("v1.36.3"),
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


def cache_key(binary: Binary, module_files: Sequence[tuple[str, bytes]], goarch: str) -> str:
    """Key of the folder that holds the binary; `module_files` are (name, content) of go.mod, go.sum and *.go.

    Binaries of one module with the same flags share a folder: containerd looks for its shim beside its own binary.
    """
    digest = hashlib.sha256()
    for part in (goarch, *COMPILER, *binary.ldflags, *binary.tags, *(["cgo"] if binary.c else [])):
        digest.update(part.encode() + b"\0")
    for name, content in sorted(module_files):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{binary.module}-{digest.hexdigest()[:16]}"
