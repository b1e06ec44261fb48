"""One CSI driver's node service (csi.v1.Node) over its socket."""

from __future__ import annotations

from agent.plugins.edge.apis import CSI
from agent.plugins.edge.rpc import PluginClient
from agent.plugins.edge.wire import Json
from agent.volumes.model.csi import DriverFacts

_LIMIT = 120.0  # seconds; upstream's csiTimeout


class CsiDriver:
    """Every call raises PluginError. End it with close()."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name, self.endpoint = name, endpoint
        self._client = PluginClient(CSI, f"CSI driver {name}", endpoint)

    async def facts(self) -> DriverFacts:
        """What the driver says of itself and of this node."""
        info = await self._client.call("Node.NodeGetInfo", {}, timeout=_LIMIT)
        told = await self._client.call("Node.NodeGetCapabilities", {}, timeout=_LIMIT)
        return DriverFacts(
            name=self.name,
            endpoint=self.endpoint,
            node_id=info["node_id"],
            max_volumes=info["max_volumes_per_node"],
            topology=(info.get("accessible_topology") or {}).get("segments") or {},
            capabilities=frozenset(one["rpc"]["type"] for one in told["capabilities"] if one.get("rpc")),
        )

    async def stage(self, request: Json) -> None:
        await self._client.call("Node.NodeStageVolume", request, timeout=_LIMIT)

    async def unstage(self, handle: str, path: str) -> None:
        request = {"volume_id": handle, "staging_target_path": path}
        await self._client.call("Node.NodeUnstageVolume", request, timeout=_LIMIT)

    async def publish(self, request: Json) -> None:
        await self._client.call("Node.NodePublishVolume", request, timeout=_LIMIT)

    async def unpublish(self, handle: str, target: str) -> None:
        request = {"volume_id": handle, "target_path": target}
        await self._client.call("Node.NodeUnpublishVolume", request, timeout=_LIMIT)

    async def expand(self, request: Json) -> int:
        """The new size in bytes, 0: not said."""
        return int((await self._client.call("Node.NodeExpandVolume", request, timeout=_LIMIT))["capacity_bytes"])

    async def usage(self, handle: str, path: str) -> list[Json]:
        """VolumeUsage entries of a published volume."""
        request = {"volume_id": handle, "volume_path": path}
        answer = await self._client.call("Node.NodeGetVolumeStats", request, timeout=_LIMIT)
        return list(answer["usage"])

    async def close(self) -> None:
        await self._client.close()
