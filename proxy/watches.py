"""What the proxy watches (upstream pkg/proxy/config)."""

from __future__ import annotations

from collections.abc import Callable

from nodelib.json_values import Json, object_or_empty
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, then_trimmed
from proxy.plan.addresses import parse_cidr
from proxy.plan.slices import SERVICE_NAME

OnChange = Callable[[str, Json], None]

SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NODES = "/api/v1/nodes"
SERVICE_CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


class Watches:
    """Services and EndpointSlices with upstream's selectors, this Node and, on request, the ServiceCIDRs."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        on_service: OnChange,
        on_slice: OnChange,
        on_node: OnChange,
        on_service_cidrs: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self.services = Reflector(
            client,
            SERVICES,
            name="services",
            # Services of another proxy, and headless Services, which have nothing to serve.
            params={
                "labelSelector": "!service.kubernetes.io/service-proxy-name",
                "fieldSelector": "spec.clusterIP!=None",
            },
            on_change=then_trimmed(on_service),
        )
        self.slices = Reflector(
            client,
            SLICES,
            name="endpointslices",
            params={"labelSelector": "!service.kubernetes.io/headless"},
            on_change=then_trimmed(on_slice, (SERVICE_NAME,)),
        )
        self.node = Reflector(
            client,
            NODES,
            name="node",
            params={"fieldSelector": f"metadata.name={node}"},
            on_change=lambda kind, obj, _: on_node(kind, obj),
        )
        self.optional: tuple[Reflector, ...] = ()
        if on_service_cidrs is not None:
            ranges: dict[str, tuple[str, ...]] = {}

            def on_range(kind: str, obj: Json, _: Json | None) -> None:
                update_ranges(ranges, kind, obj)
                on_service_cidrs(tuple(sorted({cidr for cidrs in ranges.values() for cidr in cidrs})))

            self.optional = (Reflector(client, SERVICE_CIDRS, name="servicecidrs", on_change=on_range),)

    @property
    def all(self) -> tuple[Reflector, ...]:
        return (self.services, self.slices, self.node, *self.optional)

    async def synced(self) -> None:
        """Wait until each has been listed once, except for ServiceCIDRs, which an older API server does not have."""
        for reflector in (self.services, self.slices, self.node):
            await reflector.synced.wait()


def update_ranges(ranges: dict[str, tuple[str, ...]], kind: str, obj: Json) -> None:
    """Update `ranges`, the networks of each ServiceCIDR by its name, with one change. Invalid CIDRs are left out."""
    name = str(obj["metadata"]["name"])
    ranges.pop(name, None)
    given = object_or_empty(obj.get("spec")).get("cidrs")
    if kind != "DELETED" and isinstance(given, list):
        # A range of everything would drop every packet that is forwarded.
        ranges[name] = tuple([str(one) for one in map(parse_cidr, given) if one is not None and one.prefixlen])
