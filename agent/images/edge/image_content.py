"""containerd's content service, on the socket that serves CRI: the blobs it has and the ones it is writing.

CRI says nothing about a pull until it is over. containerd's own API does, whether its CRI pulls by the transfer
service or the client: api/services/content/v1/content.proto. A runtime without that API answers UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from agent.common.model.errors import PluginError
from agent.images.model.pulls import Manifest
from agent.plugins.edge.rpc import PluginClient
from nodelib.json_values import Json, decode
from nodelib.plugin_apis.wire import Api

# google.protobuf.Timestamp has the same encoding as any message with these two fields.
CONTENT = Api(
    "containerd.services.content.v1",
    """
    Timestamp: seconds int64, nanos int32
    Info: digest string, size int64, created_at Timestamp, updated_at Timestamp, labels {string}
    ListContentRequest: filters [string]
    ListContentResponse: info [Info]
    ReadContentRequest: digest string, offset int64, size int64
    ReadContentResponse: offset int64, data bytes
    Status: started_at Timestamp, updated_at Timestamp, ref string, offset int64, total int64, expected string
    ListStatusesRequest: filters [string]
    ListStatusesResponse: statuses [Status]
    rpc Content.List ListContentRequest stream ListContentResponse
    rpc Content.Read ReadContentRequest stream ReadContentResponse
    rpc Content.ListStatuses ListStatusesRequest ListStatusesResponse
    """,
)
_NAMESPACE = (("containerd-namespace", "k8s.io"),)  # internal/cri/constants
_NAME = "containerd's content service"
_LIMIT = 5.0  # seconds
# Registries refuse larger ones (MaxManifestSize of distribution). One that does not may serve any number of bytes, and
# the runtime stores them.
_MOST_MANIFEST = 4 << 20
_SOURCE = "containerd.io/distribution.source."
_CHILD = "containerd.io/gc.ref.content."


class ImageContent:
    """agent.images.ports.ImageContent. Every call raises PluginError; without the API its code is UNIMPLEMENTED.

    It connects with the first call. End it with close().
    """

    def __init__(self, endpoint: str) -> None:
        self._socket = endpoint.removeprefix("unix://")
        self._client: PluginClient | None = None

    async def under_way(self) -> Mapping[str, int]:
        """Blobs that are being written: digest -> bytes so far."""
        answer = await self._connected().call("Content.ListStatuses", {}, timeout=_LIMIT)
        # Refs are kind-digest: core/remotes/handlers.go MakeRefKey.
        return {one["ref"].partition("-")[2]: int(one["offset"]) for one in answer["statuses"]}

    async def manifests(self, host: str, repository: str) -> tuple[Manifest, ...]:
        """The manifests of images (not indexes) from this repository. `host`: without its port."""
        source = f'labels."{_SOURCE}{host}"~={json.dumps(f"(^|,){re.escape(repository)}(,|$)")}'
        found = await self._listed([f'{source},labels."{_CHILD}config"'])
        return tuple(_manifest(one) for one in found if int(one["size"]) <= _MOST_MANIFEST)

    async def sizes(self, manifest: str) -> Mapping[str, int]:
        """Digest -> bytes of the config and all layers that the manifest names."""
        answers = await self._streamed("Content.Read", {"digest": manifest})
        data = b"".join(one["data"] for one in answers)
        try:
            return await asyncio.to_thread(_sizes, data)
        except (ValueError, KeyError, TypeError) as error:
            raise PluginError(f"this is not an image manifest: {error!r}", obj=manifest, step="read") from error

    async def present(self, digests: Collection[str]) -> frozenset[str]:
        """Those of the blobs that are complete."""
        found = await self._listed([f"digest=={one}" for one in sorted(digests)]) if digests else []
        return frozenset(str(one["digest"]) for one in found)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _listed(self, filters: list[str]) -> list[Any]:
        return [one for answer in await self._streamed("Content.List", {"filters": filters}) for one in answer["info"]]

    async def _streamed(self, method: str, fields: Mapping[str, Any]) -> list[Json]:
        try:
            async with asyncio.timeout(_LIMIT):
                return [answer async for answer in self._connected().stream(method, fields)]
        except TimeoutError as error:
            raise PluginError("no answer in time", obj=_NAME, step=method, code="DEADLINE_EXCEEDED") from error

    def _connected(self) -> PluginClient:
        if self._client is None:
            self._client = PluginClient(CONTENT, _NAME, self._socket, _NAMESPACE)
        return self._client


def _sizes(manifest: bytes) -> dict[str, int]:
    document = decode(manifest)
    return {str(one["digest"]): int(one["size"]) for one in (document["config"], *document["layers"])}


def _manifest(info: Mapping[str, Any]) -> Manifest:
    labels = info["labels"]
    refers = frozenset(str(digest) for label, digest in labels.items() if label.startswith(_CHILD))
    made = info.get("created_at") or {}
    return Manifest(str(info["digest"]), made.get("seconds", 0) + made.get("nanos", 0) / 1e9, refers)
