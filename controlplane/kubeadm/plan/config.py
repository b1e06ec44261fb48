"""The configuration that kubeadm reads. Pure.

kubeadm.k8s.io/v1beta4 (https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4/).
"""

from __future__ import annotations

import json

from controlplane.cluster.model import API_PORT, KUBERNETES_VERSION, Cluster, Node
from controlplane.cluster.plan.node_files import CONTAINERD_SOCKET
from nodelib.json_values import Json

API_VERSION = "kubeadm.k8s.io/v1beta4"
# Preflight checks of kubeadm that cannot pass in a namespace, with cgroups v1 perhaps and without a module tree.
IGNORED = ("SystemVerification", "Swap")


def control_planes(cluster: Cluster) -> tuple[Node, ...]:
    return cluster.nodes[: cluster.options.control_planes]


def joined(cluster: Cluster) -> tuple[Node, ...]:
    """The nodes that `nodewright join` adds instead of kubeadm."""
    count = cluster.options.joined
    return cluster.nodes[len(cluster.nodes) - count :] if count else ()


def init_config(cluster: Cluster, token: str, certificate_key: str) -> str:
    """The first node's configuration: InitConfiguration and the documents for the whole cluster."""
    first = cluster.nodes[0]
    documents: list[Json] = [
        {
            "apiVersion": API_VERSION,
            "kind": "InitConfiguration",
            "bootstrapTokens": [{"token": token, "ttl": "24h0m0s", "usages": ["signing", "authentication"]}],
            "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
            "nodeRegistration": _registration(cluster, first),
            **({"certificateKey": certificate_key} if certificate_key else {}),
        },
        _cluster_config(cluster),
        kubelet_config(cluster),
        proxy_config(cluster),
    ]
    return _documents(documents)


def join_config(cluster: Cluster, node: Node, token: str, ca_hash: str, certificate_key: str) -> str:
    """The configuration of a joining node, as a control plane node if it is one."""
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
        "nodeRegistration": _registration(cluster, node),
    }
    if node in control_planes(cluster):
        endpoint = {"advertiseAddress": node.address, "bindPort": API_PORT}
        document["controlPlane"] = {"localAPIEndpoint": endpoint, "certificateKey": certificate_key}
    return _documents([document])


def _registration(cluster: Cluster, node: Node) -> Json:
    return {
        "name": node.name,
        "criSocket": f"unix://{CONTAINERD_SOCKET}",
        "imagePullPolicy": "IfNotPresent",
        # Every node of a cluster on one machine runs pods, unless a file says otherwise.
        "taints": [one.to_api() for one in cluster.member(node.name).taints],
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
    """KubeletConfiguration of every node; what differs between nodes is set by flags."""
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
        # nf_conntrack_max is read-only in a network namespace that is not the first.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def skipped_phases(cluster: Cluster) -> tuple[str, ...]:
    return () if cluster.options.proxy == "upstream" else ("--skip-phases=addon/kube-proxy",)


def _documents(documents: list[Json]) -> str:
    return "---\n".join(json.dumps(document, indent=2) + "\n" for document in documents)
