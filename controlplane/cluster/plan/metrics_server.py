"""The addon `metrics`: upstream's metrics-server, so that `kubectl top` and horizontal autoscaling work. Pure."""

from __future__ import annotations

from typing import Any

from controlplane.cluster.plan.manifests import binding, deployment, http_get, typed

Object = dict[str, Any]

IMAGE = "registry.k8s.io/metrics-server/metrics-server:v0.9.0"
SELECTOR = "k8s-app=metrics-server"  # of its pods
_RBAC = "rbac.authorization.k8s.io/v1"
_NAME, NAMESPACE = "metrics-server", "kube-system"
_PORT = 10250


def objects() -> list[Object]:
    """Upstream's components.yaml, with the cluster's CA for the kubelets' certificates and the shortest interval."""
    account = {"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}
    labels = {"k8s-app": _NAME}
    port = {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP", "appProtocol": "https"}
    return [
        typed("v1", "ServiceAccount", _NAME, NAMESPACE),
        typed(_RBAC, "ClusterRole", "system:aggregated-metrics-reader", labels=_AGGREGATED, rules=_READS),
        typed(_RBAC, "ClusterRole", "system:metrics-server", rules=_ASKS),
        _reader(account),
        binding("metrics-server:system:auth-delegator", "system:auth-delegator", account),
        binding("system:metrics-server", "system:metrics-server", account),
        typed("v1", "Service", _NAME, NAMESPACE, labels=labels, spec={"selector": labels, "ports": [port]}),
        typed(
            "apiregistration.k8s.io/v1",
            "APIService",
            "v1beta1.metrics.k8s.io",
            spec={
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                # It signs its own certificate at each start, as with upstream's manifest.
                "insecureSkipTLSVerify": True,
                "service": {"name": _NAME, "namespace": NAMESPACE},
            },
        ),
        deployment(_NAME, NAMESPACE, 1, labels, _pod()),
    ]


_AGGREGATED = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")}
_READS = [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]
_ASKS = [
    {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
]


def _reader(account: Object) -> Object:
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "extension-apiserver-authentication-reader",
    }
    return typed(_RBAC, "RoleBinding", "metrics-server-auth-reader", NAMESPACE, roleRef=role, subjects=[account])


def _pod() -> Object:
    container = {
        "name": _NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--cert-dir=/tmp",
            f"--secure-port={_PORT}",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=5s",  # must be shorter than the resolution
        ],
        "ports": [{"name": "https", "containerPort": _PORT, "protocol": "TCP"}],
        "readinessProbe": http_get("/readyz", "https", scheme="HTTPS", periodSeconds=1, failureThreshold=3),
        "livenessProbe": http_get("/livez", "https", scheme="HTTPS", periodSeconds=10, failureThreshold=3),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 1000,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
