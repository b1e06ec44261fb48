"""NetworkPolicies, Pods and Namespaces as the API has them, with what the tests do not care about left out."""

from __future__ import annotations

from typing import Any

from nodelib.json_values import Json


def pod(name: str, *ips: str, namespace: str = "a", node: str = "node1", **more: Any) -> Json:
    """`more`: labels, ports (name -> number), phase, hostNetwork, uid."""
    ports = [{"name": key, "containerPort": number} for key, number in more.get("ports", {}).items()]
    spec: Json = {"nodeName": node, "containers": [{"name": "c", "ports": ports}]}
    if more.get("hostNetwork"):
        spec["hostNetwork"] = True
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": more.get("uid", f"uid-{name}"),
            "labels": more.get("labels", {"app": name}),
        },
        "spec": spec,
        "status": {"phase": more.get("phase", "Running"), "podIPs": [{"ip": ip} for ip in ips]},
    }


def policy(name: str = "p", *, namespace: str = "a", select: Json | None = None, **spec: Any) -> Json:
    """`select`: matchLabels of podSelector; `spec`: ingress, egress, policyTypes."""
    body: Json = {"podSelector": {"matchLabels": select} if select else {}, **spec}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": body}


def apps(*names: str) -> Json:
    """A peer: the pods with one of these values of the label app, in the policy's own namespace."""
    return {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]}}


def namespaces(**labels: str) -> Json:
    return {"namespaceSelector": {"matchLabels": labels}}


def block(cidr: str, *excepted: str) -> Json:
    return {"ipBlock": {"cidr": cidr, "except": list(excepted)}}
