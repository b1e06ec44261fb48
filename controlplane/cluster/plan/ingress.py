"""The addon `ingress`: Traefik as the Ingress controller, with its rights, Deployment and NodePort. Pure.

https://doc.traefik.io/traefik/reference/install-configuration/providers/kubernetes/kubernetes-ingress/
"""

from __future__ import annotations

from controlplane.cluster.plan.manifests import Object, binding, deployment, http_get, typed

VERSION = "v3.7.9"
IMAGE = f"docker.io/library/traefik:{VERSION}"
CLASS = "traefik"
NAMESPACE = "ingress"
NODE_PORT = 30081
_NAME = "traefik"
_WEB, _ADMIN = 8000, 8080
_LABELS = {"app": _NAME}
SELECTOR = f"app={_NAME}"  # of its pods
_RBAC = "rbac.authorization.k8s.io/v1"


def objects() -> list[Object]:
    """All objects, the namespace first."""
    account = {"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}
    port = {"name": "web", "port": 80, "targetPort": _WEB, "nodePort": NODE_PORT, "protocol": "TCP"}
    return [
        typed("v1", "Namespace", NAMESPACE),
        typed("v1", "ServiceAccount", _NAME, NAMESPACE),
        typed(_RBAC, "ClusterRole", f"nodewright:{_NAME}", rules=_rules()),
        binding(f"nodewright:{_NAME}", f"nodewright:{_NAME}", account),
        typed(
            "networking.k8s.io/v1",
            "IngressClass",
            CLASS,
            spec={"controller": "traefik.io/ingress-controller"},
        ),
        typed(
            "v1",
            "Service",
            _NAME,
            NAMESPACE,
            labels=_LABELS,
            spec={"type": "NodePort", "selector": _LABELS, "ports": [port], "ipFamilyPolicy": "PreferDualStack"},
        ),
        deployment(_NAME, NAMESPACE, 1, _LABELS, _pod()),
    ]


def _rules() -> list[Object]:
    read = ["get", "list", "watch"]
    return [
        {"apiGroups": [""], "resources": ["services", "secrets", "nodes", "namespaces", "configmaps"], "verbs": read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingressclasses"], "verbs": read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses/status"], "verbs": ["update"]},
    ]


def _pod() -> Object:
    container = {
        "name": _NAME,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--global.checknewversion=false",
            "--global.sendanonymoususage=false",
            f"--entrypoints.web.address=:{_WEB}",
            f"--entrypoints.traefik.address=:{_ADMIN}",
            "--ping=true",
            "--providers.kubernetesingress=true",
            f"--providers.kubernetesingress.ingressclass={CLASS}",
            f"--providers.kubernetesingress.ingressendpoint.publishedservice={NAMESPACE}/{_NAME}",
        ],
        "ports": [{"name": "web", "containerPort": _WEB}, {"name": "admin", "containerPort": _ADMIN}],
        "readinessProbe": http_get("/ping", _ADMIN, periodSeconds=1),
        "livenessProbe": http_get("/ping", _ADMIN, periodSeconds=10, failureThreshold=3),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65532,
        },
    }
    return {"serviceAccountName": _NAME, "containers": [container]}
