"""The Node as it is registered, what is repaired in one that exists, and its Lease.

Follows initialNode, tryRegisterWithAPIServer and updateDefaultLabels in pkg/kubelet/kubelet_node_status.go.
"""

from __future__ import annotations

import math

from agent.node.model import MachineFacts, NodePolicy
from nodelib.json_values import Json
from nodelib.kube.times import time_or

ATTACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"
_PROVIDED_IP_ANNOTATION = "alpha.kubernetes.io/provided-node-ip"
# Labels that an existing Node gets back when they differ; all others belong to the administrator.
_DEFAULT_LABELS = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)


def initial_node(policy: NodePolicy, architecture: str, hostname: str) -> Json:
    """A Node to register, without its status."""
    labels = {
        "kubernetes.io/hostname": hostname,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
        **policy.labels,
    }
    node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": policy.name, "labels": labels}, "spec": {}}
    if policy.controller_attach_detach:
        node["metadata"]["annotations"] = {ATTACH_ANNOTATION: "true"}
    if policy.taints:
        node["spec"]["taints"] = list(policy.taints)
    if policy.provider_id:
        node["spec"]["providerID"] = policy.provider_id
    return node


def metadata_patch(wanted: Json, existing: Json) -> Json:
    """A patch for an existing Node's metadata: default labels and the attach annotation; {} when nothing differs."""
    labels = wanted["metadata"].get("labels") or {}
    present = existing["metadata"].get("labels") or {}
    patch: Json = {}
    changed = {name: labels[name] for name in _DEFAULT_LABELS if name in labels and present.get(name) != labels[name]}
    if changed:
        patch["labels"] = changed
    annotations = existing["metadata"].get("annotations") or {}
    attach = (wanted["metadata"].get("annotations") or {}).get(ATTACH_ANNOTATION)
    changes: Json = {name: None for name in (_PROVIDED_IP_ANNOTATION,) if name in annotations}
    if annotations.get(ATTACH_ANNOTATION) != attach:
        changes[ATTACH_ANNOTATION] = attach
    if changes:
        patch["annotations"] = changes
    return {"metadata": patch} if patch else {}


def platform_patch(node: Json, architecture: str) -> Json:
    """A patch for the two labels that a kubelet keeps while it runs, since pods select by them; {} for nothing.

    Upstream: updateNode in pkg/kubelet/kubelet_node_status.go.
    """
    present = node["metadata"].get("labels") or {}
    wanted = {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    lost = {name: value for name, value in wanted.items() if present.get(name) != value}
    return {"metadata": {"labels": lost}} if lost else {}


def foreign_owner(existing: Json, lease: Json | None, machine: MachineFacts, now: float) -> str:
    """Why this Node is not ours: another machine of the same name keeps its Lease fresh. "" when it is ours."""
    info = (existing.get("status") or {}).get("nodeInfo") or {}
    theirs = (info.get("machineID", ""), info.get("systemUUID", ""))
    if not any(theirs) or theirs == (machine.machine_id, machine.system_uuid):
        return ""
    spec = (lease or {}).get("spec") or {}
    renewed = spec.get("renewTime")
    age = now - time_or(-math.inf, renewed)
    if age > float(spec.get("leaseDurationSeconds") or 40):
        return ""
    return (
        f"another machine (machineID {theirs[0]!r}, ours {machine.machine_id!r}) holds this name "
        f"and renewed its Lease {max(0, age):.0f} s ago"
    )


def lease_object(name: str, node_uid: str, duration: int) -> Json:
    """The node's Lease, owned by its Node (pkg/kubelet/util.SetNodeOwnerFunc), without its times."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": duration},
    }
