"""Random changes of Services and EndpointSlices, like those of controllers and users; the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from cli.bench.services.objects import NAMESPACE, Size
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient

_SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
_MERGE = "merge"


class Churn:
    """Changes the Services of `size` by the API server. `failed`: how often it refused, by reason."""

    def __init__(self, client: KubeClient, size: Size, node: str, seed: int) -> None:
        self.done = 0
        self.failed: dict[str, int] = {}
        self._client, self._size, self._node = client, size, node
        self._random = random.Random(seed)
        self._names = [size.name(index) for index in range(size.services)]
        self._next = size.services
        self._given = 0

    async def step(self) -> None:
        """Make one random change. A refusal (a name or NodePort that is taken) is only counted."""
        weighted: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._endpoints, 12),
            (self._second_slice, 2),
            (self._policies, 4),
            (self._replace, 3),
        ]
        change = self._random.choices([one for one, _ in weighted], [weight for _, weight in weighted])[0]
        try:
            await change()
        except ApiError as error:
            self.failed[error.reason] = self.failed.get(error.reason, 0) + 1
        self.done += 1

    async def _endpoints(self) -> None:
        entries = [self._endpoint() for _ in range(self._random.choice((0, 1, 2, 2, 3, 5)))]
        await self._client.patch(f"{_SLICES}/{self._random.choice(self._names)}", {"endpoints": entries}, _MERGE)

    async def _second_slice(self) -> None:
        name = self._random.choice(self._names)
        path = f"{_SLICES}/{name}-more"
        try:
            await self._client.delete(path)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._client.post(_SLICES, self._slice(name, f"{name}-more", "TCP"))

    async def _policies(self) -> None:
        pick = self._random.choice
        spec: Json = pick(
            (
                {"sessionAffinity": "ClientIP"},
                {"sessionAffinity": "None", "sessionAffinityConfig": None},
                {"internalTrafficPolicy": "Local"},
                {"internalTrafficPolicy": "Cluster"},
                {"externalIPs": [self._address()]},
                {"externalIPs": None},
                {"type": "NodePort"},
                {"type": "ClusterIP", "externalTrafficPolicy": None},
            )
        )
        await self._client.patch(f"{_SERVICES}/{pick(self._names)}", {"spec": spec}, _MERGE)

    async def _replace(self) -> None:
        """Replace a Service and its slice by another, so that their number stays the same."""
        place = self._random.randrange(len(self._names))
        old = self._names[place]
        new = f"soak-{self._next:05d}"
        self._next += 1
        await self._client.delete(f"{_SERVICES}/{old}")
        await self._client.delete(f"{_SLICES}/{old}")
        protocol = self._random.choice(("TCP", "TCP", "UDP"))
        await self._client.post(_SLICES, self._slice(new, new, protocol))
        await self._client.post(_SERVICES, self._service(new, protocol))
        self._names[place] = new
        if self._random.random() < 0.3:
            ingress = [{"ip": self._address()}]
            status = {"status": {"loadBalancer": {"ingress": ingress}}}
            await self._client.patch(f"{_SERVICES}/{new}/status", status, _MERGE)

    def _address(self) -> str:
        """An unused address of 198.18.0.0/15: if two Services shared one, either could be the one that is served."""
        self._given += 1
        return f"198.{18 + (self._given >> 16)}.{self._given >> 8 & 255}.{self._given & 255}"

    def _service(self, name: str, protocol: str) -> Json:
        pick = self._random.choice
        kind = pick(("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer"))
        spec: Json = {"type": kind, "ports": [{"name": "main", "port": 80, "protocol": protocol}]}
        if self._random.random() < 0.3:
            spec["ports"].append({"name": "more", "port": 443, "protocol": "TCP"})
        if kind != "ClusterIP":
            spec["externalTrafficPolicy"] = pick(("Cluster", "Local"))
        if kind == "LoadBalancer" and self._random.random() < 0.5:
            spec["loadBalancerSourceRanges"] = ["192.0.2.0/24", "198.51.100.0/25"]
        if self._random.random() < 0.2:
            spec["sessionAffinity"] = "ClientIP"
        return {"metadata": {"name": name}, "spec": spec}

    def _slice(self, service: str, name: str, protocol: str) -> Json:
        return {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "ports": [
                {"name": "main", "port": 8080, "protocol": protocol},
                {"name": "more", "port": 8443, "protocol": "TCP"},
            ],
            "endpoints": [self._endpoint() for _ in range(2)],
        }

    def _endpoint(self) -> Json:
        number = self._random.randrange(1 << 20)
        state = self._random.choice(("ready", "ready", "ready", "terminating", "not ready"))
        conditions = {
            "ready": state == "ready",
            "serving": state in ("ready", "terminating"),
            "terminating": state == "terminating",
        }
        node = self._random.choice((self._node, "elsewhere"))
        address = f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        return {"addresses": [address], "conditions": conditions, "nodeName": node}
