"""CSI volumes of pods: wait until attached, stage once for the node, publish for each pod; and all the way back.

vol_data.json files say which volumes are here. They are written before a driver is asked for anything, so that an agent
that was killed half way can go on from them. One task at a time works on a volume. A volume that is mounted already is
left alone: an agent that has just started does not need its driver. Follows pkg/volume/csi.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.common.work.jobs import Jobs
from agent.volumes.model.csi import CsiSecrets, CsiVolume, DriverFacts, Published, SecretRef, VolumeKey
from agent.volumes.model.volumes import MountedVolume
from agent.volumes.plan import csi as plan
from agent.volumes.ports import CsiDisk, CsiVolumeApi
from agent.volumes.work.csi_attachments import CsiAttachments
from agent.volumes.work.csi_contexts import CsiContexts
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_mounter import CsiMounter, CsiMounterDeps, Mounting
from agent.volumes.work.csi_records import CsiRecords
from agent.volumes.work.csi_stagings import CsiStagings
from agent.volumes.work.few_at_a_time import few_at_a_time
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, NotFound, Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait, side_by_side
from nodelib.threads import alone

log = logging.getLogger(__name__)

_REPUBLISH_INTERVAL = 60.0  # seconds

_Known = Mapping[tuple[VolumeKey, str], Published]
"""What the pod's directory says is published, perhaps by an earlier run of the agent: by key and target."""


@dataclass(frozen=True, slots=True)
class CsiVolumesDeps:
    """`in_use(names)` waits until the Node reports these volumes (unique names) as in use.

    `limit_exceeded(driver)` is called when the node has as many of a driver's volumes as it can.
    `pods_known` is set once all pods of this node are known: before that, no volume may be taken for unused.
    """

    drivers: CsiDrivers
    api: CsiVolumeApi
    disk: CsiDisk
    clock: Clock
    in_use: Callable[[frozenset[str]], Awaitable[None]]
    pods_known: asyncio.Event
    limit_exceeded: Callable[[str], Awaitable[None]]
    grower: CsiGrower
    contexts: CsiContexts = field(default_factory=CsiContexts)


@dataclass(frozen=True, slots=True)
class MountedCsiVolume:
    """A volume that a pod has mounted at `target`; `republish`: its driver wants it published periodically."""

    pod: Pod
    volume: CsiVolume
    target: str
    republish: bool


