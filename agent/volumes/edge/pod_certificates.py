"""PodCertificateRequests of this node, and the keys they are made with.

The Node authorizer lets a node list and watch requests by spec.nodeName only, and read a service
account that one of its pods runs as.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.kube.turns import Turns
from nodelib.tasks import Work

_GROUP = "/apis/certificates.k8s.io/v1"


class PodCertificateRequests:
    """The requests of this node, watched; run() must be kept running."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._needed = asyncio.Event()
        self._on_change: Callable[[str, str, bool], None] = lambda namespace, name, gone: None
        # One key at a time: making keys for many pods must not use all cores. The namespaces take turns: pods of one
        # may want thousands, each of which takes a second.
        self._keys = Turns(1, 1)
        self._requests = Reflector(
            client,
            f"{_GROUP}/podcertificaterequests",
            name="pod certificate requests",
            params={"fieldSelector": f"spec.nodeName={node}"},
            on_change=self._changed,
        )

    def follow(self, on_change: Callable[[str, str, bool], None]) -> None:
        """`on_change(namespace, name, gone)` is called for every request that changes or is deleted."""
        self._on_change = on_change

    async def run(self) -> None:
        """Watch, once the first request has been created."""
        await self._needed.wait()
        await self._requests.run()

    async def key(self, kind: str, namespace: str) -> tuple[bytes, bytes]:
        """For a pod of this namespace: (PKCS #8 in PEM, an empty PKCS #10 request in DER that it has signed).

        Raises Invalid for an unknown kind.

        OpenSSL releases the interpreter lock meanwhile; an RSA key takes seconds on a busy node.
        """
        async with self._keys.take(_requests(namespace)):
            return await asyncio.to_thread(_make_key, kind)

    async def account_uid(self, namespace: str, name: str) -> str:
        """UID of a service account. Raises ApiError or ApiUnreachable."""
        found = await self._client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
        return str(found["metadata"]["uid"])

    async def create(self, request: Json) -> str:
        """Create it; returns its name. Raises ApiError or ApiUnreachable."""
        self._needed.set()
        path = _requests(request["metadata"]["namespace"])
        return str((await self._client.post(path, request))["metadata"]["name"])

    def find(self, namespace: str, name: str) -> Json | None:
        """The request as last seen; None when it has not been seen yet or is gone."""
        return self._requests.store.get((namespace, name))

    def _changed(self, kind: str, item: Json, old: Json | None) -> None:
        meta = item["metadata"]
        self._on_change(str(meta.get("namespace", "")), str(meta["name"]), kind == "DELETED")

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [("pod certificate requests", self.run)]


def _requests(namespace: str) -> str:
    return f"{_GROUP}/namespaces/{namespace}/podcertificaterequests"


def _make_key(kind: str) -> tuple[bytes, bytes]:
    from agent.volumes.edge import pod_keys

    return pod_keys.make_key(kind)
