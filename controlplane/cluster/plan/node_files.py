"""A node's own files: mounts, configuration of its daemons, name resolution. Pure."""

from __future__ import annotations

import ipaddress
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan import registries
from controlplane.images.model.snapshots import FILES, SNAPSHOTS
from nodelib.ciphers import STRONG_CIPHERS
from nodelib.json_values import merge_patch

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_ROOT = "containerd"  # below the node's folder, as the next one
IMAGE_LAYERS = "image-layers"  # files that it shares with other nodes (images/edge/clone.py)
# Of containernetworking-plugins: kindnet brings a configuration for ptp, host-local and portmap, but not the programs.
DEBIAN_PLUGINS = "/usr/lib/cni"
PAUSE_IMAGE = "registry.k8s.io/pause:3.10.2"

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MEMORY = ("/run", "/run/containerd", "/run/netns")  # file systems in memory
_SYSTEM_DIRS = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/nix", "/gnu")  # a node has them (machine_root.py)

# Directories of the node (under its state directory) and where its processes see them.
NODE_DIRS = {
    "kubelet": "/var/lib/kubelet",
    CONTAINERD_ROOT: "/var/lib/containerd",
    "pod-logs": "/var/log/pods",
    "container-logs": "/var/log/containers",
    "cni/net.d": "/etc/cni/net.d",
    "cni/bin": "/opt/cni/bin",
    "cni/state": "/var/lib/cni",
    "etc-containerd": "/etc/containerd",
    "kubernetes": "/etc/kubernetes",
    "etcd": "/var/lib/etcd",  # kubeadm's etcd, on control plane nodes
    "libexec": "/usr/libexec/kubernetes",  # where a controller manager in a pod expects FlexVolume plugins
}
RUNTIME_SNAPSHOTS = f"{NODE_DIRS[CONTAINERD_ROOT]}/{SNAPSHOTS}"
NODE_FILES = {
    "hosts": "/etc/hosts",
    "resolv.conf": "/etc/resolv.conf",
    "hostname": "/etc/hostname",
    "machine-id": "/etc/machine-id",
}

# All belong to a network namespace; without them a node would not forward packets or not see bridged ones.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/bridge/bridge-nf-call-iptables": "1",
    "net/bridge/bridge-nf-call-ip6tables": "1",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/all/forwarding": "1",
}
_ROUTER_SYSCTLS = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}


def machine(
    cluster: Cluster,
    node: Node,
    cgroups: Sequence[str],
    readonly: Sequence[str],
    python: str,
    project: str,
    layers: Sequence[str] = (),
) -> dict[str, Any]:
    """The input of nsinit for a node. `cgroups`: its folder in every hierarchy; `readonly`: what it may only read.

    `layers`: the snapshots whose files are in IMAGE_LAYERS.
    """
    own, unit, log = cluster.node_dir(node.name), cluster.unit_dir(node.name), cluster.log_dir(node.name)
    mounts: list[dict[str, Any]] = [{"target": path, "source": "", "type": "tmpfs"} for path in _MEMORY]
    mounts += [{"target": path, "source": path, "type": "bind", "readonly": True} for path in readonly]
    mounts += [{"target": t, "source": f"{own}/{s}", "type": "bind"} for s, t in (NODE_DIRS | NODE_FILES).items()]
    mounts += [
        {
            "target": f"{RUNTIME_SNAPSHOTS}/{name}/{FILES}",
            "source": f"{own}/{IMAGE_LAYERS}/{name}/{FILES}",
            "type": "bind",
            "readonly": True,
        }
        for name in layers
    ]
    mounts += [
        {"target": one.node_path, "source": one.host_path, "type": "bind", "readonly": one.readonly}
        for one in cluster.member(node.name).mounts
    ]
    # The paths of these are the same inside and outside; nothing else of the cluster's folder is seen in a node.
    mounts += [{"target": path, "source": path, "type": "bind"} for path in (unit, log, commands_dir(cluster, node))]
    init = posixpath.join(project, "controlplane/machine/edge/init.py")
    return {
        "dir": cluster.ns_dir,
        "space": node.name,
        "sysctls": SYSCTLS,
        "machine": {
            "lock": posixpath.join(own, "process-1.lock"),
            "cgroups": list(cgroups),
            "hostname": node.name,
            "root": {"folder": f"{own}/root", "layers": f"{own}/layers", "mounts": mounts},
            "argv": [python, "-I", "-S", init, unit, project, f"{log}/init.log"],
            "env": {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8"},
        },
    }


def commands_dir(cluster: Cluster, node: Node) -> str:
    """The folder of the node's own commands, and of what kubeadm is told."""
    return f"{cluster.node_dir(node.name)}/commands"


def readonly_folders(paths: Iterable[str]) -> list[str]:
    """Of folders that a node needs, those to bind: not what is below another, and not what every node has anyway."""
    wanted = sorted({posixpath.normpath(path) for path in paths if path}, key=len)
    kept: list[str] = []
    for path in wanted:
        if not any(path == other or path.startswith(f"{other}/") for other in (*_SYSTEM_DIRS, *kept)):
            kept.append(path)
    return kept


def wire_namespace(cluster: Cluster) -> dict[str, Any]:
    """The input of nsinit for the wire, in which no process runs."""
    return {
        "dir": cluster.ns_dir,
        "space": "wire",
        "sysctls": _ROUTER_SYSCTLS if cluster.options.routed else {},
        "machine": None,
    }


def mode(name: str) -> int:
    """The mode of a file of a node, by its name below the node's directory: the daemons' are for root only."""
    return 0o600 if name.startswith("kubernetes/") else 0o644


def hosts(cluster: Cluster) -> str:
    """/etc/hosts of every node."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{address} {node.name}" for node in cluster.nodes for address in node.addresses]
    return "\n".join(lines) + "\n"


def resolv_conf(host_text: str, resolved_text: str, uplink: bool) -> str:
    """/etc/resolv.conf of a node: the host's name servers, if the node can reach one.

    A loopback server (systemd-resolved's 127.0.0.53) is useless in another network namespace, so the servers behind it
    are used then. Without an uplink there are none.
    """
    if not uplink:
        return "# this cluster has no uplink: no name server outside of it can be reached\n"
    for text in (host_text, resolved_text):
        servers = [
            line.split()[1] for line in text.splitlines() if line.startswith("nameserver") and len(line.split()) > 1
        ]
        if any(not server.startswith("127.") and server != "::1" for server in servers):
            kept = [line for line in text.splitlines() if not line.startswith(("nameserver 127.", "nameserver ::1"))]
            return "\n".join(kept) + "\n"
    return "# the host has no name server that this node could reach\n"


def name_servers(text: str) -> tuple[str, ...]:
    """The addresses of the servers in a resolv.conf; those of one link only (fe80::1%eth0) are left out."""
    words = [line.split() for line in text.splitlines()]
    named = [one[1] for one in words if one[:1] == ["nameserver"] and len(one) > 1]
    return tuple(one for one in named if "%" not in one and _is_address(one))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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
    return f"""version = 3
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
