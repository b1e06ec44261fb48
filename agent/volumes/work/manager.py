"""VolumeManager: mount, refresh and unmount the volumes of all pods of this node.

It fetches what volumes are made from, has volumes/plan decide, and has the disk and the CSI drivers carry it out.
Nothing it keeps in memory is needed for that: an agent that has just started reads the API and the pod's directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.common.model.pod_settings import NodeContext, PodPaths
from agent.common.model.pods import Pod, is_uid
from agent.common.plan import names
from agent.common.work.namespace_threads import NamespaceThreads
from agent.common.work.pod_errors import blocking, refuse_malformed, run_blocking
from agent.volumes.model.csi import CsiVolume
from agent.volumes.model.local import LocalVolume
from agent.volumes.model.volumes import DiskVolume, MountedVolume, VolumePlan
from agent.volumes.plan import claims, volumes
from agent.volumes.plan.plugins import plugin_of
from agent.volumes.ports import CsiMounter, LocalMounter, PodCertificates, VolumeDisk, VolumeObjects
from agent.volumes.work.mount_places import MountPlaces
from agent.volumes.work.sources import SourceReader
from nodelib.clock import Clock, SystemClock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.key_locks import KeyLocks
from nodelib.threads import alone

log = logging.getLogger(__name__)

Measured = Callable[[str, str, float], None]
"""Plugin, operation, and the seconds that it took."""


def unmeasured(plugin: str, operation: str, seconds: float) -> None:
    """For those who keep no metrics."""


@dataclass(frozen=True, slots=True)
class VolumeManagerDeps:
    """`node()` gives the node's facts at the time of the call."""

    objects: VolumeObjects
    certificates: PodCertificates
    disk: VolumeDisk
    csi: CsiMounter
    local: LocalMounter
    node: Callable[[], NodeContext]
    measured: Measured = unmeasured
    clock: Clock = field(default_factory=SystemClock)


