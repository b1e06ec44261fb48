"""The configuration files of a node's daemons: containerd, kubelet, kube-proxy, CNI plugins. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import registries
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET
from nodelib.ciphers import STRONG_CIPHERS
from nodelib.json_values import merge_patch

# Of containernetworking-plugins: kindnet brings a configuration for ptp, host-local and portmap, but not the programs.
DEBIAN_PLUGINS = "/usr/lib/cni"
PAUSE_IMAGE = "registry.k8s.io/pause:3.10.2"


def containerd_config(
    *,
    restrict_oom_score_adj: bool,
    durable: bool,
    runc: str = "",
    logins: Mapping[str, registries.Login] | None = None,
    traced: bool = False,
) -> str:
    """config.toml, version 3 (containerd 2.x, docs/cri/config.md). Plugins that nodes never use are disabled.

    `runc`: the program's path, "" for the first one in PATH.
    `traced`: it exports spans of its own (plan/tracing.py).
    """
    options = f'SystemdCgroup = false\n  BinaryName = "{runc}"' if runc else "SystemdCgroup = false"
    no_traces = "" if traced else '\n  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",'
    # As its systemd unit has it: where memory is short, a container ends and not the runtime of all of them.
    oom_score = 0 if restrict_oom_score_adj else -999
    return f"""version = 3
oom_score = {oom_score}
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs",
  "io.containerd.mount-handler.v1.erofs", "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.nri.v1.nri",{no_traces}
  "io.containerd.monitor.container.v1.restart", "io.containerd.image-verifier.v1.bindir",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.metadata.v1.bolt"]
  no_sync = {_toml(not durable)}

# Its database is on the disk before the files of a layer: after a power cut an image would be there, its files empty.
[plugins."io.containerd.service.v1.diff-service"]
  sync_fs = {_toml(durable)}

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  image_pull_with_sync_fs = {_toml(durable)}

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/containerd/certs.d"
{registries.logins(logins or {})}
[plugins."io.containerd.cri.v1.runtime"]
  # Detected: without CAP_SYS_RESOURCE no process may lower its oom_score_adj, and every sandbox would fail.
  restrict_oom_score_adj = {_toml(restrict_oom_score_adj)}
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  # A process left behind by an exec probe may keep its output open; the kubelet must still get its answer.
  drain_exec_sync_io_timeout = "10s"

[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  {options}

# Conformance tests select this handler with a RuntimeClass; it is the same runtime.
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.test-handler.options]
  {options}

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/cni/bin", "{DEBIAN_PLUGINS}"]
  conf_dir = "/etc/cni/net.d"
  use_internal_loopback = true

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
"""


def _toml(value: bool) -> str:
    return "true" if value else "false"


def kubelet_config(cluster: Cluster, node: Node) -> str:
    """KubeletConfiguration (kubelet.config.k8s.io/v1beta1), as JSON, which is YAML."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "2m0s"},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
        "clusterDNS": [cluster.dns_service],
        "clusterDomain": cluster.domain,
        "resolvConf": "/etc/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",  # the node's own: it is in a cgroup namespace
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "podPidsLimit": 4096,
        "seccompDefault": True,
        "serializeImagePulls": False,
        "maxPods": 250,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": 10248,
        "staticPodPath": "/etc/kubernetes/manifests",
        "rotateCertificates": True,
        # The rest of what the CIS benchmark asks for, explicit because upstream's kubelet has other defaults.
        "tlsMinVersion": "VersionTLS12",
        "tlsCipherSuites": list(STRONG_CIPHERS),
        "streamingConnectionIdleTimeout": "4h0m0s",
        "makeIPTablesUtilChains": True,
        "eventRecordQPS": 50,
        "eventBurst": 100,
        "imageGCHighThresholdPercent": 100,  # images are imported, and could not be pulled again without an uplink
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "shutdownGracePeriod": "0s",
    }
    custom = cluster.options.custom
    if custom.feature_gates:
        config["featureGates"] = dict(sorted(custom.feature_gates.items()))
    config = merge_patch(merge_patch(config, custom.kubelet), cluster.member(node.name).kubelet)
    return json.dumps(config, indent=2) + "\n"


def proxy_config(cluster: Cluster, node: Node) -> str:
    """KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), as JSON, which is YAML."""
    anywhere = "[::]" if cluster.families == (6,) else "0.0.0.0"
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.options.proxy_mode,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": "/etc/kubernetes/proxy.conf"},
        "clusterCIDR": ",".join(cluster.pod_cidrs),
        "bindAddress": anywhere.strip("[]"),
        "healthzBindAddress": f"{anywhere}:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # nf_conntrack_max is read-only in a network namespace that is not the first.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "iptables": {"minSyncPeriod": "1s", "syncPeriod": "30s"} if cluster.options.proxy == "upstream" else {},
    }
    return json.dumps(config, indent=2) + "\n"


def bridge_conflist(pod_cidr: str) -> str:
    """The CNI configuration for upstream's kubelet: the reference bridge plugin with the node's podCIDR."""
    ranges = [[{"subnet": pod_cidr}]]
    plugins: list[dict[str, Any]] = [
        {
            "type": "bridge",
            "bridge": "nw0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "nodewright-peer", "plugins": plugins}, indent=2) + "\n"
