"""CSI volumes of pods: attached, staged once for the node, published for each pod; and all the way back.

What stands is told by files (vol_data.json) that are written before a driver is asked for anything, so an agent that
was killed in the middle finds its way from them. One hand at a time works on a volume. A volume that stands already
is left alone: its driver need not be there for an agent that has started again.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agent.common.model.errors import PluginError
from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Json, Pod
from agent.volumes.model.csi import CsiSecrets, CsiVolume, DriverFacts, Published, SecretRef, Staged, VolumeKey
from agent.volumes.model.sources import TokenNeed
from agent.volumes.model.volumes import MountedVolume
from agent.volumes.plan import csi as plan
from agent.volumes.work.csi_drivers import CsiDrivers, Driver
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, NotFound, Temporary
from nodelib.threads import alone

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_ATTACH_PATIENCE = 10.0  # seconds in one go; the pod's worker comes back after that
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_REPUBLISH, _SWEEP = 60.0, 120.0  # seconds


class CsiApi(Protocol):
    """The part of edge/csi_objects.py that tells of volumes. Every call raises ApiError or Temporary."""

    async def driver(self, name: str) -> Json | None: ...

    async def attachment(self, name: str) -> Json | None: ...

    async def secret(self, ref: SecretRef) -> Mapping[str, str]: ...

    async def token(self, pod: Pod, need: TokenNeed) -> Json: ...

    def forget(self, uid: str) -> None: ...


class CsiDisk(Protocol):
    """volumes/edge/csi_disk.py. Blocking; raises OSError."""

    def save(self, folder: str, data: Mapping[str, str]) -> None: ...

    def make(self, path: str) -> None: ...

    def is_mounted(self, path: str) -> bool: ...

    def give_to_group(self, path: str, group: int, policy: str) -> None: ...

    def published(self, paths: PodPaths) -> list[Published]: ...

    def all_published(self) -> dict[str, list[Published]]: ...

    def all_staged(self) -> list[Staged]: ...

    def unbind_sub_paths(self, paths: PodPaths) -> None: ...

    def remove(self, folder: str, mount: str) -> None: ...


@dataclass(frozen=True, slots=True)
class CsiEdges:
    """`in_use(names)` waits until the Node says that these volumes (unique names) are in use here.

    `settled`: set once all pods of this node are known, so that what nobody uses can be told.
    """

    drivers: CsiDrivers
    api: CsiApi
    disk: CsiDisk
    clock: Clock
    in_use: Callable[[frozenset[str]], Awaitable[None]]
    settled: asyncio.Event


@dataclass(frozen=True, slots=True)
class Standing:
    """A volume that a pod has mounted at `target`; `republish`: its driver wants to publish it again and again."""

    pod: Pod
    volume: CsiVolume
    target: str
    republish: bool


class CsiVolumes:
    """load() first; mount() and release() are idempotent; run() is long-lived."""

    def __init__(self, root_dir: str, node: str, edges: CsiEdges) -> None:
        self._root_dir, self._node, self._edges = root_dir, node, edges
        self._locks: weakref.WeakValueDictionary[VolumeKey, asyncio.Lock] = weakref.WeakValueDictionary()
        self._users: dict[VolumeKey, set[str]] = {}
        self._staged: set[VolumeKey] = set()
        self._left: set[VolumeKey] = set()
        self._standing: dict[str, dict[str, Standing]] = {}
        self.mounted = asyncio.Event()

    async def load(self) -> None:
        """What an earlier life of the agent left: a volume that a dead pod has mounted is in use until it is not."""
        for uid, found in (await asyncio.to_thread(self._edges.disk.all_published)).items():
            for one in found:
                if not one.ephemeral:
                    self._users.setdefault(one.key, set()).add(uid)
        self._left = {one.key for one in await asyncio.to_thread(self._edges.disk.all_staged)}

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]:
        """By name of the pod's volume. Raises Temporary or Permanent, which name the volume."""
        made = await asyncio.gather(*(self._named(pod, paths, one) for one in volumes))
        return {one.name: one for one in made}

    async def release(self, paths: PodPaths) -> None:
        """Unpublish what the pod's directory tells of, and unstage what no other pod uses.

        Raises NodewrightError for a driver that fails, OSError for the disk.
        """
        self._edges.api.forget(paths.uid)
        self._standing.pop(paths.uid, None)
        found = await asyncio.to_thread(self._edges.disk.published, paths)
        if found:
            await alone(self._edges.disk.unbind_sub_paths, paths)
        await asyncio.gather(*(self._unpublish(paths, one) for one in found))
        for key in [key for key, users in self._users.items() if paths.uid in users]:
            self._users[key].discard(paths.uid)
            await self._unstage_unused(key)

    def names_in_use(self) -> frozenset[str]:
        """Volumes that pods of this node use, as Node.status.volumesInUse lists them."""
        used = {key for key, users in self._users.items() if users}
        return frozenset(key.unique_name for key in used | self._left)

    def standing(self) -> list[Standing]:
        """Every volume that is mounted for a pod now; `mounted` is set whenever there is a new one."""
        # Figures are collected in a thread, while volumes come and go here: each copy is made in one step.
        return [one for volumes in tuple(self._standing.values()) for one in tuple(volumes.values())]

    def staging_of(self, volume: CsiVolume) -> str:
        """Where it is staged, if its driver stages."""
        return f"{plan.staging_folder(self._root_dir, volume)}/{'staging' if volume.block else 'globalmount'}"

    async def run(self) -> None:
        """Until cancelled: publish again what wants it, and unstage what an earlier life of the agent left behind."""
        await self._edges.settled.wait()
        swept = float("-inf")
        while True:
            if self._edges.clock.monotonic() - swept >= _SWEEP:
                await self._sweep()
                swept = self._edges.clock.monotonic()
            await self._edges.clock.sleep(_REPUBLISH)
            await asyncio.gather(*(self._republish(one) for one in self.standing() if one.republish))

    async def _named(self, pod: Pod, paths: PodPaths, volume: CsiVolume) -> MountedVolume:
        try:
            return await self._mount(pod, paths, volume)
        except NodewrightError as error:
            error.message = f'MountVolume.SetUp failed for volume "{volume.spec_name}" : {error.message}'
            raise
        except OSError as error:
            raise Temporary(
                f'MountVolume.SetUp failed for volume "{volume.spec_name}" : {error}',
                obj=f"pod {pod.full_name}",
                action="See the node's disk; it is tried again.",
            ) from error

    async def _mount(self, pod: Pod, paths: PodPaths, volume: CsiVolume) -> MountedVolume:
        target = _target(paths, volume)
        made = MountedVolume(volume.name, target, read_only=volume.read_only, block=volume.block)
        if not volume.ephemeral:
            self._users.setdefault(volume.key, set()).add(pod.uid)
        described = await self._edges.api.driver(volume.driver)
        plan.check_lifecycle(volume, described)
        if await self._stands(paths, volume, target):
            self._note(pod, volume, target, described)
            return made
        driver, facts = self._edges.drivers.get(volume.driver)
        context = await self._attached(volume, described)
        secrets = await self._secrets(volume, facts)
        async with self._lock(volume.key):
            staging = await self._stage(driver, volume, facts, context, secrets)
            request = await self._request(pod, volume, facts, described, target, staging, context, secrets)
            await self._publish(driver, volume, target, request)
        if plan.gives_to_group(volume, described, facts) and volume.fs_group is not None:
            give, policy = self._edges.disk.give_to_group, volume.fs_group_policy
            await alone(give, target, volume.fs_group, policy)
        self._note(pod, volume, target, described)
        return made

    def _note(self, pod: Pod, volume: CsiVolume, target: str, described: Json | None) -> None:
        found = Standing(pod, volume, target, plan.republishes(described))
        self._standing.setdefault(pod.uid, {})[volume.name] = found
        self.mounted.set()

    async def _stands(self, paths: PodPaths, volume: CsiVolume, target: str) -> bool:
        """Published and mounted, perhaps in an earlier life of the agent."""
        known = await asyncio.to_thread(self._edges.disk.published, paths)
        there = any(one.key == volume.key and one.target == target for one in known)
        return there and await alone(self._edges.disk.is_mounted, target)

    async def _attached(self, volume: CsiVolume, described: Json | None) -> dict[str, str]:
        """Wait until a controller has attached the volume here; what it has to tell the driver."""
        if not plan.needs_attachment(volume, described):
            return {}
        await self._edges.in_use(frozenset({volume.key.unique_name}))
        name, clock = plan.attachment_name(volume, self._node), self._edges.clock
        until, pause = clock.monotonic() + _ATTACH_PATIENCE, _FIRST_PAUSE
        while True:
            found = await self._edges.api.attachment(name)
            status = (found or {}).get("status") or {}
            if status.get("attached"):
                return dict(status.get("attachmentMetadata") or {})
            failure = (status.get("attachError") or {}).get("message")
            if failure or clock.monotonic() >= until:
                raise Temporary(
                    failure or ("it is not attached yet" if found else "there is no VolumeAttachment yet"),
                    obj=f"VolumeAttachment {name}",
                    step="attach",
                    action=f"See that the controller (attacher) of CSI driver {volume.driver} runs; it is tried again.",
                )
            await clock.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _secrets(self, volume: CsiVolume, facts: DriverFacts) -> CsiSecrets:
        async def read(ref: SecretRef | None) -> Mapping[str, str]:
            try:
                return await self._edges.api.secret(ref) if ref is not None else {}
            except NotFound as error:
                raise Temporary(error.message, obj=error.obj, step="read", action="It is tried again.") from error

        stage = volume.stage_secret if plan.stages(volume, facts) else None
        return CsiSecrets(publish=await read(volume.publish_secret), stage=await read(stage))

    async def _stage(
        self, driver: Driver, volume: CsiVolume, facts: DriverFacts, context: dict[str, str], secrets: CsiSecrets
    ) -> str:
        """The staging path, "" for a driver that does not stage."""
        if not plan.stages(volume, facts):
            return ""
        folder, path = plan.staging_folder(self._root_dir, volume), self.staging_of(volume)
        if volume.key in self._staged:
            return path
        disk = self._edges.disk
        await asyncio.to_thread(disk.make, path)
        data = {"driverName": volume.driver, "volumeHandle": volume.handle}
        await asyncio.to_thread(disk.save, folder, data)
        try:
            await driver.stage(plan.stage_request(volume, facts, path, context, secrets))
        except PluginError as error:
            if plan.final(error.code):
                await alone(disk.remove, folder, path)
            raise
        self._staged.add(volume.key)
        return path

    async def _request(
        self,
        pod: Pod,
        volume: CsiVolume,
        facts: DriverFacts,
        described: Json | None,
        target: str,
        staging: str,
        context: dict[str, str],
        secrets: CsiSecrets,
    ) -> Json:
        needs = plan.token_needs(described)
        tokens = dict(zip(needs, [await self._edges.api.token(pod, need) for need in needs], strict=True))
        told, hidden = plan.contexts(volume, pod, described, tokens, secrets)
        return plan.publish_request(
            volume, facts, target=target, staging=staging, context=context, volume_context=told, secrets=hidden
        )

    async def _publish(self, driver: Driver, volume: CsiVolume, target: str, request: Json) -> None:
        """The directory of `target` is made here, `target` itself by the driver, as the specification says."""
        folder = target.rpartition("/")[0]
        await asyncio.to_thread(self._edges.disk.save, folder, plan.volume_data(volume, self._node))
        try:
            await driver.publish(request)
        except PluginError as error:
            if plan.final(error.code):
                await alone(self._edges.disk.remove, folder, target)
            raise

    async def _republish(self, one: Standing) -> None:
        volume, pod, target = one.volume, one.pod, one.target
        try:
            driver, facts = self._edges.drivers.get(volume.driver)
            described = await self._edges.api.driver(volume.driver)
            context = await self._attached(volume, described)
            secrets = await self._secrets(volume, facts)
            async with self._lock(volume.key):
                if volume.name not in self._standing.get(pod.uid, {}):
                    return  # released meanwhile
                staging = await self._stage(driver, volume, facts, context, secrets)
                request = await self._request(pod, volume, facts, described, target, staging, context, secrets)
                # What stands is in use: a failure must not take it away.
                await driver.publish(request)
        except NodewrightError as error:
            log.warning("pod %s: volume %s is not published again: %s", pod.full_name, volume.name, error)

    async def _unpublish(self, paths: PodPaths, one: Published) -> None:
        if not one.ephemeral:
            self._users.setdefault(one.key, set()).add(paths.uid)
        driver, _ = self._edges.drivers.get(one.key.driver)
        async with self._lock(one.key):
            await driver.unpublish(one.key.handle, one.target)
            await self._remove(one.target.rpartition("/")[0], one.target)

    async def _unstage_unused(self, key: VolumeKey) -> None:
        async with self._lock(key):
            published = await asyncio.to_thread(self._edges.disk.all_published)
            if self._users.get(key) or any(one.key == key for ones in published.values() for one in ones):
                return
            for one in await asyncio.to_thread(self._edges.disk.all_staged):
                if one.key == key:
                    driver, _ = self._edges.drivers.get(key.driver)
                    await driver.unstage(key.handle, one.path)
                    await self._remove(one.path.rpartition("/")[0], one.path)
            self._staged.discard(key)
            self._users.pop(key, None)
            self._left.discard(key)
        await self._edges.in_use(frozenset())

    async def _sweep(self) -> None:
        for one in await asyncio.to_thread(self._edges.disk.all_staged):
            try:
                await self._unstage_unused(one.key)
            except NodewrightError as error:
                log.warning("volume %s of %s stays staged for now: %s", one.key.handle, one.key.driver, error)

    async def _remove(self, folder: str, mount: str) -> None:
        try:
            await alone(self._edges.disk.remove, folder, mount)
        except OSError as error:
            raise Temporary(
                str(error),
                obj=mount,
                step="remove",
                action="The driver has left files where its volume was mounted: move them away.",
                retry_after=2,
            ) from error

    def _lock(self, key: VolumeKey) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


def _target(paths: PodPaths, volume: CsiVolume) -> str:
    if volume.block:
        return f"{paths.pod}/volumeDevices/{plan.PLUGIN}/{volume.spec_name}/device"
    return f"{paths.volume(plan.PLUGIN, volume.spec_name)}/mount"
