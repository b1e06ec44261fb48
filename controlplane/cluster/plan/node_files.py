"""The file tree of a node: its folders and mounts, tunables, name resolution. Pure."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.cluster.model import Cluster, Node
from controlplane.images.model.snapshots import FILES, SNAPSHOTS

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_ROOT = "containerd"  # below the node's folder, as the next one
IMAGE_LAYERS = "image-layers"  # files that it shares with other nodes (images/edge/clone.py)

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
