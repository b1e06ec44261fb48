"""Volumes of the nodes by default (`up --storage`): the driver, upstream's helpers, their rights and objects. Pure."""

from __future__ import annotations

from controlplane.cluster.model import Cluster, Node
from controlplane.cluster.plan.certificates import STORAGE_USER
from controlplane.cluster.plan.manifests import Object, binding, typed
from csi.model import DRIVER
from csi.settings import SOCKET

CLASS = "local"
PROVISIONER, RESIZER = "csi-provisioner", "csi-resizer"
SNAPSHOTTER, SNAPSHOT_CONTROLLER = "csi-snapshotter", "snapshot-controller"
HELPERS = (PROVISIONER, RESIZER, SNAPSHOTTER, SNAPSHOT_CONTROLLER)
_NAMESPACE = "kube-system"  # where the provisioners write how much room their nodes have
_KUBECONFIG = "--kubeconfig=/etc/kubernetes/csi.conf"
_NO_GROUPS = "--feature-gates=CSIVolumeGroupSnapshot=false"  # it would wait half a minute for their kinds
_STORAGE, _RBAC, _SNAPSHOT = "storage.k8s.io", "rbac.authorization.k8s.io", "snapshot.storage.k8s.io"
_READ = ["get", "list", "watch"]
_RULES = [
    ("", ["persistentvolumes"], [*_READ, "create", "patch", "update", "delete"]),
    ("", ["persistentvolumeclaims"], [*_READ, "update", "patch"]),
    ("", ["persistentvolumeclaims/status"], ["patch", "update"]),
    ("", ["nodes", "pods"], _READ),
    ("", ["events"], ["list", "watch", "create", "update", "patch"]),
    (_STORAGE, ["storageclasses", "csinodes", "volumeattachments", "volumeattributesclasses"], _READ),
    (_SNAPSHOT, ["volumesnapshots", "volumesnapshotcontents"], [*_READ, "create", "patch", "update", "delete"]),
    (_SNAPSHOT, ["volumesnapshotclasses"], _READ),
    (_SNAPSHOT, ["volumesnapshots/status", "volumesnapshotcontents/status"], ["patch", "update"]),
]
_CAPACITIES = [(_STORAGE, ["csistoragecapacities"], [*_READ, "create", "patch", "update", "delete"])]
_ADMISSION, _MANAGED_BY = "admissionregistration.k8s.io", "snapshot.storage.kubernetes.io/managed-by"
_NAMES_ITS_NODE = (
    f"object.spec.driver == '{DRIVER}'",
    "has(object.spec.source.snapshotHandle)",
    "object.spec.source.snapshotHandle.matches('^[a-z0-9-]+@[a-z0-9.-]{1,63}$')",
    f"!(has(object.metadata.labels) && '{_MANAGED_BY}' in object.metadata.labels)",
)
_LABEL = f"""
(has(object.metadata.labels) ? [] : [JSONPatch{{op: "add", path: "/metadata/labels", value: {{}}}}]) + [
  JSONPatch{{
    op: "add",
    path: "/metadata/labels/" + jsonpatch.escapeKey("{_MANAGED_BY}"),
    value: object.spec.source.snapshotHandle.split("@")[1]
  }}
]
"""


def helpers(cluster: Cluster, node: Node) -> dict[str, tuple[str, ...]]:
    """Flags of the helpers that run on a node, by program.

    Each node provisions and copies its own volumes; what concerns no node (the size of a claim that has grown, pairs of
    snapshots and their contents) is done once, on the first node.
    """
    driver, quick = (_KUBECONFIG, f"--csi-address={SOCKET}"), ("--kube-api-qps=50", "--kube-api-burst=100")
    found = {
        PROVISIONER: (
            *driver,
            *quick,
            "--node-deployment=true",
            "--strict-topology=true",
            "--extra-create-metadata=true",
            "--enable-capacity=true",
            "--capacity-ownerref-level=-1",
            "--timeout=5m",
            "--retry-interval-max=30s",
            "--worker-threads=10",
        ),
        SNAPSHOTTER: (
            *driver,
            *quick,
            _NO_GROUPS,
            "--extra-create-metadata=true",
            "--node-deployment=true",
            "--timeout=5m",
            "--retry-interval-max=30s",
        ),
    }
    if node.name == cluster.nodes[0].name:
        found[RESIZER] = (*driver, *quick, "--retry-interval-max=30s")
        found[SNAPSHOT_CONTROLLER] = (
            _KUBECONFIG,
            *quick,
            _NO_GROUPS,
            "--enable-distributed-snapshotting=true",
        )
    return found


def environment(node: Node) -> dict[str, str]:
    """What the helpers of a node read besides their flags."""
    return {"NODE_NAME": node.name, "NAMESPACE": _NAMESPACE}


def rights() -> list[Object]:
    """Roles of the helpers. Whoever has a node's key can change the volumes of all: so it is with a DaemonSet, too."""
    user = {"kind": "User", "name": STORAGE_USER, "apiGroup": _RBAC}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": STORAGE_USER}
    return [
        typed(f"{_RBAC}/v1", "ClusterRole", STORAGE_USER, rules=_rules(_RULES)),
        binding(STORAGE_USER, STORAGE_USER, user),
        typed(f"{_RBAC}/v1", "Role", STORAGE_USER, _NAMESPACE, rules=_rules(_CAPACITIES)),
        typed(f"{_RBAC}/v1", "RoleBinding", STORAGE_USER, _NAMESPACE, roleRef=role, subjects=[user]),
    ]


def objects() -> list[Object]:
    """The driver and its class, which claims without a class get, and what snapshots that exist already need."""
    return [
        *_snapshot_labels(),
        typed(
            f"{_STORAGE}/v1",
            "CSIDriver",
            DRIVER,
            spec={
                "attachRequired": False,
                "podInfoOnMount": True,
                "storageCapacity": True,
                "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            },
        ),
        _default(
            "storageclass.kubernetes.io",
            typed(
                f"{_STORAGE}/v1",
                "StorageClass",
                CLASS,
                provisioner=DRIVER,
                reclaimPolicy="Delete",
                volumeBindingMode="WaitForFirstConsumer",
                allowVolumeExpansion=True,
            ),
        ),
    ]


def snapshot_class() -> Object:
    """The class of snapshots without a class."""
    made = typed(f"{_SNAPSHOT}/v1", "VolumeSnapshotClass", CLASS, driver=DRIVER, deletionPolicy="Delete")
    return _default("snapshot.storage.kubernetes.io", made)


def _snapshot_labels() -> list[Object]:
    """A content that exists already gets the label of the node that its handle names: a node's snapshotter looks for
    that, and the snapshot controller gives it only to those that it makes. It is the API server that does it.
    """
    name = f"snapshots.{DRIVER}"
    rule = {
        "apiGroups": [_SNAPSHOT],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["volumesnapshotcontents"],
    }
    return [
        typed(
            f"{_ADMISSION}/v1",
            "MutatingAdmissionPolicy",
            name,
            spec={
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [{"name": "names-its-node", "expression": " && ".join(_NAMES_ITS_NODE)}],
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _LABEL}}],
            },
        ),
        typed(f"{_ADMISSION}/v1", "MutatingAdmissionPolicyBinding", name, spec={"policyName": name}),
    ]


def _default(group: str, made: Object) -> Object:
    made["metadata"]["annotations"] = {f"{group}/is-default-class": "true"}
    return made


def _rules(rows: list[tuple[str, list[str], list[str]]]) -> list[Object]:
    return [{"apiGroups": [group], "resources": resources, "verbs": verbs} for group, resources, verbs in rows]
