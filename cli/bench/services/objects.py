"""The Services and EndpointSlices of a measurement, as etcd holds them. Pure.

They are written directly into etcd (60,000 objects in seconds instead of minutes), and the API server serves them like
any others. Each Service has the IPAddress object that the API server's allocator would have made; otherwise the API
server would spend the measurement on repairing them.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodelib.json_values import Json

NAMESPACE = "default"
PORT, TARGET_PORT = 80, 8080
POD_RANGE = "10.128.0.0/9"
PROBE_ADDRESS = "10.255.0.1"  # the endpoint that answers; no other does
_PODS = int(ipaddress.ip_address("10.128.0.1"))
_CLUSTER_IPS = int(ipaddress.ip_address("10.96.1.0"))
_TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Size:
    """`services` Services of `endpoints` endpoints each."""

    services: int
    endpoints: int = 2

    def __str__(self) -> str:
        return f"{self.services:,} x {self.endpoints}"

    def name(self, index: int) -> str:
        return f"svc-{index:05d}"

    def cluster_ip(self, index: int) -> str:
        return str(ipaddress.ip_address(_CLUSTER_IPS + index))

    def addresses(self, index: int) -> list[str]:
        first = _PODS + index * self.endpoints
        return [str(ipaddress.ip_address(first + number)) for number in range(self.endpoints)]


def slice_path(size: Size, index: int) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{size.name(index)}"


def endpoints(addresses: list[str]) -> list[Json]:
    return [{"addresses": [one], "conditions": {"ready": True}, "nodeName": "elsewhere"} for one in addresses]


def stored(size: Size) -> Iterator[tuple[str, Json]]:
    """(etcd key, object) of the namespace, and of each Service with its EndpointSlice and IPAddress."""
    yield f"/registry/namespaces/{NAMESPACE}", _object("v1", "Namespace", NAMESPACE, 0, namespaced=False)
    for index in range(size.services):
        name, ip = size.name(index), size.cluster_ip(index)
        yield f"/registry/services/specs/{NAMESPACE}/{name}", _service(name, ip, index)
        yield f"/registry/endpointslices/{NAMESPACE}/{name}", _slice(size, name, index)
        yield f"/registry/ipaddresses/{ip}", _address(name, ip, index)


def transactions(size: Size) -> Iterator[Json]:
    """Bodies for etcd's /v3/kv/txn."""
    return batches(stored(size))


def batches(objects: Iterable[tuple[str, Json]], batch: int = 1000) -> Iterator[Json]:
    """Bodies for etcd's /v3/kv/txn, `batch` objects each."""
    from json import dumps

    puts: list[Json] = []
    for key, obj in objects:
        value = base64.b64encode(dumps(obj, separators=(",", ":")).encode()).decode()
        puts.append({"requestPut": {"key": base64.b64encode(key.encode()).decode(), "value": value}})
        if len(puts) == batch:
            yield {"success": puts}
            puts = []
    if puts:
        yield {"success": puts}


def _service(name: str, ip: str, index: int) -> Json:
    obj = _object("v1", "Service", name, index)
    obj["spec"] = {
        "type": "ClusterIP",
        "clusterIP": ip,
        "clusterIPs": [ip],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "ports": [{"name": "main", "protocol": "TCP", "port": PORT, "targetPort": TARGET_PORT}],
    }
    obj["status"] = {"loadBalancer": {}}
    return obj


def _slice(size: Size, name: str, index: int) -> Json:
    obj = _object("discovery.k8s.io/v1", "EndpointSlice", name, index)
    obj["metadata"]["labels"] = {"kubernetes.io/service-name": name}
    obj["addressType"] = "IPv4"
    obj["ports"] = [{"name": "main", "protocol": "TCP", "port": TARGET_PORT}]
    obj["endpoints"] = endpoints(size.addresses(index))
    return obj


def _address(name: str, ip: str, index: int) -> Json:
    obj = _object("networking.k8s.io/v1", "IPAddress", ip, index, namespaced=False)
    obj["metadata"]["labels"] = {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    obj["spec"] = {"parentRef": {"group": "", "resource": "services", "namespace": NAMESPACE, "name": name}}
    return obj


def _object(version: str, kind: str, name: str, index: int, *, namespaced: bool = True) -> Json:
    meta: Json = {
        "name": name,
        "uid": f"{kind[:8].lower():0<8}-0000-4000-8000-{index:012x}",
        "creationTimestamp": _TIME,
    }
    if namespaced:
        meta["namespace"] = NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": meta}
