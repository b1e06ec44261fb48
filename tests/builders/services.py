"""Services, EndpointSlices and Nodes for all tests, as the API gives them.

    service("web", "172.30.0.1"), endpoint_slice("web", ["10.0.0.2", endpoint("10.0.1.2", "other", ready=False)])

is a Service with one port and its slice with two endpoints, and node("n1", cidr="10.244.0.0/24") a Node of the cluster.
A cluster IP that is "" is left to the API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodelib.json_values import Json

PORT: Json = {"name": "p80", "port": 80, "protocol": "TCP"}
WEB_PORT: Json = {"port": 80, "targetPort": 8080}  # of pods whose container is tests.builders.pods.web()


def service(
    name: str,
    cluster_ip: str = "",
    *,
    namespace: str = "ns",
    selector: Mapping[str, str] | None = None,
    ports: Sequence[Json] = (PORT,),
    lb: Sequence[Json | str] = (),
    **spec: Any,
) -> Json:
    """service("web", "172.30.0.1", type="LoadBalancer", lb=["1.2.3.4"]): `lb` is what the load balancer answered."""
    body: Json = {"type": "ClusterIP", "ports": list(ports), **spec}
    if cluster_ip:
        body["clusterIP"] = cluster_ip
    if selector is not None:
        body["selector"] = dict(selector)
    ingress = [{"ip": entry} if isinstance(entry, str) else entry for entry in lb]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": body,
        "status": {"loadBalancer": {"ingress": ingress}},
    }


def endpoint_slice(
    service_name: str,
    endpoints: Sequence[Json | str],
    *,
    namespace: str = "ns",
    ports: Sequence[Json] = (PORT,),
    suffix: str = "1",
    address_type: str = "IPv4",
) -> Json:
    """endpoint_slice("web", ["10.0.0.2"]): the slice web-1; an address alone is a ready endpoint on no known node."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{service_name}-{suffix}",
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": address_type,
        "ports": list(ports),
        "endpoints": [endpoint(one) if isinstance(one, str) else one for one in endpoints],
    }


def endpoint(
    address: str, node: str | None = None, *, zones: Sequence[str] = (), nodes: Sequence[str] = (), **conditions: bool
) -> Json:
    """endpoint("10.0.0.2", "n1", zones=["a"], serving=True, terminating=True): ready when no condition is given."""
    entry: Json = {"addresses": [address], "conditions": conditions or {"ready": True}}
    named = {"forZones": zones, "forNodes": nodes}
    if hints := {kind: [{"name": name} for name in names] for kind, names in named.items() if names}:
        entry["hints"] = hints
    if node is not None:
        entry["nodeName"] = node
    return entry


def node(
    name: str = "n1",
    *,
    cidr: str = "10.244.0.0/24",
    address: str = "",
    meta: Mapping[str, Any] | None = None,
    conditions: Sequence[Json] = (),
    **spec: Any,
) -> Json:
    """node("n1", address="10.89.0.11", conditions=[{"type": "Ready", "status": "True"}], unschedulable=True)"""
    body = {"podCIDR": cidr, "podCIDRs": [cidr], **spec} if cidr else spec
    status: Json = {"conditions": list(conditions)}
    if address:
        status["addresses"] = [{"type": "InternalIP", "address": address}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **(meta or {})},
        "spec": body,
        "status": status,
    }
