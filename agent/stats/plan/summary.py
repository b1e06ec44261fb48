"""/stats/summary from one snapshot: k8s.io/kubelet/pkg/apis/stats/v1alpha1.

Follows pkg/kubelet/stats and server/stats/summary.go. What is not measured here (user defined metrics, accelerators) is
left out, as upstream does without a value. Stall information is zero where the kernel has none (cgroup v1), as there.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.stats.model import (
    CgroupSample,
    ContainerStats,
    FsUsage,
    Interface,
    NodeStats,
    PodStats,
    Pressure,
    Snapshot,
    Stall,
    VolumeStats,
)
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

_NANO = 1_000_000_000


def summary(snapshot: Snapshot, *, only_cpu_and_memory: bool = False) -> Json:
    """The Summary object; `only_cpu_and_memory` is the query parameter of that name."""
    rates = _Rates(snapshot)
    node = _node(snapshot.node, rates, only_cpu_and_memory)
    image_fs = snapshot.node.image_fs
    pods = [_pod(pod, rates, snapshot.node.fs, image_fs, only_cpu_and_memory) for pod in snapshot.pods]
    return {"node": node, "pods": pods}


def ephemeral_storage(pod: PodStats) -> tuple[int, int]:
    """(bytes, inodes) of local ephemeral storage: writable layers, logs, emptyDir and the like, the pod's own files."""
    used = pod.own_files.used if pod.own_files is not None else 0
    inodes = 0
    for container in pod.containers:
        if container.layer is not None:
            used, inodes = used + container.layer.used, inodes + container.layer.inodes_used
        if container.logs is not None:
            used, inodes = used + container.logs.used, inodes + container.logs.inodes_used
    for volume in pod.volumes:
        if volume.ephemeral:
            used, inodes = used + volume.usage.used, inodes + volume.usage.inodes_used
    return used, inodes


def is_measured(pod: PodStats) -> bool:
    """Whether all local ephemeral storage of the pod could be read."""
    parts = [volume.usage for volume in pod.volumes if volume.ephemeral]
    parts += [part for part in (pod.own_files, *(one.logs for one in pod.containers)) if part is not None]
    return not any(part.unread for part in parts)


