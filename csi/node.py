"""The node service: volumes are mounted, bound, grown and measured here."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from csi import names
from csi.capacity import Capacity
from csi.controller import volume_of
from csi.model import EPHEMERAL, TOPOLOGY, Access, Image, Kind, Mode
from csi.operations import Operations, translated
from csi.plan import access, sizes, volumes
from csi.ports import Disk
from nodelib.clock import Clock
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.quantity import value

log = logging.getLogger(__name__)

_CAPABILITIES = (1, 2, 3, 5)  # stage, stats, expand, SINGLE_NODE_MULTI_WRITER
_BYTES, _INODES = 1, 2  # VolumeUsage.Unit


class Node:
    """Every method takes a request and returns its answer. Raises Refused."""

    def __init__(self, disk: Disk, capacity: Capacity, operations: Operations, clock: Clock, node: str) -> None:
        self._disk, self._capacity, self._operations, self._clock, self._node = disk, capacity, operations, clock, node

    def methods(self) -> dict[str, Callable[[Json], Awaitable[Json]]]:
        return {
            "NodeGetInfo": self.info,
            "NodeGetCapabilities": self.capabilities,
            "NodeStageVolume": self.stage,
            "NodeUnstageVolume": self.unstage,
            "NodePublishVolume": self.publish,
            "NodeUnpublishVolume": self.unpublish,
            "NodeExpandVolume": self.expand,
            "NodeGetVolumeStats": self.stats,
        }

    async def info(self, _: Json) -> Json:
        return {"node_id": self._node, "accessible_topology": {"segments": {TOPOLOGY: self._node}}}

    async def capabilities(self, _: Json) -> Json:
        return {"capabilities": [{"rpc": {"type": one}} for one in _CAPABILITIES]}

    async def stage(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        target = names.path(request["staging_target_path"], "staging path")
        _check_capability(request)
        return await self._operations.run(image_id, self._stage(image_id, target, request["volume_capability"]))

    async def unstage(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        target = names.path(request["staging_target_path"], "staging path")
        return await self._operations.run(image_id, self._unstage(image_id, target))

    async def publish(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        names.path(request["target_path"], "target path")
        _check_capability(request)
        if request["volume_context"].get(EPHEMERAL) == "true":
            return await self._operations.run(names.own_id(image_id), self._publish_inline(request))
        return await self._operations.run(image_id, self._publish(request))

    async def unpublish(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        target = names.path(request["target_path"], "target path")
        return await self._operations.run(names.own_id(image_id), self._unpublish(names.own_id(image_id), target))

    async def expand(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        path = names.given(request["volume_path"], "volume path")
        required, limit = sizes.asked(request.get("capacity_range"))
        return await self._operations.run(image_id, self._expand(image_id, path, required, limit))

    async def stats(self, request: Json) -> Json:
        image_id = names.own_id(names.given(request["volume_id"], "volume id"))
        path = names.given(request["volume_path"], "volume path")
        return await translated(self._stats(image_id, path))

    async def _stage(self, image_id: str, target: str, capability: Json) -> Json:
        image = await volume_of(self._disk, image_id, self._node)
        wanted = access.of(capability, image)
        if image.mode is Mode.MOUNT:  # a device is made when it is published
            await self._disk.stage(image, wanted, target)
        return {}

    async def _unstage(self, image_id: str, target: str) -> Json:
        await self._disk.unmount(target)
        image = await self._disk.image(Kind.VOLUME, image_id)
        if image is not None:
            await self._disk.release(image)
        return {}

    async def _publish(self, request: Json) -> Json:
        image = await volume_of(self._disk, request["volume_id"], self._node)
        wanted = access.of(request["volume_capability"], image, read_only=request["readonly"])
        target, staged = names.path(request["target_path"], "target path"), request["staging_target_path"]
        if image.mode is Mode.MOUNT:
            staged = names.path(staged, "staging path")
            await self._ensure_staged(image, wanted, staged)
        if access.is_for_one(request["volume_capability"]):
            others = [one for one in await self._disk.users(image) if one not in (staged, target)]
            if others:
                raise Refused("FAILED_PRECONDITION", f"only one pod may use the volume, and it is used at {others[0]}")
        await self._disk.publish(image, staged, target, read_only=wanted.read_only)
        return {}

    async def _ensure_staged(self, image: Image, wanted: Access, staged: str) -> None:
        """Staged, and grown if it could not grow while a pod used it: a kubelet does not stage it for every pod."""
        if await self._disk.is_at(image, staged):
            await self._disk.grow_idle(image, wanted, staged)
        elif await self._disk.users(image):
            raise Refused("FAILED_PRECONDITION", f"the volume is not staged at {staged}")
        else:  # a driver that was killed while it did the above
            await self._disk.stage(image, wanted, staged)

    async def _publish_inline(self, request: Json) -> Json:
        """The volume of one pod alone, which is made and removed with it."""
        image_id = names.own_id(request["volume_id"])
        target = names.path(request["target_path"], "target path")
        mode, fs_type = access.common([request["volume_capability"]])
        if mode is Mode.BLOCK:
            raise Refused("INVALID_ARGUMENT", "an inline volume is not a block device")
        image = await self._disk.image(Kind.VOLUME, image_id)
        if image is None:
            fs_type = access.file_system(mode, fs_type)
            size = sizes.chosen(_inline_bytes(request["volume_context"]), 0, mode, fs_type)
            image = Image(image_id, request["volume_id"][:128], size, mode, fs_type, "", int(self._clock.now()))
            async with self._capacity.reserved(size, inline=True):
                await self._disk.make(Kind.VOLUME, image)
        wanted = access.of(request["volume_capability"], image, read_only=request["readonly"])
        flags = wanted.flags | (access.READ_ONLY if wanted.read_only else 0)
        await self._disk.stage(image, replace(wanted, flags=flags), target)
        return {}

    async def _unpublish(self, image_id: str, target: str) -> Json:
        await self._disk.unmount(target)
        await self._disk.remove_target(target)
        image = await self._disk.image(Kind.VOLUME, image_id)
        if names.is_inline(image_id):
            await self._disk.remove(Kind.VOLUME, image_id)
        elif image is not None and image.mode is Mode.BLOCK:
            await self._disk.release(image)
        return {}

    async def _expand(self, image_id: str, path: str, required: int, limit: int) -> Json:
        image = await volume_of(self._disk, image_id, self._node)
        if image.mode is Mode.MOUNT and not await self._disk.is_at(image, path):
            raise Refused("NOT_FOUND", f"the volume is not mounted at {path}")
        size = sizes.grown(image.size, required, limit)
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self._capacity.reserved(size - image.size))
            except Refused as error:
                # For RESOURCE_EXHAUSTED a kubelet would ask again for ever, and begin no pod meanwhile. A smaller size
                # is taken up only when this one is refused for good.
                raise Refused("OUT_OF_RANGE", f"{error.message} Then ask for another size.") from error
            await self._disk.grow(replace(image, size=size))
        return {"capacity_bytes": size}

    async def _stats(self, image_id: str, path: str) -> Json:
        image = await volume_of(self._disk, image_id, self._node)
        if not await self._disk.is_at(image, path):
            raise Refused("NOT_FOUND", f"the volume is not mounted at {path}")
        if image.mode is Mode.BLOCK:
            return {"usage": [{"unit": _BYTES, "total": image.size}]}
        found = await self._disk.usage(path)
        inodes = {"total": found.inodes, "available": found.inodes_free, "used": found.inodes - found.inodes_free}
        size = {"total": found.total, "available": found.available, "used": found.used}
        return {"usage": [{"unit": _BYTES, **size}, {"unit": _INODES, **inodes}]}


def _check_capability(request: Json) -> None:
    if not request.get("volume_capability"):
        raise Refused("INVALID_ARGUMENT", "the volume capability is missing")


def _inline_bytes(context: dict[str, str]) -> int:
    text = volumes.inline_size(context)
    try:
        found = value(text) if text else 0
    except Invalid as error:
        raise Refused("INVALID_ARGUMENT", f"size: {error.message}") from error
    if found < 0:
        raise Refused("INVALID_ARGUMENT", "size is negative")
    return found
