"""API objects that `up` applies: rights of API server and nodes, CoreDNS, the demo. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.certificates import POLICY_USER

Object = dict[str, Any]

AGNHOST_IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
COREDNS_IMAGE = "registry.k8s.io/coredns/coredns:v1.15.0"
DEMO_PORT, DEMO_NODE_PORT = 80, 30080
_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"{_GROUP}/v1"
_MOST_SERVERS = 15  # of CoreDNS's plugin forward
_SELF_RENEWAL = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"

# The policy daemon of a node needs every pod's labels and addresses: a policy may select any of them.
POLICY_RULES = [
    {"apiGroups": [""], "resources": ["pods", "namespaces", "nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
    {"apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": ["clusternetworkpolicies.policy.networking.k8s.io"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]


def rights() -> list[Object]:
    """Roles and bindings needed beyond upstream's own.

    The API server is a client of the kubelets: without the first binding `kubectl logs` and `exec` are Forbidden.
    """
    return [
        binding("nodewright:kubelet-api", "system:kubelet-api-admin", _subject("Group", "nodewright:kubelet-api")),
        # The Node authorizer lets a kubelet read only its own Node; its pod network needs every node's podCIDR.
        typed(
            _RBAC,
            "ClusterRole",
            "nodewright:pod-network",
            rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
        ),
        binding("nodewright:pod-network", "nodewright:pod-network", _subject("Group", "system:nodes")),
        typed(_RBAC, "ClusterRole", POLICY_USER, rules=POLICY_RULES),
        binding(POLICY_USER, POLICY_USER, _subject("User", POLICY_USER)),
        # kubeadm's rule: the controller manager approves it when a node renews its own client certificate.
        binding("nodewright:renew", _SELF_RENEWAL, _subject("Group", "system:nodes")),
    ]


def proxy_right() -> Object:
    """What our proxy reads on a node that joins: it has the node's own credentials."""
    return binding("nodewright:node-proxier", "system:node-proxier", _subject("Group", "system:nodes"))


