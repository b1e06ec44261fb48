"""What kubeadm is told, and what it finds on a node: its configuration, and the commands that stand beside it.

kubeadm.k8s.io/v1beta4 (https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/).
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from controlplane.model import API_PORT, KUBERNETES_VERSION, RELEASE, Cluster, Node, Options
from controlplane.plan.components import Tools
from controlplane.plan.node_files import CONTAINERD_SOCKET

Json = dict[str, Any]
API_VERSION = "kubeadm.k8s.io/v1beta4"
# What cannot be had in a namespace of a machine that may have cgroups v1, and no module tree (kubeadm's own names).
IGNORED = ("SystemVerification", "Swap")
CLEAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_CONFIG = "/var/lib/kubelet/config.yaml"
_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"


def control_planes(cluster: Cluster) -> tuple[Node, ...]:
    return cluster.nodes[: cluster.options.control_planes]


def options_problem(options: Options) -> str:
    """Why these options do not go together, or ""."""
    if not options.kubeadm and (options.control_planes > 1 or options.joined or options.network != "nodewright"):
        return "--control-planes, --joined and --network belong to a cluster that kubeadm raises: give --kubeadm too"
    if options.kubeadm and options.kubernetes != RELEASE:
        return f"kubeadm's control plane is of images, which are built of {RELEASE} alone: leave --kubernetes out"
    if options.control_planes + options.joined > options.nodes:
        return (
            f"{options.nodes} nodes are fewer than {options.control_planes} control planes and {options.joined} joined"
        )
    if options.control_planes > 1 and options.routed:
        return "several control planes share an address of the nodes' wire, which --routed does not have"
    return ""


def joined(cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that `nodewright join` makes nodes, and not kubeadm."""
    count = cluster.options.joined
    return cluster.nodes[len(cluster.nodes) - count :] if count else ()


def init_config(cluster: Cluster, token: str, certificate_key: str) -> str:
    """The first node's configuration: InitConfiguration with what holds for the whole cluster."""
    first = cluster.nodes[0]
    documents: list[Json] = [
        {
            "apiVersion": API_VERSION,
            "kind": "InitConfiguration",
            "bootstrapTokens": [{"token": token, "ttl": "24h0m0s", "usages": ["signing", "authentication"]}],
            "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
            "nodeRegistration": _registration(first),
            **({"certificateKey": certificate_key} if certificate_key else {}),
        },
        _cluster_config(cluster),
        kubelet_config(cluster),
        proxy_config(cluster),
    ]
    return _documents(documents)


def join_config(cluster: Cluster, node: Node, token: str, ca_hash: str, certificate_key: str) -> str:
    """The configuration of a node that joins, as a control plane when it is one."""
    document: Json = {
        "apiVersion": API_VERSION,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": f"{cluster.api_address}:{API_PORT}",
                "token": token,
                "caCertHashes": [ca_hash],
            }
        },
        "nodeRegistration": _registration(node),
    }
    if node in control_planes(cluster):
        endpoint = {"advertiseAddress": node.address, "bindPort": API_PORT}
        document["controlPlane"] = {"localAPIEndpoint": endpoint, "certificateKey": certificate_key}
    return _documents([document])


def _registration(node: Node) -> Json:
    return {
        "name": node.name,
        "criSocket": f"unix://{CONTAINERD_SOCKET}",
        "imagePullPolicy": "IfNotPresent",
        "taints": [],  # every node of a cluster on one machine takes pods
        "kubeletExtraArgs": [{"name": "node-ip", "value": ",".join(node.addresses)}],
        "ignorePreflightErrors": list(IGNORED),
    }


def _cluster_config(cluster: Cluster) -> Json:
    config: Json = {
        "apiVersion": API_VERSION,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": KUBERNETES_VERSION,
        "clusterName": cluster.name,
        "networking": {
            "podSubnet": ",".join(cluster.pod_cidrs),
            "serviceSubnet": ",".join(cluster.service_cidrs),
            "dnsDomain": cluster.domain,
        },
        "apiServer": {"certSANs": [*cluster.host_addresses, cluster.api_address]},
    }
    if cluster.options.control_planes > 1:
        config["controlPlaneEndpoint"] = f"{cluster.api_address}:{API_PORT}"
    if not cluster.options.durable:
        config["etcd"] = {"local": {"extraArgs": [{"name": "unsafe-no-fsync", "value": "true"}]}}
    return config


