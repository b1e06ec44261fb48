"""ResourceClaims and ResourceSlices in the API server."""

from __future__ import annotations

from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient

_RESOURCE = "/apis/resource.k8s.io/v1"


class DraObjects:
    """Every call raises ApiError or ApiUnreachable."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client, self._node = client, node

    async def claim(self, namespace: str, name: str) -> Json | None:
        """The ResourceClaim; None: it does not exist."""
        try:
            return await self._client.get(f"{_RESOURCE}/namespaces/{namespace}/resourceclaims/{name}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def delete_slices(self, driver: str) -> None:
        """Delete all ResourceSlices of a driver for this node, "": of all drivers. The scheduler counts on them."""
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        try:
            await self._client.request("DELETE", f"{_RESOURCE}/resourceslices", params={"fieldSelector": selector})
        except ApiError as error:
            if not error.is_not_found:  # the API server has none
                raise
