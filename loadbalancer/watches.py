"""What the daemon watches. Of Services the API server sends only those of type LoadBalancer."""

from __future__ import annotations

from collections.abc import Callable

from loadbalancer.model import NAMESPACE
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, then_trimmed

OnChange = Callable[[str, Json], None]

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NODES = "/api/v1/nodes"


class Watches:
    """`slices` is to be run only where a Service needs it: it may be large, and it changes often."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        on_service: OnChange,
        on_slice: OnChange,
        on_lease: OnChange,
        on_node: OnChange,
    ) -> None:
        def watch(path: str, handle: OnChange, selector: str = "") -> Reflector:
            params = {"fieldSelector": selector} if selector else {}
            name = path.rpartition("/")[2]
            return Reflector(client, path, name=name, params=params, on_change=then_trimmed(handle))

        self.services = watch(SERVICES, on_service, "spec.type=LoadBalancer")
        self.leases = watch(LEASES, on_lease)
        self.node = watch(NODES, on_node, f"metadata.name={node}")
        self.slices = watch(SLICES, on_slice)
        self.always = (self.leases, self.services, self.node)

    async def synced(self) -> None:
        """Wait until what is always watched has been listed once."""
        for one in self.always:
            await one.synced.wait()

    @property
    def last_error(self) -> str:
        """Why there are no news, "" if all is well."""
        return "; ".join(one.last_error for one in (*self.always, self.slices) if one.last_error)
