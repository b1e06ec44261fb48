"""Services of type LoadBalancer as the API has them."""

from __future__ import annotations

from typing import Any

from loadbalancer.model import Service
from loadbalancer.plan import parse
from nodelib.json_values import Json


def balanced(
    name: str = "web",
    *,
    namespace: str = "a",
    ports: tuple[Any, ...] = (80,),
    ips: str = "",
    share: str = "",
    given: tuple[str, ...] = (),
    created: int = 0,
    **spec: Any,
) -> Json:
    """`ips`, `share`: its annotations; `given`: its status; `spec`: further fields."""
    notes = {"nodewright.io/load-balancer-ips": ips, "nodewright.io/allow-shared-ip": share}
    entries = [{"port": one, "protocol": "TCP"} if isinstance(one, int) else one for one in ports]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
            "annotations": {key: value for key, value in notes.items() if value},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "externalTrafficPolicy": "Cluster",
            "selector": {"app": name},
            "ports": entries,
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": one, "ipMode": "VIP"} for one in given]} if given else {}},
    }


def service(name: str = "web", **more: Any) -> Service:
    return parse.service(balanced(name, **more))
