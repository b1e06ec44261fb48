"""Reads one snapshot from cgroups, /proc and file systems. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from agent.common.model.pods import ObservedPod, Pod
from agent.common.ports import PodView
from agent.stats.model import (
    CgroupSample,
    ContainerStats,
    Details,
    FsUsage,
    Interface,
    NodeStats,
    PodCgroup,
    PodStats,
    Snapshot,
    StatsSettings,
    Storage,
)
from agent.stats.ports import CgroupReadings, MachineReadings
from agent.stats.work.disk_usage import DiskUsage
from nodelib.clock import Clock


class Collector:
    """`storage`: what the runtime and drivers say, None where no sizes of logs, volumes and writable layers are wanted.
    Nothing is cached but the sizes of folders."""

    def __init__(
        self,
        settings: StatsSettings,
        pods: PodView,
        cgroups: CgroupReadings,
        machine: MachineReadings,
        clock: Clock,
        measured: Callable[[str, float], None],
    ) -> None:
        self._settings, self._pods, self._reader, self._machine = settings, pods, cgroups, machine
        self._clock = clock
        self._boot_at = machine.boot_time()
        self._disk_usage = DiskUsage(machine, clock, settings.root_dir, measured)

    def snapshot(self, storage: Storage | None) -> Snapshot:
        desired = {pod.uid: pod for pod in self._pods.pods()}
        found = self._reader.pods(self._settings.kubepods)
        stats = (self._pod(uid, group, desired.get(uid), storage) for uid, group in found.items())
        if storage is not None:
            self._disk_usage.keep(found)
        pods = sorted((entry for entry in stats if entry is not None), key=lambda pod: (pod.namespace, pod.name))
        return Snapshot(self.node(storage.image_fs if storage else None), tuple(pods))

    def usage(self, uids: Collection[str], storage: Storage | None) -> dict[str, PodStats]:
        """What these pods use now, by UID."""
        desired = {pod.uid: pod for pod in self._pods.pods()}
        groups = self._reader.pods(self._settings.kubepods)
        found = {uid: self._pod(uid, groups[uid], desired.get(uid), storage) for uid in uids if uid in groups}
        return {uid: stats for uid, stats in found.items() if stats is not None}

    def details(self, snapshot: Snapshot) -> Details:
        """Of a snapshot's containers, with sandboxes, and of the node's disks."""
        entries = (entry for pod in snapshot.pods for entry in (*pod.containers, pod.sandbox) if entry is not None)
        read = {entry.sample.path: self._reader.details(entry.sample.path) for entry in entries}
        shown = (snapshot.node.fs, snapshot.node.image_fs)
        used = {usage.device: usage for usage in shown if usage is not None}
        disks = ((self._machine.disk(device), usage) for device, usage in used.items())
        return Details(
            {path: found for path, found in read.items() if found is not None},
            tuple((disk, usage) for disk, usage in disks if disk is not None),
        )

    def node(self, image_fs: FsUsage | None) -> NodeStats:
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

    def _pod(self, uid: str, group: PodCgroup, pod: Pod | None, storage: Storage | None) -> PodStats | None:
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
        self, group: PodCgroup, observed: ObservedPod, storage: Storage | None, log_folder: str
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
