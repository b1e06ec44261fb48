"""Local PersistentVolumes: a device is mounted once for all pods and bound into each; a directory is used in place.

A pod's directory for the volume is made before anything is mounted and removed last, so that an agent that was killed
at any point finds on disk who uses what. One task at a time works on a volume, and one on a device. A volume that a pod
has mounted already is left alone, even if its device is gone meanwhile. Follows pkg/volume/local.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.common.work.pod_warnings import Warn
from agent.volumes.model.local import Device, LocalVolume
from agent.volumes.model.volumes import HostPath
from agent.volumes.plan import local_volumes as plan
from agent.volumes.plan.local_volumes import Staging
from agent.volumes.ports import LocalDisk
from agent.volumes.work.growing import GrowingVolume
from nodelib.command import CommandError
from nodelib.errors import NodewrightError, Temporary
from nodelib.key_locks import KeyLocks
from nodelib.threads import alone

log = logging.getLogger(__name__)

_LONG = 3600.0  # seconds: mkfs, fsck and resize of a large, slow disk
_MOUNT_SECONDS = 300.0  # mount(2) may replay a journal


@dataclass(frozen=True, slots=True)
class LocalVolumeInUse:
    """A volume that a pod was given, at this path of the node."""

    pod: Pod
    uid: str
    volume: LocalVolume
    path: str


class LocalVolumes:
    """mount() and release() are idempotent; GrowingVolumes says what `new_mount` and growing() are for.

    `warn` emits a Warning event about a pod.
    """

    def __init__(self, root_dir: str, disk: LocalDisk, warn: Warn) -> None:
        self._root_dir, self._disk, self._warn = root_dir, disk, warn
        self._locks = KeyLocks[str | int]()
        self._mounted: dict[str, tuple[Pod, dict[str, LocalVolume]]] = {}
        self._paths: dict[tuple[str, str], str] = {}  # by UID and the name of the volume
        self.new_mount = asyncio.Event()

    async def mount(self, pod: Pod, paths: PodPaths, volumes: Sequence[LocalVolume]) -> list[HostPath]:
        """The directories that the pod is to be given. Raises Temporary or Permanent, which name the volume."""
        made = []
        for one in volumes:
            made.append(await self._mount_named(pod, paths, one))
            self._mounted.setdefault(paths.uid, (pod, {}))[1][one.name] = one
            self._paths[paths.uid, one.name] = made[-1].path
            self.new_mount.set()
        return made

    async def release(self, paths: PodPaths) -> None:
        """Unmount the devices found in the pod's directory; those that no other pod uses, from the node too.

        Raises MountError when one is in use, OSError for the disk.
        """
        for name in self._mounted.pop(paths.uid, ("", {}))[1]:
            self._paths.pop((paths.uid, name), None)
        names = await asyncio.to_thread(self._disk.volumes_of, paths)
        if names:
            await alone(self._disk.unbind_sub_paths, paths)
        for name in names:
            async with self._locks.of(name):
                await self._release(paths, name)

    def in_use(self) -> list[LocalVolumeInUse]:
        """Every volume with a file system that a pod has now. Scrapes ask from another thread."""
        return [
            LocalVolumeInUse(pod, uid, one, self._paths.get((uid, one.name), one.path))
            for uid, (pod, volumes) in list(self._mounted.items())
            for one in list(volumes.values())
            if not one.block
        ]

    def growing(self) -> list[GrowingVolume]:
        """Every volume that is mounted for a pod now, raw devices and directories as well: their claims' status counts.

        After a restart, mount() is called again for the pods that run.
        """
        return [
            GrowingVolume(
                pod,
                one.spec_name,
                one.claim,
                plan.is_read_only(one),
                f"local {one.spec_name}",
                partial(self._grow, pod, uid, one),
            )
            for uid, (pod, volumes) in self._mounted.items()
            for one in volumes.values()
        ]

    async def _grow(self, pod: Pod, uid: str, volume: LocalVolume, _size: int) -> bool:
        """A file system becomes as large as its device; there is nothing to do for a raw device or a directory."""
        async with self._locks.of(volume.spec_name):
            if volume.name not in self._mounted.get(uid, (pod, {}))[1]:
                return False
            if not volume.block:
                with _explained(pod, volume):
                    await self._grow_file_system(volume)
            return True

    async def _grow_file_system(self, volume: LocalVolume) -> None:
        device = await alone(self._disk.device, volume.path)
        if device is None:
            return
        path = plan.global_path(self._root_dir, volume.spec_name)
        plan.check_growable(volume, device, await alone(self._disk.global_mount, path))
        async with self._locks.of(device.number):
            argv = plan.grow_command(plan.content(device, await self._disk.inspect(device)), device, path)
            if argv:
                log.info("volume %s: growing its file system: %s", volume.spec_name, " ".join(argv))
                await self._run(argv, _LONG)

    async def _release(self, paths: PodPaths, name: str) -> None:
        target, path = paths.volume(plan.PLUGIN, name), plan.global_path(self._root_dir, name)
        await alone(self._disk.unmount, target)
        if not await self._others(paths, name):
            await alone(self._disk.unmount, path)
            await alone(self._disk.remove, path)
        await alone(self._disk.remove, target)

    async def _mount_named(self, pod: Pod, paths: PodPaths, volume: LocalVolume) -> HostPath:
        try:
            with _explained(pod, volume):
                return await self._mount(pod, paths, volume)
        except NodewrightError as error:
            raise plan.failed(volume, error) from error.__cause__

    async def _mount(self, pod: Pod, paths: PodPaths, volume: LocalVolume) -> HostPath:
        if volume.block:
            return plan.shown(volume, volume.path)
        target = paths.volume(plan.PLUGIN, volume.spec_name)
        async with self._locks.of(volume.spec_name):
            if await alone(self._disk.is_bound, target, read_only=volume.read_only):
                shared = bool(await self._others(paths, volume.spec_name))
                return plan.shown(volume, target, gives_to_group=not shared)
            device = await alone(self._disk.device, volume.path)
            if device is None:
                return plan.shown(volume, volume.path)
            await alone(self._disk.make, target)
            shared = bool(await self._others(paths, volume.spec_name))
            path = plan.global_path(self._root_dir, volume.spec_name)
            # Two PersistentVolumes may name one device: it must not be formatted by both.
            async with self._locks.of(device.number):
                await self._stage(volume, device, path, shared=shared)
            await alone(self._disk.bind, path, target, read_only=volume.read_only)
            if shared:
                self._warn_of_group(pod, volume, await alone(self._disk.gid, path))
        return plan.shown(volume, target, gives_to_group=not shared)

    async def _stage(self, volume: LocalVolume, device: Device, path: str, *, shared: bool) -> None:
        match plan.staging(volume, device, await alone(self._disk.global_mount, path), shared=shared):
            case Staging.KEEP:
                return
            case Staging.MAKE_WRITABLE:
                await self._run(("mount", "-o", "remount,rw", "--", path), _MOUNT_SECONDS)
                return
            case Staging.REPLACE:
                await alone(self._disk.unmount, path)
        found = plan.content(device, await self._disk.inspect(device))
        if found:
            await self._check(volume, device)
        else:
            argv = plan.format_command(volume, device)
            log.info("volume %s: %s has no content, formatting it: %s", volume.spec_name, device.path, " ".join(argv))
            await self._run(argv, _LONG)
        await alone(self._disk.make, path)
        try:
            await self._run(plan.mount_command(volume, device, path), _MOUNT_SECONDS)
        except CommandError as error:
            await alone(self._disk.remove, path)
            error.message = f"local: failed to mount device {device.path} at {path}: {error.message}"
            error.action = plan.mismatch(volume, found) or error.action
            raise

    async def _check(self, volume: LocalVolume, device: Device) -> None:
        argv = plan.check_command(volume, device)
        if not argv:
            return
        try:
            done = await self._disk.run(argv, _LONG)
        except CommandError as error:
            log.warning("volume %s: mounting %s without a check: %s", volume.spec_name, device.path, error)
            return
        output = (done.stdout + done.stderr).decode(errors="replace").strip()[-2000:]
        if problem := plan.check_problem(device, done.returncode, output):
            raise Temporary(problem, action=f"Run `fsck {device.path}` on the node by hand.")
        if plan.was_corrected(done.returncode):
            log.info("device %s has errors which were corrected by fsck", device.path)
        elif done.returncode:
            log.info("fsck of %s ended with status %d: %s", device.path, done.returncode, output)

    async def _run(self, argv: tuple[str, ...], timeout: float) -> None:
        try:
            done = await self._disk.run(argv, timeout)
            if done.returncode:
                raise CommandError(argv, done.returncode, done.stderr or done.stdout)
        except CommandError as error:
            error.action = plan.advice(argv, error.returncode)
            raise

    async def _others(self, paths: PodPaths, name: str) -> set[str]:
        return await asyncio.to_thread(self._disk.users, name) - {paths.uid}

    def _warn_of_group(self, pod: Pod, volume: LocalVolume, gid: int) -> None:
        if message := plan.already_mounted(volume, gid):
            self._warn(pod, "AlreadyMountedVolume", message)


@contextmanager
def _explained(pod: Pod, volume: LocalVolume) -> Iterator[None]:
    """What goes wrong with the disk is raised as Temporary, which says what to look at."""
    try:
        yield
    except FileNotFoundError as error:
        raise Temporary(
            f'path "{volume.path}" does not exist',
            obj=f"pod {pod.full_name}",
            action="See whether the disk is plugged in (lsblk); the agent tries again.",
        ) from error
    except OSError as error:
        action = "Check the disk; the agent tries again."
        raise Temporary(str(error), obj=f"pod {pod.full_name}", action=action) from error
