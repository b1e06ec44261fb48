"""What the proxy watches, and how an object is trimmed before it stays in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from proxy.plan.slices import SERVICE_NAME

Json = dict[str, Any]
OnChange = Callable[[str, Json], None]

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NODES = "/api/v1/nodes"


class Watches:
    """Services, EndpointSlices (selected as upstream does) and this Node."""

    def __init__(
        self, client: KubeClient, node: str, *, on_service: OnChange, on_slice: OnChange, on_node: OnChange
    ) -> None:
        self.services = Reflector(
            client,
            SERVICES,
            name="services",
            # Another proxy serves the first kind; the second has nothing to serve.
            params={
                "labelSelector": "!service.kubernetes.io/service-proxy-name",
                "fieldSelector": "spec.clusterIP!=None",
            },
            on_change=_then_trimmed(on_service, ()),
        )
        self.slices = Reflector(
            client,
            SLICES,
            name="endpointslices",
            params={"labelSelector": "!service.kubernetes.io/headless"},
            on_change=_then_trimmed(on_slice, (SERVICE_NAME,)),
        )
        self.node = Reflector(
            client,
            NODES,
            name="node",
            params={"fieldSelector": f"metadata.name={node}"},
            on_change=lambda kind, obj, _: on_node(kind, obj),
        )

    @property
    def all(self) -> tuple[Reflector, ...]:
        return (self.services, self.slices, self.node)

    async def synced(self) -> None:
        """Until each has been listed once."""
        for reflector in self.all:
            await reflector.synced.wait()


def _then_trimmed(handle: OnChange, labels: tuple[str, ...]) -> Callable[[str, Json, Json | None], None]:
    def on_change(kind: str, obj: Json, _: Json | None) -> None:
        handle(kind, obj)
        trim(obj, labels)

    return on_change


def trim(obj: Json, labels: Iterable[str]) -> None:
    """Leave of a stored object what the reflector needs: its name, its version, `labels`.

    What rules depend on has been taken out of it by then; 10,000 whole objects are 100 MB.
    """
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return
    given = meta.get("labels")
    kept = {name: given[name] for name in labels if name in given} if isinstance(given, dict) else {}
    slim = {key: meta[key] for key in ("name", "namespace", "resourceVersion", "uid") if key in meta}
    if kept:
        slim["labels"] = kept
    obj.clear()
    obj["metadata"] = slim
