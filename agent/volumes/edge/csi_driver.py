"""The node service of one CSI driver (csi.v1.Node) over its socket. Upstream: pkg/volume/csi/csi_client.go."""

from __future__ import annotations

from agent.plugins.edge.rpc import PluginClient
from agent.volumes.model.csi import DriverFacts
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI

_TIMEOUT = 120.0  # seconds; upstream's csiTimeout
_MOST = 64 * 1024  # bytes of an answer; the longest one that a Node can have, of NodeGetInfo, has half as many


class CsiDriver:
    """Every call raises PluginError. Call close() at the end."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name, self.endpoint = name, endpoint
        self._client = PluginClient(CSI, f"CSI driver {name}", endpoint, most=_MOST)

    async def facts(self) -> DriverFacts:
        """What the driver reports about itself and this node."""
        info = await self._client.call("Node.NodeGetInfo", {}, timeout=_TIMEOUT)
        answer = await self._client.call("Node.NodeGetCapabilities", {}, timeout=_TIMEOUT)
        return DriverFacts(
            name=self.name,
            endpoint=self.endpoint,
            node_id=info["node_id"],
            max_volumes=info["max_volumes_per_node"],
            topology=(info.get("accessible_topology") or {}).get("segments") or {},
            capabilities=frozenset(one["rpc"]["type"] for one in answer["capabilities"] if one.get("rpc")),
        )

    async def stage(self, request: Json) -> None:
        await self._client.call("Node.NodeStageVolume", request, timeout=_TIMEOUT)

    async def unstage(self, handle: str, path: str) -> None:
        request = {"volume_id": handle, "staging_target_path": path}
        await self._client.call("Node.NodeUnstageVolume", request, timeout=_TIMEOUT)

    async def publish(self, request: Json) -> None:
        await self._client.call("Node.NodePublishVolume", request, timeout=_TIMEOUT)

    async def unpublish(self, handle: str, target: str) -> None:
        request = {"volume_id": handle, "target_path": target}
        await self._client.call("Node.NodeUnpublishVolume", request, timeout=_TIMEOUT)

    async def expand(self, request: Json) -> int:
        """The new size in bytes, 0: not reported."""
        return int((await self._client.call("Node.NodeExpandVolume", request, timeout=_TIMEOUT))["capacity_bytes"])

    async def usage(self, handle: str, path: str) -> list[Json]:
        """VolumeUsage entries of a published volume."""
        request = {"volume_id": handle, "volume_path": path}
        answer = await self._client.call("Node.NodeGetVolumeStats", request, timeout=_TIMEOUT)
        return list(answer["usage"])

    async def close(self) -> None:
        await self._client.close()