def kubelet_config(cluster: Cluster) -> Json:
    """KubeletConfiguration of every node; what differs from node to node goes by flag."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "serializeImagePulls": False,
        "maxPods": 250,
        "imageGCHighThresholdPercent": 100,  # images are imported, and could not be pulled again without an uplink
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }


def proxy_config(cluster: Cluster) -> Json:
    """KubeProxyConfiguration of the DaemonSet."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.options.proxy_mode,
        # These sysctls are read-only in a network namespace that is not the first.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def kubelet_command(cluster: Cluster, tools: Tools) -> str:
    """The node's `kubelet`, by which kubeadm asks for the version and the service starts the agent."""
    if cluster.options.agent == "upstream":
        return f'#!/bin/sh\nexec {shlex.quote(tools.binaries["kubelet"])} "$@"\n'
    return (
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(tools.project)} PYTHONUNBUFFERED=1\n"
        f'exec {shlex.quote(tools.python)} -m cli.node_main "$@"\n'
    )


def kubelet_service(cluster: Cluster, node: Node) -> str:
    """What the unit of kubeadm's packages (kubelet.service with 10-kubeadm.conf) does, for a supervisor to run."""
    extra = [f"--cgroup-root={cluster.cgroup}/{node.name}", "--v=2"]
    if cluster.options.agent != "upstream" and cluster.options.network != "nodewright":
        extra.append("--pod-network=none")
    elif cluster.options.agent != "upstream":
        extra += [f"--pod-network-cidr={cidr}" for cidr in cluster.pod_cidrs]
    return f"""#!/bin/sh
# A supervisor starts this again and again; until kubeadm has written the configuration there is nothing to run.
[ -e {_CONFIG} ] || {{ echo "waiting for kubeadm: {_CONFIG} is not there"; exit 1; }}
KUBELET_KUBEADM_ARGS=
[ -r {_FLAGS} ] && . {_FLAGS}
KUBELET_EXTRA_ARGS={shlex.quote(" ".join(extra))}
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
  --kubeconfig=/etc/kubernetes/kubelet.conf --config={_CONFIG} \\
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def systemctl_command(cluster: Cluster, node: Node, tools: Tools) -> str:
    """systemctl of a node, where there is no systemd."""
    folder = cluster.unit_dir(node.name)
    return (
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(tools.project)}\n"
        f'exec {shlex.quote(tools.python)} -S -m controlplane.systemctl {shlex.quote(folder)} "$@"\n'
    )


def kubeadm_line(cluster: Cluster, node: Node, tools: Tools, *arguments: str) -> list[str]:
    """kubeadm with the node's commands in front of PATH, and nothing else of this process's environment.

    It writes the proxy variables that it sees into the static pods.
    """
    path = f"{commands_dir(cluster, node)}:{CLEAN_PATH}"
    return ["env", "-i", f"PATH={path}", "HOME=/root", tools.binaries["kubeadm"], *arguments]


def join_line(cluster: Cluster, node: Node, tools: Tools, token: str, ca_hash: str, cgroups: list[str]) -> list[str]:
    """`nodewright join` on a node, in the cgroup in which `down` looks for what to end."""
    words = [
        *(tools.python, "-m", "cli", "join", f"https://{cluster.api_address}:{API_PORT}"),
        *(f"--token={token}", f"--ca-hash={ca_hash}", f"--node-name={node.name}", "--plain"),
        f"--kubelet-arg=--cgroup-root={cluster.cgroup}/{node.name}",
    ]
    enter = "".join(f"echo $$ > {shlex.quote(path)}/cgroup.procs; " for path in cgroups)
    environment = [f"PATH={CLEAN_PATH}", "HOME=/root", f"PYTHONPATH={tools.project}"]
    return ["env", "-i", *environment, "sh", "-c", f'{enter}exec "$@"', "join", *words]


def commands_dir(cluster: Cluster, node: Node) -> str:
    """Where the node's own commands are."""
    return f"{cluster.node_dir(node.name)}/commands"


def skipped_phases(cluster: Cluster) -> tuple[str, ...]:
    return () if cluster.options.proxy == "upstream" else ("--skip-phases=addon/kube-proxy",)


def _documents(documents: list[Json]) -> str:
    return "---\n".join(json.dumps(document, indent=2) + "\n" for document in documents)
