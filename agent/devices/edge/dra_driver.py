"""The kubelet plugin of one DRA driver (dra v1), called over its socket."""

from __future__ import annotations

from collections.abc import Sequence

from agent.devices.model.dra import ClaimRef
from agent.plugins.edge.apis import DRA
from agent.plugins.edge.rpc import PluginClient
from nodelib.json_values import Json

_LIMIT = 45.0  # seconds; upstream's defaultClientCallTimeout


class DraDriver:
    """The connection to one driver. Every call raises PluginError. End it with close()."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client = PluginClient(DRA, f"DRA driver {name}", endpoint)

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        """NodePrepareResourceResponse by claim UID."""
        return await self._call("DRAPlugin.NodePrepareResources", claims)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        """NodeUnprepareResourceResponse by claim UID."""
        return await self._call("DRAPlugin.NodeUnprepareResources", claims)

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, method: str, claims: Sequence[ClaimRef]) -> dict[str, Json]:
        asked = [{"namespace": one.namespace, "uid": one.uid, "name": one.name} for one in claims]
        return dict((await self._client.call(method, {"claims": asked}, timeout=_LIMIT))["claims"])
