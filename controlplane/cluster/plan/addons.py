"""What a cluster can have beyond DNS and the demo (`up --addons`): one row for each addon. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controlplane.cluster.advice import kubectl_line
from controlplane.cluster.model import Cluster, in_url
from controlplane.cluster.plan import ingress, metrics_server
from controlplane.cluster.plan.manifests import Object


@dataclass(frozen=True, slots=True)
class Addon:
    """`objects`: all its objects, workloads last; `selector` finds its pods in `namespace`; `hint`: what to try.

    `about`: what it is, in a few words.
    """

    images: tuple[str, ...]
    objects: Callable[[], list[Object]]
    namespace: str
    selector: str
    hint: Callable[[Cluster], str]
    about: str


def _top(cluster: Cluster) -> str:
    return kubectl_line(cluster.name, "top", "pods", "-A")


def _route(cluster: Cluster) -> str:
    address = in_url(cluster.nodes[0].address)
    return f"curl -H 'Host: …' http://{address}:{ingress.NODE_PORT}  # IngressClass {ingress.CLASS}"


TABLE: dict[str, Addon] = {
    "metrics": Addon(
        (metrics_server.IMAGE,),
        metrics_server.objects,
        metrics_server.NAMESPACE,
        metrics_server.SELECTOR,
        _top,
        "metrics-server: kubectl top, HorizontalPodAutoscalers",
    ),
    "ingress": Addon(
        (ingress.IMAGE,),
        ingress.objects,
        ingress.NAMESPACE,
        ingress.SELECTOR,
        _route,
        "Traefik: Ingresses of the class traefik",
    ),
}
