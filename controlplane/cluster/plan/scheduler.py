"""How kube-scheduler is configured: by flags, or by a file where a node traces the starts of its pods. Pure."""

from __future__ import annotations

from controlplane.cluster.model import RELEASE, Cluster
from controlplane.cluster.plan.tracing import daemon_flags
from nodelib.json_values import Json

_QPS, _BURST = 200, 400
# The file decides these, and upstream ignores the flag beside one.
_OF_THE_FILE = (
    "config",
    "kube-api-qps",
    "kube-api-burst",
    "kube-api-content-type",
    "profiling",
    "contention-profiling",
)
_TIMED_BINDER = "TimedBinder"  # controlplane/go/cluster/timedbinder


def is_timed(cluster: Cluster) -> bool:
    """The scheduler writes on each pod when it queued it and when it bound it, for the pod's trace. Not that of
    another release or in kubeadm's pods, which lacks the plugin, nor one that the user configures by such flags."""
    options = cluster.options
    if (
        options.kubeadm
        or options.kubernetes != RELEASE
        or any(name in options.custom.scheduler for name in _OF_THE_FILE)
    ):
        return False
    return options.agent != "upstream" and any(daemon_flags(cluster, node) for node in cluster.nodes)


def config_path(cluster: Cluster) -> str:
    """Where the file is, if there is one."""
    return f"{cluster.control_plane_dir}/scheduler.json"


def config(cluster: Cluster) -> Json:
    """https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/; what flags() says besides."""
    timed = {"enabled": [{"name": _TIMED_BINDER}]}
    plugins = {"preEnqueue": timed, "bind": {**timed, "disabled": [{"name": "DefaultBinder"}]}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": _kubeconfig(cluster), "qps": _QPS, "burst": _BURST},
        "leaderElection": {"leaderElect": False},
        "enableProfiling": False,
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }


def flags(cluster: Cluster) -> tuple[str, ...]:
    """https://kubernetes.io/docs/reference/command-line-tools-reference/kube-scheduler/"""
    kubeconfig = _kubeconfig(cluster)
    if is_timed(cluster):  # then upstream ignores what the file can say, but for the election
        connection: tuple[str, ...] = (f"--config={config_path(cluster)}",)
    else:
        limits = (f"--kube-api-qps={_QPS}", f"--kube-api-burst={_BURST}")
        connection = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", *limits, "--profiling=false")
    return (
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        *connection,
        "--v=0",
    )


def _kubeconfig(cluster: Cluster) -> str:
    return f"{cluster.pki_dir}/scheduler.conf"
