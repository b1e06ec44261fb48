"""What of a Service a node keeps for the environments of its pods. Pure.

Every node has all Services of the cluster in memory. Whoever may create them in one namespace writes 20,000 ports into
a megabyte, which are twelve as decoded objects, or a megabyte of labels.
"""

from __future__ import annotations

from nodelib.json_values import Json, compact, decode, object_or_empty, objects_in

_META = ("name", "namespace", "uid", "resourceVersion")
_PORT = ("name", "port", "protocol")
_MOST = 5000  # ports: an environment has room for fewer (containers/plan/expand.py), so that such a pod is refused
_FEW = 16  # that are not packed


def slim(service: Json) -> None:
    """Take out of the object what no environment has."""
    meta, spec = object_or_empty(service.get("metadata")), object_or_empty(service.get("spec"))
    ports = [{key: one[key] for key in _PORT if key in one} for one in objects_in(spec.get("ports"))[:_MOST]]
    service.clear()
    service["metadata"] = {key: meta[key] for key in _META if key in meta}
    packed = compact(ports).encode() if len(ports) > _FEW else ports
    service["spec"] = {"clusterIP": spec.get("clusterIP"), "ports": packed}


def ports_of(spec: Json) -> list[Json]:
    """The ports of a Service, slim or whole."""
    ports = spec.get("ports")
    return objects_in(decode(ports) if isinstance(ports, bytes) else ports)
