"""The driver's disk for its services: see Disk in ports.py. Blocking work runs in threads of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from csi.edge import file_systems, images, loops, targets
from csi.edge.store import Store
from csi.model import Access, Image, Kind, Mode, Space, Usage
from nodelib import mounts
from nodelib.errors import Permanent
from nodelib.key_locks import KeyLocks
from nodelib.threads import alone

log = logging.getLogger(__name__)


class Disk:
    """See Disk in ports.py."""

    def __init__(self, root: str) -> None:
        self._store = Store(root)
        self._mounting: KeyLocks[str] = KeyLocks()  # who copies a volume, and who mounts it

    async def recover(self) -> None:
        await alone(self._recover)

    def _recover(self) -> None:
        self._store.recover()
        for one in self._store.images(Kind.VOLUME):
            for path in self._mounts(one):  # who was killed while he copied a volume has left it frozen
                file_systems.thaw(path)

    async def image(self, kind: Kind, image_id: str) -> Image | None:
        return await alone(self._store.image, kind, image_id)

    async def images(self, kind: Kind) -> list[Image]:
        return await alone(self._store.images, kind)

    async def space(self) -> Space:
        return await alone(self._store.space)

    async def make(
        self, kind: Kind, image: Image, origin: tuple[Kind, str] | None = None, *, at_once: bool = False
    ) -> None:
        path = await alone(self._store.draft, kind, image.id)
        try:
            if origin is not None:
                await alone(images.copy, self._store.path(*origin), path, image.size, at_once=at_once)
            else:
                await alone(images.make, path, image.size)
                if image.mode is Mode.MOUNT:
                    await file_systems.make(image.fs_type, path)
            await alone(self._store.commit, kind, image)
        except BaseException:
            with suppress(OSError):
                await alone(self._store.discard, kind, image.id)
            raise

    async def remove(self, kind: Kind, image_id: str) -> None:
        await alone(self._detach, self._store.path(kind, image_id))
        await alone(self._store.remove, kind, image_id)

    async def users(self, image: Image) -> list[str]:
        return await alone(self._users, image)

    @asynccontextmanager
    async def at_rest(self, image: Image) -> AsyncIterator[None]:
        """Inside, nobody writes to its file system, and all that was written is in its image."""
        async with self._mounting.of(image.id):
            mounted = (await alone(self._mounts, image))[:1]
            if image.mode is Mode.MOUNT and not mounted and await alone(self._is_mounted, image):
                raise Permanent(
                    "its file system is still mounted in another mount namespace, and what was written is not all in "
                    "its image",
                    obj=image.id,
                    step="copy",
                    action="End the pod that has the node's file tree (hostPath /), or give that mount the "
                    "mountPropagation HostToContainer.",
                )
            frozen = [await alone(file_systems.freeze, path) for path in mounted]
            try:
                yield
            finally:
                for handle in frozen:
                    await alone(file_systems.release, handle)

    async def stage(self, image: Image, access: Access, target: str) -> None:
        async with self._mounting.of(image.id):
            await self._stage(image, access, target)

    async def _stage(self, image: Image, access: Access, target: str) -> None:
        path = self._store.path(Kind.VOLUME, image.id)
        if await alone(self._is_at, image, target):
            return
        alive = await alone(self._is_mounted, image)
        if not alive:  # fsck and resize2fs would write to the image below it
            await file_systems.repair(image.fs_type, path)
            if await alone(images.file_system_size, path, image.fs_type) < _filled(image):
                await file_systems.grow(image.fs_type, path)
        loop, handle = await alone(loops.attach, path, image.id, clears_itself=True)
        try:
            await alone(targets.mount, loop.path, target, image.fs_type, access.flags, access.data)
        finally:
            os.close(handle)
        await alone(file_systems.thaw, target)  # a driver that was killed, and then its node, may have left it frozen
        if await alone(images.file_system_size, path, image.fs_type) < _filled(image):
            try:
                await file_systems.grow_mounted(image.fs_type, loop.path, target)
            except Permanent as error:
                if not alive:
                    raise
                log.warning(
                    "%s: is still mounted in another mount namespace and does not grow yet: %s", image.id, error
                )

    async def grow_idle(self, image: Image, access: Access, staged: str) -> None:
        path = self._store.path(Kind.VOLUME, image.id)
        async with self._mounting.of(image.id):
            if await alone(images.file_system_size, path, image.fs_type) >= _filled(image):
                return
            if await alone(self._mounts, image) == [staged]:
                await alone(targets.unmount, staged)
                await self._stage(image, access, staged)

    async def publish(self, image: Image, source: str, target: str, *, read_only: bool) -> None:
        if image.mode is Mode.BLOCK:
            path = self._store.path(Kind.VOLUME, image.id)
            loop, handle = await alone(loops.attach, path, image.id, clears_itself=False)
            os.close(handle)
            source = loop.path
        await alone(targets.bind, source, target, read_only=read_only)

    async def unmount(self, target: str) -> None:
        await alone(targets.unmount, target)

    async def remove_target(self, target: str) -> None:
        await alone(targets.remove, target)

    async def release(self, image: Image) -> None:
        """Detach its devices unless they are in use."""
        if not await alone(self._users, image):
            await alone(self._detach, self._store.path(Kind.VOLUME, image.id))

    async def is_at(self, image: Image, path: str) -> bool:
        return await alone(self._is_at, image, path)

    async def grow(self, image: Image) -> None:
        async with self._mounting.of(image.id):
            await self._grow(image)

    async def _grow(self, image: Image) -> None:
        await alone(self._store.grow, image)
        for loop in await alone(loops.find, self._store.path(Kind.VOLUME, image.id)):
            await alone(loops.grow, loop)
        if image.mode is Mode.BLOCK:
            return
        found = await alone(self._mounted_loops, image)
        for loop, path in found[:1]:
            await file_systems.grow_mounted(image.fs_type, loop.path, path)

    async def usage(self, path: str) -> Usage:
        return await alone(file_systems.usage, path)

    def _loops(self, image: Image) -> list[loops.Loop]:
        return loops.find(self._store.path(Kind.VOLUME, image.id))

    def _mounted_loops(self, image: Image) -> list[tuple[loops.Loop, str]]:
        return [(loop, path) for loop in self._loops(image) for path in mounts.mounts_of(loop.device)]

    def _mounts(self, image: Image) -> list[str]:
        return [path for _, path in self._mounted_loops(image)]

    def _is_mounted(self, image: Image) -> bool:
        """In whatever mount namespace."""
        return any(loops.is_mounted(one) for one in self._loops(image))

    def _users(self, image: Image) -> list[str]:
        """Where it is mounted, or where its device is bound."""
        found = self._loops(image)
        roots = {f"/loop{loop.number}" for loop in found}
        bound = [one.path for one in mounts.mounts_below("/") if one.fs_type in _DEVICE_FS and one.root in roots]
        return [path for loop in found for path in mounts.mounts_of(loop.device)] + bound

    def _is_at(self, image: Image, path: str) -> bool:
        try:
            device = targets.mounted_device(path)
        except FileNotFoundError:
            return False
        return device != 0 and any(loop.device == device for loop in self._loops(image))

    def _detach(self, path: str) -> None:
        for loop in loops.find(path):
            loops.detach(loop)


_DEVICE_FS = ("devtmpfs", "tmpfs")


def _filled(image: Image) -> int:
    """The least size of its file system that counts as full: XFS leaves out a last, too small allocation group."""
    return image.size - (64 << 20 if image.fs_type == "xfs" else 1 << 20)
