"""The controller service: volumes and snapshots of this node. https://github.com/container-storage-interface/spec"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from csi import names
from csi.capacity import Capacity
from csi.copies import Copies
from csi.model import Image, Kind, Mode, VolumeRequest
from csi.operations import PATIENCE, Operations, translated
from csi.plan import access, sizes, volumes
from csi.ports import Disk
from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.text import one_line

log = logging.getLogger(__name__)

# ControllerServiceCapability.RPC: create and delete volumes, list volumes, capacity, create and delete snapshots,
# list snapshots, clone, SINGLE_NODE_MULTI_WRITER. Volumes grow by the node service alone, as whoever asks for a
# controller's part asks any node.
_CAPABILITIES = (1, 3, 4, 5, 6, 7, 13)


class Controller:
    """Every method takes a request and returns its answer. Raises Refused."""

    def __init__(self, disk: Disk, capacity: Capacity, operations: Operations, clock: Clock, node: str) -> None:
        self._disk, self._capacity, self._operations, self._clock, self._node = disk, capacity, operations, clock, node
        self._copies = Copies()

    def methods(self) -> dict[str, Callable[[Json], Awaitable[Json]]]:
        return {
            "CreateVolume": self.create_volume,
            "DeleteVolume": self.delete_volume,
            "ValidateVolumeCapabilities": self.validate,
            "ListVolumes": self.list_volumes,
            "GetCapacity": self.capacity,
            "ControllerGetCapabilities": self.capabilities,
            "CreateSnapshot": self.create_snapshot,
            "DeleteSnapshot": self.delete_snapshot,
            "ListSnapshots": self.list_snapshots,
        }

    async def capabilities(self, _: Json) -> Json:
        return {"capabilities": [{"rpc": {"type": one}} for one in _CAPABILITIES]}

    async def create_volume(self, request: Json) -> Json:
        wanted = volumes.read_request(request)
        volumes.check_topology(request.get("accessibility_requirements"), self._node)
        return await self._operations.run(wanted.id, self._create(wanted), PATIENCE)

    async def delete_volume(self, request: Json) -> Json:
        image_id = names.given(request["volume_id"], "volume id")
        if not names.is_id(Kind.VOLUME, image_id):
            return {}
        return await self._operations.run(image_id, self._delete(image_id))

    async def validate(self, request: Json) -> Json:
        names.given(request["volume_id"], "volume id")
        found = request.get("volume_capabilities") or []
        if not found:
            raise Refused("INVALID_ARGUMENT", "the capabilities are missing")
        image = await self._volume(request["volume_id"])
        for one in found:
            problem = access.unsupported(one) or access.misfit(one, image)
            if problem:
                return {"message": problem}
        return {"confirmed": {"volume_capabilities": found, "parameters": request.get("parameters") or {}}}

    async def list_volumes(self, request: Json) -> Json:
        found = [one for one in await self._disk.images(Kind.VOLUME) if not names.is_inline(one.id)]
        shown, following = volumes.page(found, request["starting_token"], request["max_entries"])
        return {"entries": [{"volume": volumes.volume(one, self._node)} for one in shown], "next_token": following}

    async def capacity(self, request: Json) -> Json:
        volumes.check_parameters(request.get("parameters") or {})
        wrong = [one for one in request.get("volume_capabilities") or [] if access.unsupported(one)]
        here = volumes.reaches(request.get("accessible_topology") or {}, self._node)
        left = await self._capacity.available() if here and not wrong else 0
        return {"available_capacity": left, "maximum_volume_size": {"value": min(left, sizes.LARGEST)}}

    async def create_snapshot(self, request: Json) -> Json:
        source = names.given(request["source_volume_id"], "source volume id")
        image_id = names.id_of(Kind.SNAPSHOT, request["name"])
        parameters = request.get("parameters") or {}
        volumes.check_parameters(parameters)
        work = self._snapshot(image_id, request["name"], source, volumes.namespace(parameters))
        return await self._operations.run(image_id, work, PATIENCE)

    async def delete_snapshot(self, request: Json) -> Json:
        image_id = names.id_in(names.given(request["snapshot_id"], "snapshot id"))
        if not names.is_id(Kind.SNAPSHOT, image_id):
            return {}
        return await self._operations.run(image_id, self._removed(Kind.SNAPSHOT, image_id))

    async def list_snapshots(self, request: Json) -> Json:
        found = await self._disk.images(Kind.SNAPSHOT)
        for key, wanted in (("id", names.id_in(request["snapshot_id"])), ("source", request["source_volume_id"])):
            if wanted:
                found = [one for one in found if getattr(one, key) == wanted]
        shown, following = volumes.page(found, request["starting_token"], request["max_entries"])
        return {"entries": [{"snapshot": volumes.snapshot(one, self._node)} for one in shown], "next_token": following}

    async def _create(self, wanted: VolumeRequest) -> Json:
        existing = await self._disk.image(Kind.VOLUME, wanted.id)
        if existing is not None:
            problem = volumes.problem_with(existing, wanted)
            if problem:
                raise Refused("ALREADY_EXISTS", f"there is another volume of this name: {problem}")
            return {"volume": volumes.volume(existing, self._node)}
        origin = await self._origin(wanted)
        fs_type = origin.fs_type if origin else access.file_system(wanted.mode, wanted.fs_type)
        size = sizes.chosen(wanted.required, wanted.limit, wanted.mode, fs_type, origin.size if origin else 0)
        made = Image(wanted.id, wanted.name, size, wanted.mode, fs_type, wanted.source, int(self._clock.now()))
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._capacity.reserved(size))
            if origin is None:
                await self._disk.make(Kind.VOLUME, made)
            else:
                await self._copy(held, wanted.namespace, (wanted.source_kind, origin), Kind.VOLUME, made)
        log.info("%s: made, %d bytes, %s", made.id, made.size, made.fs_type or "block")
        return {"volume": volumes.volume(made, self._node)}

    async def _origin(self, wanted: VolumeRequest) -> Image | None:
        if not wanted.source:
            return None
        found = await self._disk.image(wanted.source_kind, wanted.source)
        if found is None and names.is_id(wanted.source_kind, wanted.source):
            # It may be on another node; with this code the provisioner has the scheduler choose again.
            problem = f"{wanted.source} is not on {self._node}, and a copy is made where it is"
            raise Refused("RESOURCE_EXHAUSTED", problem)
        if found is None:
            raise Refused("NOT_FOUND", f"there is no {one_line(wanted.source, 100)}")
        if found.mode is not wanted.mode:
            # Whoever writes to a device can write a file system that harms the kernel which mounts it.
            raise Refused("INVALID_ARGUMENT", f"{wanted.source} was made for {found.mode}, not for {wanted.mode}")
        if wanted.fs_type and found.fs_type != wanted.fs_type and wanted.mode is Mode.MOUNT:
            raise Refused("INVALID_ARGUMENT", f"{wanted.source} has {found.fs_type}, not {wanted.fs_type}")
        return found

    async def _copy(
        self, held: AsyncExitStack, namespace: str, copied: tuple[Kind, Image], kind: Kind, made: Image
    ) -> None:
        """Copy an image that nobody writes to meanwhile, when the namespace has its turn."""
        await held.enter_async_context(self._copies.turn(namespace))
        in_use, (source, origin) = False, copied
        if source is Kind.VOLUME:
            # Nobody can be kept from writing to a device.
            in_use = origin.mode is Mode.BLOCK and bool(await self._disk.users(origin))
            await held.enter_async_context(self._disk.at_rest(origin))
        await self._disk.make(kind, made, (source, origin.id), at_once=in_use)

    async def _delete(self, image_id: str) -> Json:
        image = await self._disk.image(Kind.VOLUME, image_id)
        if image is not None and (users := await self._disk.users(image)):
            raise Refused("FAILED_PRECONDITION", f"the volume is in use: {', '.join(users[:3])}")
        return await self._removed(Kind.VOLUME, image_id)

    async def _removed(self, kind: Kind, image_id: str) -> Json:
        await self._disk.remove(kind, image_id)
        return {}

    async def _snapshot(self, image_id: str, name: str, source: str, namespace: str) -> Json:
        existing = await self._disk.image(Kind.SNAPSHOT, image_id)
        if existing is not None:
            if existing.source != source:
                raise Refused("ALREADY_EXISTS", f"there is another snapshot of this name, of {existing.source}")
            return {"snapshot": volumes.snapshot(existing, self._node)}
        origin = await self._volume(source)
        made = Image(image_id, name, origin.size, origin.mode, origin.fs_type, source, int(self._clock.now()))
        occupied = (await self._disk.space()).occupied.get(source, 0)
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._capacity.reserved(occupied))
            await self._copy(held, namespace, (Kind.VOLUME, origin), Kind.SNAPSHOT, made)
        log.info("%s: made of %s", image_id, source)
        return {"snapshot": volumes.snapshot(made, self._node)}

    async def _volume(self, image_id: str) -> Image:
        return await volume_of(self._disk, image_id, self._node)


async def volume_of(disk: Disk, image_id: str, node: str) -> Image:
    """Raises Refused when there is none."""

    async def read() -> Json:
        return {"image": await disk.image(Kind.VOLUME, image_id)}

    found = (await translated(read()))["image"]
    if not isinstance(found, Image):
        raise Refused("NOT_FOUND", f"there is no such volume on {node}")
    return found