def dns_base(cluster: Cluster, servers: Sequence[str]) -> list[Object]:
    """CoreDNS without its Deployment: all that can be applied before there are nodes. `servers`: see corefile()."""
    account = {"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}
    labels = {"k8s-app": "kube-dns"}
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
        {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
    ]
    return [
        typed("v1", "ServiceAccount", "coredns", "kube-system"),
        typed(
            _RBAC,
            "ClusterRole",
            "system:coredns",
            rules=[
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        ),
        binding("system:coredns", "system:coredns", account),
        typed("v1", "ConfigMap", "coredns", "kube-system", data={"Corefile": corefile(cluster, servers)}),
        typed(
            "v1",
            "Service",
            "kube-dns",
            "kube-system",
            labels={**labels, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
            spec={"clusterIP": cluster.dns_service, "selector": labels, "ports": ports},
        ),
    ]


def corefile(cluster: Cluster, servers: Sequence[str]) -> str:
    """CoreDNS's configuration. Names outside of the cluster are forwarded to the `servers` that the nodes reach.

    By address: CoreDNS exits where /etc/resolv.conf names none, as on a machine without a network, and its pods would
    keep the file of the day when they started. The next `up` has the servers of the network of then.
    """
    places = " ".join(servers[:_MOST_SERVERS])
    forward = f"    forward . {places} {{\n        max_concurrent 1000\n    }}\n" if places else ""
    return (
        ".:53 {\n    errors\n    health {\n        lameduck 5s\n    }\n    ready\n"
        f"    kubernetes {cluster.domain} in-addr.arpa ip6.arpa {{\n"
        "        pods insecure\n        fallthrough in-addr.arpa ip6.arpa\n        ttl 30\n    }\n"
        f"    prometheus :9153\n{forward}"
        "    cache 30\n    loop\n    reload\n    loadbalance\n}\n"
    )


def dns_deployment() -> Object:
    """Two CoreDNS pods, on different nodes if possible."""
    labels = {"k8s-app": "kube-dns"}
    container = {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "50m", "memory": "70Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "livenessProbe": http_get("/health", 8080, initialDelaySeconds=60, timeoutSeconds=5, failureThreshold=5),
        "readinessProbe": http_get("/ready", 8181, periodSeconds=1),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "topologySpreadConstraints": [_spread(labels, "ScheduleAnyway")],
        "containers": [container],
        "volumes": [
            {
                "name": "config",
                "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]},
            }
        ],
    }
    return deployment("coredns", "kube-system", 2, labels, pod)


def demo_base() -> list[Object]:
    """The demo's Services and ServiceAccount."""
    selector = {"app": "demo"}
    port = {"name": "http", "port": DEMO_PORT, "targetPort": 8080, "protocol": "TCP"}
    both = {"ipFamilyPolicy": "PreferDualStack"}
    return [
        typed("v1", "ServiceAccount", "demo", "default", automountServiceAccountToken=False),
        typed("v1", "Service", "demo", "default", spec={"selector": selector, "ports": [port], **both}),
        typed(
            "v1",
            "Service",
            "demo-nodeport",
            "default",
            spec={"type": "NodePort", "selector": selector, "ports": [{**port, "nodePort": DEMO_NODE_PORT}], **both},
        ),
    ]


def demo_deployment(cluster: Cluster) -> Object:
    """One web server for each node: /hostname answers with its pod's name, /dial makes it call another server."""
    labels = {"app": "demo"}
    container = {
        "name": "web",
        "image": AGNHOST_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["netexec", "--http-port=8080", "--udp-port=8081"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": http_get("/hostname", 8080, periodSeconds=1),
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    pod = {
        "serviceAccountName": "demo",
        "terminationGracePeriodSeconds": 1,
        "topologySpreadConstraints": [{**_spread(labels, "DoNotSchedule"), "nodeTaintsPolicy": "Honor"}],
        "containers": [container],
    }
    return deployment("demo", "default", max(2, cluster.options.nodes), labels, pod)


def _spread(labels: dict[str, str], otherwise: str) -> Object:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": otherwise,
        "labelSelector": {"matchLabels": labels},
    }


def deployment(name: str, namespace: str, replicas: int, labels: dict[str, str], pod: Object) -> Object:
    """A Deployment whose selector is its pods' labels."""
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return typed("apps/v1", "Deployment", name, namespace, labels=labels, spec=spec)


def http_get(path: str, port: int | str, *, scheme: str = "", **more: int) -> Object:
    """An HTTP probe."""
    asked: Object = {"path": path, "port": port}
    return {"httpGet": {**asked, "scheme": scheme} if scheme else asked, **more}


def binding(name: str, role: str, subject: Object) -> Object:
    """A ClusterRoleBinding."""
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role}
    return typed(_RBAC, "ClusterRoleBinding", name, roleRef=reference, subjects=[subject])


def _subject(kind: str, name: str) -> Object:
    return {"apiGroup": _GROUP, "kind": kind, "name": name}


def typed(
    api_version: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None, **rest: Any
) -> Object:
    """An object of this version and kind; `rest`: its spec, rules or data."""
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


_PLURALS = {
    "Secret": "secrets",
    "DaemonSet": "daemonsets",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "Service": "services",
    "Deployment": "deployments",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "CSIDriver": "csidrivers",
    "StorageClass": "storageclasses",
    "CustomResourceDefinition": "customresourcedefinitions",
    "VolumeSnapshotClass": "volumesnapshotclasses",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "APIService": "apiservices",
    "IngressClass": "ingressclasses",
    "Namespace": "namespaces",
}


def path_of(obj: Object) -> str:
    """The object's path in the API."""
    version = obj["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = obj["metadata"].get("namespace")
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{middle}/{_PLURALS[obj['kind']]}/{obj['metadata']['name']}"