class _Rates:
    """CPU rates from two values of a counter."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._earlier = snapshot.earlier

    def nano_cores(self, sample: CgroupSample) -> int | None:
        before = self._earlier.get(sample.path)
        if before is None or sample.at <= before[0] or sample.cpu.usage < before[1]:
            return None
        return (sample.cpu.usage - before[1]) * _NANO // (sample.at - before[0])


def _node(node: NodeStats, rates: _Rates, brief: bool) -> Json:
    memory = _memory(node.sample, capacity=node.memory_capacity)
    if "availableBytes" in memory:
        memory["availableBytes"] = max(0, memory["availableBytes"] - node.huge_pages)
    answer: Json = {
        "nodeName": node.name,
        "systemContainers": [
            {
                "name": name,
                "startTime": _time(node.boot_at),
                "cpu": _cpu(sample, rates),
                "memory": _memory(sample),
                **({} if brief else {"io": _io(sample)}),
            }
            for name, sample in sorted(node.systems.items())
        ],
        "startTime": _time(node.boot_at),
        "cpu": _cpu(node.sample, rates),
        "memory": memory,
        "swap": _swap(node.sample, node.swap_total),
    }
    if brief:
        return answer
    answer["io"] = _io(node.sample)
    answer["network"] = _network(node.interfaces, node.default_interface, node.sample.at)
    if node.fs is not None:
        answer["fs"] = _fs(node.fs)
    if node.image_fs is not None:
        answer["runtime"] = {"imageFs": _fs(node.image_fs), "containerFs": _fs(node.image_fs)}
    answer["rlimit"] = {"time": _time(node.sample.at), "maxpid": node.max_pid, "curproc": node.processes}
    return answer


def _pod(pod: PodStats, rates: _Rates, fs: FsUsage | None, image_fs: FsUsage | None, brief: bool) -> Json:
    answer: Json = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": _time(pod.started_at),
        "containers": [_container(entry, rates, fs, image_fs, brief) for entry in pod.containers],
        "cpu": _cpu(pod.sample, rates),
        "memory": _memory(pod.sample),
        "swap": _swap(pod.sample, 0),
    }
    if brief:
        return answer
    answer["io"] = _io(pod.sample)
    if pod.interfaces:
        answer["network"] = _network(pod.interfaces, "eth0", pod.sample.at)
    answer["volume"] = [_volume(volume, pod.namespace) for volume in pod.volumes]
    if fs is not None:
        used, inodes = ephemeral_storage(pod)
        answer["ephemeral-storage"] = _part(fs, used, inodes, pod.sample.at)
    answer["process_stats"] = {"process_count": pod.sample.processes}
    return answer


def _container(entry: ContainerStats, rates: _Rates, fs: FsUsage | None, image_fs: FsUsage | None, brief: bool) -> Json:
    answer: Json = {
        "name": entry.name,
        "startTime": _time(entry.started_at),
        "cpu": _cpu(entry.sample, rates),
        "memory": _memory(entry.sample),
        "swap": _swap(entry.sample, 0),
    }
    if brief:
        return answer
    answer["io"] = _io(entry.sample)
    if entry.layer is not None and image_fs is not None:
        answer["rootfs"] = _part(image_fs, entry.layer.used, entry.layer.inodes_used, entry.layer.at)
    if entry.logs is not None and fs is not None:
        answer["logs"] = _part(fs, entry.logs.used, entry.logs.inodes_used, entry.logs.at)
    return answer


def _volume(volume: VolumeStats, namespace: str) -> Json:
    answer = {**_fs(volume.usage), "name": volume.name}
    if volume.claim:
        answer["pvcRef"] = {"name": volume.claim, "namespace": namespace}
    return answer


def _cpu(sample: CgroupSample, rates: _Rates) -> Json:
    answer: Json = {
        "time": _time(sample.at),
        "usageCoreNanoSeconds": sample.cpu.usage,
        "psi": _psi(sample.cpu.pressure),
    }
    rate = rates.nano_cores(sample)
    if rate is not None:
        answer["usageNanoCores"] = rate
    return answer


def _memory(sample: CgroupSample, capacity: int = 0) -> Json:
    memory = sample.memory
    answer = {
        "time": _time(sample.at),
        "usageBytes": memory.usage,
        "workingSetBytes": memory.working_set,
        "rssBytes": memory.rss,
        "pageFaults": memory.page_faults,
        "majorPageFaults": memory.major_page_faults,
        "psi": _psi(memory.pressure),
    }
    limit = memory.limit or capacity
    if limit:
        answer["availableBytes"] = max(0, limit - memory.working_set)
    return answer


def _io(sample: CgroupSample) -> Json:
    return {"time": _time(sample.at), "psi": _psi(sample.io)}


def _psi(pressure: Pressure) -> Json:
    return {"full": _stall(pressure.full), "some": _stall(pressure.some)}


def _stall(stall: Stall) -> Json:
    # Microseconds, as the kernel and upstream have it, although the comment of the API type says otherwise.
    return {"total": stall.total, "avg10": stall.avg10, "avg60": stall.avg60, "avg300": stall.avg300}


def _swap(sample: CgroupSample, total: int) -> Json:
    used = sample.memory.swap
    return {"time": _time(sample.at), "swapAvailableBytes": max(0, total - used), "swapUsageBytes": used}


def _network(interfaces: Iterable[Interface], default: str, at: int) -> Json:
    listed = [_interface(entry) for entry in interfaces if entry.name != "lo"]
    named = next((entry for entry in listed if entry["name"] == default), {})
    return {"time": _time(at), "name": "", **named, "interfaces": listed}


def _interface(entry: Interface) -> Json:
    return {
        "name": entry.name,
        "rxBytes": entry.rx_bytes,
        "rxErrors": entry.rx_errors,
        "txBytes": entry.tx_bytes,
        "txErrors": entry.tx_errors,
    }


def _fs(usage: FsUsage) -> Json:
    return {
        "time": _time(usage.at),
        "availableBytes": usage.available,
        "capacityBytes": usage.capacity,
        "usedBytes": usage.used,
        "inodesFree": usage.inodes_free,
        "inodes": usage.inodes,
        "inodesUsed": usage.inodes_used,
    }


def _part(fs: FsUsage, used: int, inodes: int, at: int) -> Json:
    return {**_fs(fs), "time": _time(at), "usedBytes": used, "inodesUsed": inodes}


def _time(at: int) -> str | None:
    return format_rfc3339(at / _NANO) if at else None
