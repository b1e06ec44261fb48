"""CertificateSigningRequests: create one and follow it until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient

_SHORT_WATCH = 1.0  # seconds
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class SigningRequests:
    """The CertificateSigningRequests of the API server behind `client`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def create(self, body: Json) -> str:
        """Create a request, or use an existing one of that name. Returns the name. Raises ApiError, ApiUnreachable."""
        try:
            return str((await self._client.post(_REQUESTS, body))["metadata"]["name"])
        except ApiError as error:
            if error.is_already_exists:
                return str(body["metadata"]["name"])
            raise

    async def follow(self, name: str) -> AsyncGenerator[Json, None]:
        """The request now and after each change, until the server ends the watch. Raises ApiError, ApiUnreachable."""
        found = await self._client.get(f"{_REQUESTS}/{name}")
        yield found
        version = str(found["metadata"].get("resourceVersion", ""))
        params = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version}
        loop = asyncio.get_running_loop()
        started = loop.time()
        async for event in self._client.stream(_REQUESTS, params):
            if event["type"] == "DELETED":
                raise ApiError(404, "NotFound", "it was deleted", obj=f"CertificateSigningRequest {name}")
            if event["type"] != "BOOKMARK":
                yield event["object"]
        if loop.time() - started < _SHORT_WATCH:  # the caller follows again: not in a circle without a rest
            await asyncio.sleep(_SHORT_WATCH)