class VolumeManager:
    """The volumes of all pods; each method is described at PodVolumes in pods/ports.py."""

    def __init__(self, root_dir: str, deps: VolumeManagerDeps) -> None:
        self._root_dir = root_dir
        self._sources = SourceReader(deps.objects, deps.certificates)
        self._disk, self._csi, self._local, self._node = deps.disk, deps.csi, deps.local, deps.node
        self._locks = KeyLocks[str]()  # by UID: a refresh runs beside the pod's worker
        self._threads, self._updates, self._places = NamespaceThreads(), NamespaceThreads(), MountPlaces()
        self._measured, self._clock = deps.measured, deps.clock
        self._live: set[str] = set()
        self._wanted: dict[str, list[str]] = {}  # plugins of the volumes of a pod, by UID
        self._mounted: dict[str, list[str]] = {}

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        """See PodVolumes. All sources are fetched at once; a second call finds everything in place."""
        paths = self._paths(pod.uid)
        self._live.add(pod.uid)
        with refuse_malformed(pod):
            names.check_names(pod)
            pod = volumes.with_used_volumes(pod)
            self._places.take(pod)
            sources = await self._sources.read(pod)
            plans = await self._threads.run(pod.namespace, volumes.plan_volumes, pod, sources, self._node())
            local = [plan for plan in plans if isinstance(plan, LocalVolume)]
            csi = [plan for plan in plans if isinstance(plan, CsiVolume)]
            made = {plan.name: plugin_of(plan) for plan in (*_on_disk(plans), *local, *csi)}
            self._wanted[pod.uid] = list(made.values())
            async with self._locks.of(pod.uid):
                await self._reserve(pod, paths, volumes.sole_volumes(pod, sources))
                on_disk = [*_on_disk(plans), *(await self._local.mount(pod, paths, local) if local else ())]
                mounted = await run_blocking(pod, "volumes", lambda: self._disk.set_up(paths, on_disk))
                if csi:
                    mounted |= await self._csi.mount(pod, paths, csi)
        self._mounted[pod.uid] = list(made.values())
        for name, plugin in made.items():
            self._measured(plugin, "volume_mount", mounted[name].took)
        return mounted

    def counts(self) -> dict[tuple[str, str], int]:
        """How many volumes of a plugin there are: (plugin, "desired" or "actual"). Scrapes ask from another thread."""
        states = (("desired", list(self._wanted.values())), ("actual", list(self._mounted.values())))
        return dict(Counter((name, state) for state, pods in states for names in pods for name in names))

    async def _reserve(self, pod: Pod, paths: PodPaths, wanted: Sequence[Json]) -> None:
        for volume in wanted:
            name = volume["metadata"]["name"]
            holder = await run_blocking(pod, "reserve volumes", partial(self._disk.reserve, paths, name))
            if holder:
                raise claims.in_use(pod, volume, holder)

    async def sources_ready(self, pod: Pod) -> bool:
        """See PodVolumes. The objects are fetched, and stay known for mount()."""
        with refuse_malformed(pod):
            names.check_names(pod)
            pod = volumes.with_used_volumes(pod)
            refs = volumes.source_refs(pod)
            if not volumes.needs_only_objects_and_tokens(pod, refs):
                return False
            self._live.add(pod.uid)
            objects = await self._sources.read_objects(pod, refs)
            return await self._threads.run(pod.namespace, volumes.objects_suffice, pod, objects, refs, self._node())

    async def refresh(self, pod: Pod) -> None:
        """See PodVolumes. A volume whose source is gone keeps its last content; the others are still updated."""
        paths = self._paths(pod.uid)
        with refuse_malformed(pod):
            names.check_names(pod)
            pod = volumes.with_used_volumes(pod)
            plans, problems = await self._threads.run(
                pod.namespace, volumes.plan_updates, pod, await self._sources.read(pod), self._node()
            )
        async with self._locks.of(pod.uid):
            changed = await self._update(pod, paths, _on_disk(plans))
        if pod.uid not in self._live:
            self._sources.drop_pod(pod.uid)  # released meanwhile: stop the watches that this refresh has started
        if changed:
            log.info("pod %s: updated volumes %s", pod.full_name, ", ".join(changed))
        if problems:
            raise problems[0]

    async def _update(self, pod: Pod, paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
        """Write what has changed, one pod of a namespace at a time: a hundred may share a source, and as many threads
        leave nothing of this process to the pods of others. Returns the names of the volumes."""
        with blocking(pod, "update of volumes"):
            return await self._updates.run(pod.namespace, self._disk.update, paths, plans)

    async def release(self, uid: str) -> None:
        """See PodVolumes. All volumes of a pod are unmounted together, and each is said to take as long as all do."""
        self._wanted.pop(uid, None)
        async with self._locks.of(uid):
            began = self._clock.monotonic()
            try:
                await self._csi.release(self._paths(uid))
                await self._local.release(self._paths(uid))
                await alone(self._disk.tear_down, self._paths(uid))
            except OSError as error:
                raise Temporary(
                    str(error),
                    obj=f"pod {uid}",
                    step="unmount its volumes",
                    action="See what uses the path (fuser -m PATH, findmnt); the agent tries again.",
                ) from error
        for plugin in self._mounted.pop(uid, ()):
            self._measured(plugin, "volume_unmount", self._clock.monotonic() - began)
        self._live.discard(uid)
        self._places.leave(uid)
        self._sources.drop_pod(uid)

    async def pods_on_disk(self) -> list[str]:
        """See PodVolumes."""
        return [name for name in await asyncio.to_thread(self._disk.pods) if is_uid(name)]

    def _paths(self, uid: str) -> PodPaths:
        return PodPaths(self._root_dir, uid)


def _on_disk(plans: Sequence[VolumePlan]) -> list[DiskVolume]:
    return [plan for plan in plans if not isinstance(plan, CsiVolume | LocalVolume)]