class CsiVolumes:
    """load() first; mount() and release() are idempotent; run() is long-lived."""

    def __init__(self, root_dir: str, node: str, deps: CsiVolumesDeps) -> None:
        self._root_dir, self._deps = root_dir, deps
        self._records = CsiRecords(deps.disk)
        self._stagings = CsiStagings(deps.drivers, self._records, deps.clock, deps.in_use, self._remove)
        self._contexts = deps.contexts
        self._mounter = CsiMounter(
            CsiMounterDeps(root_dir, node, deps.api, deps.disk, self._records, self._stagings, deps.contexts)
        )
        self._attachments = CsiAttachments(node, deps.api, deps.clock, deps.in_use, deps.limit_exceeded)
        self._mounted: dict[str, dict[str, MountedCsiVolume]] = {}
        self._under_way: dict[str, set[asyncio.Task[MountedVolume]]] = {}  # also of tries that have failed, by UID
        self._growing: dict[str, set[str]] = {}  # published, but the pod must wait until they have grown: names by UID
        self.new_mount = asyncio.Event()

    async def load(self) -> None:
        """Find the volumes that an earlier run of the agent mounted: those of dead pods are in use until released."""
        records = await self._records.look()
        self._contexts.load(records.published)
        self._stagings.load(records)

    async def mount(self, pod: Pod, paths: PodPaths, volumes: list[CsiVolume]) -> dict[str, MountedVolume]:
        """By name of the pod's volume. Raises Temporary or Permanent, which name the volume."""
        recorded = await alone(self._deps.disk.published, paths) if volumes else []
        known = {(one.key, one.target): one for one in recorded}
        work = [partial(self._mount_named, pod, paths, one, known) for one in volumes]
        made = await few_at_a_time(work, self._under_way.setdefault(paths.uid, set()))
        return {one.name: one for one in made}

    async def release(self, paths: PodPaths) -> None:
        """Unpublish the volumes found in the pod's directory, and unstage those that no other pod uses.

        Raises NodewrightError for a driver that cannot unpublish, OSError for the disk.
        """
        await cancel_and_wait(*self._under_way.pop(paths.uid, ()))
        await self._records.written(paths.uid)
        self._deps.api.drop_pod(paths.uid)
        self._mounted.pop(paths.uid, None)
        self._growing.pop(paths.uid, None)
        self._contexts.ends(paths.uid)
        found = await alone(self._deps.disk.published, paths)
        if found:
            await alone(self._deps.disk.unbind_sub_paths, paths)
        await few_at_a_time([partial(self._unpublish, paths, one) for one in found], set())
        keys = self._stagings.used_by(paths.uid)
        for key in keys:
            self._contexts.ended(paths.uid, key)
        await self._stagings.leave(keys, paths.uid)

    def names_in_use(self) -> frozenset[str]:
        """The volumes that pods use and a controller must not detach, for Node.status.volumesInUse."""
        used = self._stagings.keys_in_use()
        return frozenset(key.unique_name for key in used if self._deps.api.attaches(key.driver))

    def mounted_volumes(self) -> list[MountedCsiVolume]:
        """Every volume that is mounted for a pod now; `new_mount` is set whenever there is a new one."""
        # Metrics are collected in a thread while volumes come and go here: each copy is made in one step.
        return [one for volumes in tuple(self._mounted.values()) for one in tuple(volumes.values())]

    def staging_of(self, volume: CsiVolume) -> str:
        """The staging path of the volume, which counts only if its driver stages."""
        return plan.staging_path(self._root_dir, volume)

    async def run(self) -> None:
        """Until cancelled: republish volumes whose drivers ask for it, and unstage those that no pod uses any more."""
        await self._deps.pods_known.wait()
        await side_by_side(unstage=self._stagings.sweep(), republish=self._keep_republished())

    async def _keep_republished(self) -> None:
        jobs = Jobs()  # a driver that does not answer delays the next call for the same volume, and no other
        try:
            while True:
                await self._deps.clock.sleep(_REPUBLISH_INTERVAL)
                for one in self.mounted_volumes():
                    if one.republish:
                        jobs.start(("republish", one.pod.uid, one.volume.name), partial(self._republish, one))
        finally:
            await jobs.close()

    async def _mount_named(self, pod: Pod, paths: PodPaths, volume: CsiVolume, known: _Known) -> MountedVolume:
        began, started = self._deps.clock.now(), self._deps.clock.monotonic()
        try:
            made = await self._mount(pod, paths, volume, known)
            return replace(made, began=began, took=self._deps.clock.monotonic() - started)
        except NodewrightError as error:
            error.message = f'MountVolume.SetUp failed for volume "{volume.spec_name}" : {error.message}'
            raise
        except OSError as error:
            raise Temporary(
                f'MountVolume.SetUp failed for volume "{volume.spec_name}" : {error}',
                obj=f"pod {pod.full_name}",
                action="Check the node's disk; the agent tries again.",
            ) from error

    async def _mount(self, pod: Pod, paths: PodPaths, volume: CsiVolume, known: _Known) -> MountedVolume:
        target = _target(paths, volume)
        described = await self._deps.api.driver(volume.driver)
        plan.check_lifecycle(volume, described)
        published = known.get((volume.key, target))
        if published is not None and not await alone(self._deps.disk.is_mounted, target):
            published = None
        volume = replace(volume, context=self._contexts.admit(pod, volume, described, published))
        if not volume.ephemeral:
            self._stagings.use(volume.key, pod.uid)
        if published is not None and volume.name not in self._growing.get(pod.uid, ()):
            return await self._record(pod, volume, target, described)
        driver, facts = self._deps.drivers.get(volume.driver)
        context = await self._attachments.wait(volume, described)
        secrets = await self._read_secrets(volume, facts)
        mounting = Mounting(pod, volume, target, described, driver, facts, context, secrets)
        async with self._stagings.locks.of(volume.key):
            staging = await self._mounter.stage_and_publish(mounting)
            await self._grow_first(mounting, staging)
        if plan.applies_fs_group(volume, described, facts) and volume.fs_group is not None:
            await alone(self._deps.disk.apply_fs_group, target, volume.fs_group, volume.fs_group_policy)
        return await self._record(pod, volume, target, described)

    async def _grow_first(self, one: Mounting, staging: str) -> None:
        """What is published, but has not grown as it should, is asked for again by the next try to mount it."""
        waiting = self._growing.setdefault(one.pod.uid, set())
        waiting.add(one.volume.name)
        growing = self._deps.grower.growing(one.pod, one.volume, one.target, staging)
        await self._deps.grower.before_start(growing, one.volume, one.facts, partial(self._remount, one, staging))
        waiting.discard(one.volume.name)

    async def _remount(self, one: Mounting, staging: str) -> bool:
        """Take the volume off the node and mount it again; False: another pod has it."""
        key, target = one.volume.key, one.target
        if set((await self._records.look()).targets.get(key, ())) - {target}:
            return False
        await one.driver.unpublish(key.handle, target)
        await self._remove(target.rpartition("/")[0], target)
        if staging:
            await self._stagings.unstage(key, staging)
        await self._mounter.stage_and_publish(one)
        return True

    async def _record(self, pod: Pod, volume: CsiVolume, target: str, described: Json | None) -> MountedVolume:
        relabels = self._contexts.enabled and not (volume.context or volume.read_only or volume.block)
        if relabels:
            relabels = await alone(self._deps.disk.takes_labels, target)
        found = MountedCsiVolume(pod, volume, target, plan.republishes(described))
        self._mounted.setdefault(pod.uid, {})[volume.name] = found
        self.new_mount.set()
        return MountedVolume(volume.name, target, read_only=volume.read_only, block=volume.block, relabels=relabels)

    async def _read_secrets(self, volume: CsiVolume, facts: DriverFacts) -> CsiSecrets:
        async def read(ref: SecretRef | None) -> Mapping[str, str]:
            try:
                return await self._deps.api.secret(ref) if ref is not None else {}
            except NotFound as error:
                raise Temporary(error.message, obj=error.obj, step="read", action="The agent tries again.") from error

        stage = volume.stage_secret if plan.stages(volume, facts) else None
        return CsiSecrets(publish=await read(volume.publish_secret), stage=await read(stage))

    async def _republish(self, one: MountedCsiVolume) -> None:
        volume, pod, target = one.volume, one.pod, one.target
        try:
            driver, facts = self._deps.drivers.get(volume.driver)
            described = await self._deps.api.driver(volume.driver)
            context = await self._attachments.wait(volume, described)
            secrets = await self._read_secrets(volume, facts)
            async with self._stagings.locks.of(volume.key):
                if volume.name not in self._mounted.get(pod.uid, {}):
                    return  # released meanwhile
                mounting = Mounting(pod, volume, target, described, driver, facts, context, secrets)
                staging = await self._mounter.stage(mounting)
                # Containers are using the mount: a failure must not remove it.
                await driver.publish(await self._mounter.publish_request(mounting, staging))
        except NodewrightError as error:
            log.warning("pod %s: volume %s could not be republished: %s", pod.full_name, volume.name, error)

    async def _unpublish(self, paths: PodPaths, one: Published) -> None:
        if not one.ephemeral:
            self._stagings.use(one.key, paths.uid)
        driver, _ = self._deps.drivers.get(one.key.driver)
        async with self._stagings.locks.of(one.key):
            await driver.unpublish(one.key.handle, one.target)
            await self._remove(one.target.rpartition("/")[0], one.target)

    async def _remove(self, folder: str, mount: str) -> None:
        try:
            await alone(self._deps.disk.remove, folder, mount)
        except OSError as error:
            raise Temporary(
                str(error),
                obj=mount,
                step="remove",
                action="The driver has left files in the mount directory of its volume: move them away.",
                retry_after=2,
            ) from error


def _target(paths: PodPaths, volume: CsiVolume) -> str:
    if volume.block:
        return f"{paths.pod}/volumeDevices/{plan.PLUGIN}/{volume.spec_name}/device"
    return f"{paths.volume(plan.PLUGIN, volume.spec_name)}/mount"
