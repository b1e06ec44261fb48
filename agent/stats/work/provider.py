"""Stats on demand: one snapshot from cgroups, /proc, file systems and the runtime, shared by callers within 3 seconds.

Nothing runs between requests. The summary, the metrics and eviction read `snapshot()`. Sizes of logs and volumes and
the runtime's own numbers cost more and are only included with `storage=True`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import ObservedPod, Pod
from agent.common.ports import PodView
from agent.runtime.ports import ImageService, RuntimeService
from agent.stats.model import (
    CgroupSample,
    ContainerStats,
    Details,
    FsUsage,
    Interface,
    Layer,
    NodeStats,
    PodCgroup,
    PodStats,
    Snapshot,
    VolumeStats,
)
from agent.stats.ports import CgroupReadings, MachineReadings
from agent.stats.work.disk_usage import DiskUsage
from agent.stats.work.shared import Shared
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.threads import alone

log = logging.getLogger(__name__)

_FRESH = 3.0  # seconds that a snapshot is shared
_OLDEST_BASE = 120.0  # seconds; a rate over a longer time says nothing about the present
_FIRST_BASE = 0.5  # seconds between two samples when there is no earlier one


@dataclass(frozen=True, slots=True)
class StatsSettings:
    """Paths of cgroups (as in /proc/<pid>/cgroup) and folders.

    `kubepods` is the cgroup of all pods. `node_cgroup` is that of the whole node, which may be a part of a bigger
    machine: its memory limit, if it has one, is the node's capacity. `runtime_cgroup` and `system_cgroup` are those of
    the container runtime and of the processes without another one, "" if they are not known. `huge_pages`: bytes of the
    machine's memory that are set aside for them.
    """

    node_name: str
    kubepods: str = "/kubepods"
    root_dir: str = "/var/lib/kubelet"
    pod_logs_dir: str = "/var/log/pods"
    node_cgroup: str = "/"
    runtime_cgroup: str = ""
    system_cgroup: str = ""
    huge_pages: int = 0


@dataclass(frozen=True, slots=True)
class _Storage:
    """What the kernel does not know: writable layers by container id, the image file system, volumes of drivers."""

    layers: Mapping[str, Layer]
    image_fs: FsUsage | None
    served: Mapping[str, tuple[VolumeStats, ...]] = field(default_factory=dict)


async def _none_served() -> Mapping[str, tuple[VolumeStats, ...]]:
    return {}


@dataclass(frozen=True, slots=True)
class StatsSources:
    """Where stats come from; without `images` there is no image file system.

    `served()` returns volumes by pod UID whose CSI driver reports their usage; their files are not walked.
    """

    pods: PodView
    runtime: RuntimeService
    images: ImageService | None
    cgroups: CgroupReadings
    machine: MachineReadings
    served: Callable[[], Awaitable[Mapping[str, tuple[VolumeStats, ...]]]] = _none_served


class StatsProvider:
    """Collects snapshots. At most one collection with storage, one without and one of details run at a time."""

    def __init__(self, settings: StatsSettings, sources: StatsSources, clock: Clock) -> None:
        self._settings = settings
        self._pods, self._runtime, self._images = sources.pods, sources.runtime, sources.images
        self._reader, self._machine = sources.cgroups, sources.machine
        self._served = sources.served
        self._clock = clock
        self._boot_at = self._machine.boot_time()
        self._kept: dict[bool, tuple[float, Snapshot]] = {}
        self._under_way: dict[bool, Shared[Snapshot]] = {False: Shared(), True: Shared()}
        self._details_under_way: Shared[Details] = Shared()
        self._base: tuple[float, Mapping[str, tuple[int, int]]] = (float("-inf"), {})
        self._disk_usage = DiskUsage(sources.machine, clock, settings.root_dir)

    async def snapshot(self, *, storage: bool = False, rates: bool = False) -> Snapshot:
        """At most 3 s old. `rates`: with the CPU usage of an earlier moment, for which the first caller waits 0.5 s."""
        kept = self._kept.get(storage)
        if kept is not None and self._clock.monotonic() - kept[0] < _FRESH:
            return kept[1]
        return await self._under_way[storage].get(lambda: self._snapshot(storage=storage, rates=rates))

    async def with_layers(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with sizes of writable layers and the image file system, both from the runtime.

        Volumes are not touched: the server of one may be gone, and a call that reads it would hang.
        """
        layers, image_fs = await self._layers(), await self._image_fs()
        pods = (
            replace(pod, containers=tuple(replace(one, layer=layers.get(one.id)) for one in pod.containers))
            for pod in snapshot.pods
        )
        return replace(snapshot, node=replace(snapshot.node, image_fs=image_fs), pods=tuple(pods))

    async def details(self, snapshot: Snapshot) -> Details:
        """Details of a snapshot's containers, with sandboxes, and of the node's disks."""
        return await self._details_under_way.get(lambda: alone(self._details, snapshot))

    async def node(self) -> NodeStats:
        """Memory, CPU, file systems and processes of the machine only: cheap enough for every few seconds."""
        image_fs = await self._image_fs()
        return await asyncio.to_thread(self._node, image_fs)

    async def usage(self, uids: Collection[str], *, storage: bool = True) -> Mapping[str, PodStats]:
        """What these pods use now by UID. Nothing is cached except the sizes of volumes.

        Without `storage` neither their files nor the runtime and drivers are asked, which may take minutes.
        """
        return await alone(self._usage, uids, await self._storage() if storage else None)

    async def _snapshot(self, *, storage: bool, rates: bool) -> Snapshot:
        if rates and self._clock.monotonic() - self._base[0] > _OLDEST_BASE:
            began = self._clock.monotonic()
            first = await asyncio.to_thread(self._collect, None)
            self._base = (began, _usage(first))
            await self._clock.sleep(_FIRST_BASE)
        if storage:  # of pods' files, which may be millions, or on a server that is gone
            snapshot = await alone(self._collect, await self._storage())
        else:
            snapshot = await asyncio.to_thread(self._collect, None)
        now = self._clock.monotonic()
        snapshot = replace(snapshot, earlier=self._base[1] if now - self._base[0] <= _OLDEST_BASE else {})
        self._base = (now, _usage(snapshot))
        self._kept[storage] = (now, snapshot)
        return snapshot

    def _details(self, snapshot: Snapshot) -> Details:
        entries = (entry for pod in snapshot.pods for entry in (*pod.containers, pod.sandbox) if entry is not None)
        read = {entry.sample.path: self._reader.details(entry.sample.path) for entry in entries}
        shown = (snapshot.node.fs, snapshot.node.image_fs)
        used = {usage.device: usage for usage in shown if usage is not None}
        disks = ((self._machine.disk(device), usage) for device, usage in used.items())
        return Details(
            {path: found for path, found in read.items() if found is not None},
            tuple((disk, usage) for disk, usage in disks if disk is not None),
        )

    def _usage(self, uids: Collection[str], storage: _Storage | None) -> dict[str, PodStats]:
        desired = {pod.uid: pod for pod in self._pods.pods()}
        groups = self._reader.pods(self._settings.kubepods)
        found = {uid: self._pod(uid, groups[uid], desired.get(uid), storage) for uid in uids if uid in groups}
        return {uid: stats for uid, stats in found.items() if stats is not None}

    async def _storage(self) -> _Storage:
        return _Storage(await self._layers(), await self._image_fs(), await self._served())

    async def _layers(self) -> Mapping[str, Layer]:
        layers: dict[str, Layer] = {}
        try:
            for sandbox in await self._runtime.sandbox_stats():
                for entry in (sandbox.get("linux") or {}).get("containers") or ():
                    layer = _layer(entry.get("writable_layer") or {})
                    if layer is not None:
                        layers[entry["attributes"]["id"]] = layer
        except NodewrightError as error:
            log.warning("sizes of writable layers are missing from this answer: %s", error)
        return layers

    async def _image_fs(self) -> FsUsage | None:
        if self._images is None:
            return None
        try:
            info = await self._images.image_fs_info()
        except NodewrightError as error:
            log.warning("the image file system is missing from this answer: %s", error)
            return None
        if not info:
            return None
        found = self._machine.filesystem((info[0].get("fs_id") or {}).get("mountpoint", ""))
        return (
            replace(found, used=_value(info[0], "used_bytes"), inodes_used=_value(info[0], "inodes_used"))
            if found
            else None
        )

    def _collect(self, storage: _Storage | None) -> Snapshot:
        desired = {pod.uid: pod for pod in self._pods.pods()}
        found = self._reader.pods(self._settings.kubepods)
        stats = (self._pod(uid, group, desired.get(uid), storage) for uid, group in found.items())
        if storage is not None:
            self._disk_usage.keep(found)
        pods = sorted((entry for entry in stats if entry is not None), key=lambda pod: (pod.namespace, pod.name))
        return Snapshot(self._node(storage.image_fs if storage else None), tuple(pods))

    def _node(self, image_fs: FsUsage | None) -> NodeStats:
        memory, capacity, swap = self._machine.node_memory()
        part = self._settings.node_cgroup != "/" or self._machine.is_part()
        whole = self._reader.sample(self._settings.node_cgroup) if part else None
        huge_pages = self._settings.huge_pages
        if whole is not None and (self._settings.node_cgroup == "/" or 0 < whole.memory.limit < capacity):
            if 0 < whole.memory.limit < capacity:
                huge_pages = 0  # such a limit does not count them
            memory, capacity = whole.memory, min(whole.memory.limit or capacity, capacity)
        root = self._reader.sample("/")
        at = self._clock_ns()
        cpu = root.cpu if root is not None and root.cpu.usage else self._machine.node_cpu()
        if root is not None and root.memory.page_faults:
            memory = replace(
                memory, page_faults=root.memory.page_faults, major_page_faults=root.memory.major_page_faults
            )
        waits_cpu, waits_memory, waits_io = self._machine.node_pressure()
        most, processes = self._machine.process_limits()
        own_cpu, own_memory = self._machine.own_process()
        systems = {"kubelet": CgroupSample("kubelet", at, own_cpu, own_memory)}
        paths = self._settings
        for name, path in (  # kubeletCgroups is none: memory from before the agent moved there is not counted in it
            ("pods", paths.kubepods),
            ("runtime", paths.runtime_cgroup),
            ("misc", paths.system_cgroup),
        ):
            found = self._reader.sample(path) if path else None
            if found is not None:
                systems[name] = found
        return NodeStats(
            name=self._settings.node_name,
            boot_at=self._boot_at,
            sample=CgroupSample(
                "/",
                at,
                replace(cpu, pressure=waits_cpu),
                replace(memory, pressure=waits_memory),
                processes,
                waits_io,
            ),
            memory_capacity=capacity,
            cpus=self._machine.cpus(),
            interfaces=self._machine.interfaces(),
            default_interface=self._machine.default_interface(),
            fs=self._machine.filesystem(self._settings.root_dir),
            image_fs=image_fs,
            max_pid=most,
            processes=processes,
            swap_total=swap,
            huge_pages=huge_pages,
            systems=systems,
        )

    def _pod(self, uid: str, group: PodCgroup, pod: Pod | None, storage: _Storage | None) -> PodStats | None:
        observed: ObservedPod = self._pods.observed(uid)
        sandbox = observed.sandbox
        sample = self._reader.sample(group.path)
        if sample is None or (pod is None and sandbox is None):
            return None
        namespace = pod.namespace if pod is not None else sandbox.namespace if sandbox is not None else ""
        name = pod.name if pod is not None else sandbox.name if sandbox is not None else ""
        containers = tuple(self._containers(group, observed, storage, f"{namespace}_{name}_{uid}"))
        own = self._sandbox(group, observed)
        on_host = pod.host_network if pod is not None else sandbox is not None and sandbox.network_mode == "NODE"
        return PodStats(
            uid=uid,
            namespace=namespace,
            name=name,
            started_at=_started(observed),
            sample=sample,
            containers=containers,
            sandbox=own,
            interfaces=() if on_host else self._interfaces(one for one in (own, *containers) if one is not None),
            volumes=(*self._disk_usage.volumes(uid, pod), *storage.served.get(uid, ())) if storage is not None else (),
            own_files=self._disk_usage.own_files(uid) if storage is not None else None,
        )

    def _containers(
        self, group: PodCgroup, observed: ObservedPod, storage: _Storage | None, log_folder: str
    ) -> list[ContainerStats]:
        found = []
        for entry in observed.containers:
            path = group.containers.get(entry.id)
            sample = self._reader.sample(path) if path else None
            if sample is None:
                continue
            logs = None
            if storage is not None:
                folder = os.path.join(self._settings.pod_logs_dir, log_folder, entry.name)
                logs = replace(self._disk_usage.tree(folder), at=sample.at)
            found.append(
                ContainerStats(
                    id=entry.id,
                    name=entry.name,
                    image=entry.image,
                    started_at=entry.started_at or entry.created_at,
                    sample=sample,
                    layer=storage.layers.get(entry.id) if storage is not None else None,
                    logs=logs,
                )
            )
        return found

    def _sandbox(self, group: PodCgroup, observed: ObservedPod) -> ContainerStats | None:
        for sandbox in observed.sandboxes:
            path = group.containers.get(sandbox.id)
            sample = self._reader.sample(path) if path else None
            if sample is not None:
                return ContainerStats(sandbox.id, "", "", sandbox.created_at, sample)
        return None

    def _interfaces(self, members: Iterable[ContainerStats]) -> tuple[Interface, ...]:
        """Of the pod's network, which its first member with a process shows: sandboxes of CRI-O have none."""
        pids = (self._reader.any_pid(one.sample.path) for one in members)
        pid = next((one for one in pids if one is not None), None)
        return self._machine.interfaces(pid) if pid is not None else ()

    def _clock_ns(self) -> int:
        return int(self._clock.now() * 1_000_000_000)


def _started(observed: ObservedPod) -> int:
    if observed.sandbox is not None:
        return observed.sandbox.created_at
    return min((entry.created_at for entry in observed.containers), default=0)


def _layer(usage: Json) -> Layer | None:
    # The runtime measures layers every few seconds; a timestamp of 0 means not yet.
    if not usage.get("timestamp"):
        return None
    return Layer(int(usage.get("timestamp", 0)), _value(usage, "used_bytes"), _value(usage, "inodes_used"))


def _value(usage: Json, key: str) -> int:
    return int((usage.get(key) or {}).get("value", 0))


def _usage(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    samples = [snapshot.node.sample, *snapshot.node.systems.values()]
    for pod in snapshot.pods:
        samples += [pod.sample, *(entry.sample for entry in pod.containers)]
    return {sample.path: (sample.at, sample.cpu.usage) for sample in samples}
