"""Cgroup names and numbers: where a pod's cgroup is and what is written into it, for v1 and v2.

Follows pkg/kubelet/cm (helpers_linux.go, cgroup_manager_linux.go, qos and node container managers). A write is
(controller, file, text), which resources/edge/cgroups.py carries out. CPU time in microseconds, memory in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated

from agent.common.model.binding import config
from agent.common.model.durations import seconds
from agent.common.model.pods import Kind, Pod, is_uid
from agent.common.plan import demand as res
from agent.common.plan.demand import Qos
from agent.resources.model import Limits as Limits
from agent.resources.plan import memory_qos
from agent.resources.plan.memory_qos import Kept, MemoryQos
from nodelib.errors import Invalid
from nodelib.quantity import LARGEST, parse, whole

MIN_SHARES, MAX_SHARES = 2, 262144
SHARES_PER_CPU = 1024
MIN_QUOTA = 1000  # microseconds
_UNBOUNDED_HUGEPAGES = 1 << 62
ROOT_NAME = "kubepods"
POD_PREFIX = "pod"

Name = tuple[str, ...]
Write = tuple[str, str, str]


def _root(path: str) -> str:
    return path.rstrip("/") or "/"


def _microseconds(duration: str) -> int:
    return round(seconds(duration) * 1_000_000)


@dataclass(frozen=True, slots=True)
class Policy:
    """The node's configuration of pod cgroups. `pids` -1: no limit per pod.

    `group_oom_kill`: singleProcessOOMKill was set to false explicitly.
    """

    root: Annotated[str, config("cgroupRoot", convert=_root)] = "/"
    driver: Annotated[str, config("cgroupDriver")] = "cgroupfs"
    per_qos: Annotated[bool, config("cgroupsPerQOS")] = True
    cpu_quota: Annotated[bool, config("cpuCFSQuota")] = True
    cpu_period: Annotated[int, config("cpuCFSQuotaPeriod", convert=_microseconds)] = 100_000
    pids: Annotated[int, config("podPidsLimit")] = -1
    fail_v1: Annotated[bool, config("failCgroupV1")] = False
    group_oom_kill: Annotated[bool, config("singleProcessOOMKill", convert=lambda alone: alone is False)] = False
    memory: MemoryQos = field(default_factory=MemoryQos)

    def of(self, *, throttled: bool) -> Policy:
        """The policy for one pod. If not `throttled` (it has exclusive CPUs), it sets no CPU quota."""
        return self if throttled else replace(self, cpu_quota=False)


def shares(milli_cpu: int) -> int:
    """CFS shares of a CPU request in thousandths of a core; the minimum for a request of 0."""
    return max(MIN_SHARES, min(MAX_SHARES, milli_cpu * SHARES_PER_CPU // 1000))


def quota(milli_cpu: int, period: int) -> int:
    """CFS quota of a CPU limit in thousandths of a core; 0: there is no limit."""
    return min(max(MIN_QUOTA, milli_cpu * period // 1000), LARGEST) if milli_cpu else 0


def weight(cpu_shares: int) -> int:
    """cpu.weight of v2 for v1 shares by the curve of crun, and of runc since 1.3.2: 1024 -> 100, 262144 -> 10000.

    Upstream's kubelet still converts linearly for its own cgroups (1024 -> 39), so that a pod weighs less than its only
    container. Here both use the same curve.
    """
    if cpu_shares <= MIN_SHARES:
        return 1
    if cpu_shares >= MAX_SHARES:
        return 10000
    power = math.log2(cpu_shares)
    return math.ceil(10 ** ((power * power + 125 * power) / 612 - 7 / 34))


def hugepage_size_text(size: int) -> str:
    """The kernel's name of a huge page size: 2MB, 1GB, 64KB."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        if size >= 1 << power and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    raise Invalid(f"{size} bytes is not a huge page size", step="read huge pages")


def hugepages(listed: Mapping[str, Decimal]) -> dict[int, int]:
    """Page size -> bytes of the hugepages-* entries."""
    found: dict[int, int] = {}
    for name, amount in listed.items():
        if name.startswith(res.HUGEPAGES_PREFIX):
            size = int(parse(name.removeprefix(res.HUGEPAGES_PREFIX)))
            found[size] = min(found.get(size, 0) + whole(amount), LARGEST)
    return found


def limits_of_pod(pod: Pod, policy: Policy) -> Limits:
    """The pod-level cgroup (ResourceConfigForPod). It has a limit only if the pod or all of its containers have one."""
    requests, limits = res.pod_requests(pod), res.pod_limits(pod)
    huge = hugepages(requests)
    pids = policy.pids if policy.pids > 0 else None
    quality = res.qos_class(pod)
    if quality is Qos.BEST_EFFORT:
        return memory_qos.with_pod(Limits(cpu_shares=MIN_SHARES, pids=pids, hugepages=huge), pod, policy.memory)
    cpu_bound = quality is Qos.GUARANTEED or _declared(pod, res.CPU)
    memory_bound = quality is Qos.GUARANTEED or _declared(pod, res.MEMORY)
    most_cpu = quota(milli(limits.get(res.CPU, res.ZERO)), policy.cpu_period) if policy.cpu_quota else -1
    bounds = Limits(
        cpu_shares=shares(milli(requests.get(res.CPU, res.ZERO))),
        cpu_quota=most_cpu if cpu_bound else None,
        cpu_period=policy.cpu_period if cpu_bound else None,
        memory=whole(limits.get(res.MEMORY, res.ZERO)) if memory_bound else None,
        pids=pids,
        hugepages=huge,
    )
    return memory_qos.with_pod(bounds, pod, policy.memory)


def limits_of_node(allocatable: Mapping[str, Decimal]) -> Limits:
    """kubepods: what remains for pods after the reservations (node_container_manager_linux.go)."""
    memory, pids = allocatable.get(res.MEMORY), allocatable.get(res.PIDS)
    return Limits(
        cpu_shares=shares(milli(allocatable.get(res.CPU, res.ZERO))),
        memory=whole(memory) if memory is not None else None,
        pids=whole(pids) if pids is not None else None,
        hugepages=hugepages(allocatable),
    )


def keeping(node: Limits, kept: Kept) -> Limits:
    """kubepods, with what is kept for pods: the kernel keeps for a cgroup at most what its parent has."""
    return replace(node, memory_min=kept.guaranteed + kept.burstable, memory_low=kept.burstable)


def limits_of_qos(burstable: Iterable[Pod], hugepage_sizes: Iterable[int], kept: Kept) -> dict[Qos, Limits]:
    """The two QoS cgroups: burstable has the shares of all its pods, besteffort the minimum, both all huge pages."""
    asked = sum((res.pod_requests(pod, only=(res.CPU,)).get(res.CPU, res.ZERO) for pod in burstable), res.ZERO)
    free = dict.fromkeys(hugepage_sizes, _UNBOUNDED_HUGEPAGES)
    return {
        Qos.BURSTABLE: Limits(cpu_shares=shares(milli(asked)), hugepages=free, memory_low=kept.burstable),
        Qos.BEST_EFFORT: Limits(cpu_shares=MIN_SHARES, hugepages=free),
    }


def root_name(policy: Policy) -> Name:
    """The cgroup of all pods."""
    given = tuple(part for part in policy.root.split("/") if part)
    if policy.driver == "systemd" and given and given[-1].endswith(".slice"):
        given = tuple(part.replace("_", "-") for part in given[-1].removesuffix(".slice").split("-"))
    return (*given, ROOT_NAME) if policy.per_qos else given


def qos_name(policy: Policy, quality: Qos) -> Name:
    """The parent of the pods of a QoS class. Guaranteed pods are directly under the root."""
    root = root_name(policy)
    return root if quality is Qos.GUARANTEED else (*root, quality.value.lower())


def pod_name(policy: Policy, pod: Pod) -> Name:
    """Raises Invalid for a UID that cannot be part of a path (static pods can choose their own)."""
    uid = pod.uid
    if not uid or "/" in uid or "_" in uid or "\0" in uid or len(uid) > 200 or not uid.isprintable():
        raise Invalid(
            f"uid {uid[:80]!r} cannot name a cgroup",
            obj=pod.full_name,
            step="make pod cgroup",
            action="Remove metadata.uid from the manifest, or use letters, digits and '-'.",
        )
    return (*qos_name(policy, res.qos_class(pod)), f"{POD_PREFIX}{uid}")


def container_of(leaf: str) -> str:
    """The id of the container whose cgroup below its pod's is so called, as cri-containerd-<id>.scope; "" for conmon's,
    which CRI-O puts beside its container."""
    return "" if leaf.startswith("crio-conmon-") else leaf.removesuffix(".scope").rpartition("-")[2]


def path_of(name: Name, driver: str) -> str:
    """Path below the cgroup mount: /a/b, or with systemd /a.slice/a-b.slice."""
    if driver != "systemd":
        return "/" + "/".join(name)
    parts = [part.replace("-", "_") for part in name]
    return "/" + "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))


def cri_parent(path: str, driver: str) -> str:
    """PodSandboxConfig.linux.cgroup_parent: a path, or with systemd the name of the slice."""
    return path if driver != "systemd" else path.rsplit("/", 1)[-1]


def uid_of(leaf: str, driver: str) -> str | None:
    """The pod UID in the last part of a cgroup path; None: it is not a pod's cgroup."""
    last = leaf.removesuffix(".slice").rsplit("-", 1)[-1].replace("_", "-") if driver == "systemd" else leaf
    uid = last.removeprefix(POD_PREFIX)
    return uid if last.startswith(POD_PREFIX) and is_uid(uid) else None


def writes(limits: Limits, version: int, hugepage_sizes: Iterable[int]) -> list[Write]:
    """The files to write, in an order that the kernel accepts. Huge page sizes that are not requested get 0."""
    found = _v2(limits) if version == 2 else _v1(limits)
    suffix = "max" if version == 2 else "limit_in_bytes"
    for size in sorted(hugepage_sizes):
        amount = limits.hugepages.get(size, 0)
        found.append(("hugetlb", f"hugetlb.{hugepage_size_text(size)}.{suffix}", str(amount)))
    return found


def slice_properties(limits: Limits, version: int) -> list[str]:
    """The limits as systemd unit properties (systemd.resource-control(5))."""
    found = []
    if limits.cpu_shares is not None:
        found.append(f"CPUWeight={weight(limits.cpu_shares)}" if version == 2 else f"CPUShares={limits.cpu_shares}")
    if limits.cpu_quota is not None and limits.cpu_period:
        percent = f"{limits.cpu_quota * 100 / limits.cpu_period:g}%" if limits.cpu_quota > 0 else ""
        found += [f"CPUQuota={percent}", f"CPUQuotaPeriodSec={limits.cpu_period}us"]
    if limits.memory is not None:
        found.append(f"{'MemoryMax' if version == 2 else 'MemoryLimit'}={limits.memory or 'infinity'}")
    if version == 2:
        found += [
            f"{name}={amount}" for name, amount in _kept(limits, "MemoryMin", "MemoryLow", "MemoryHigh", "infinity")
        ]
    if limits.pids is not None:
        found.append(f"TasksMax={limits.pids if limits.pids > 0 else 'infinity'}")
    return found


def _v1(limits: Limits) -> list[Write]:
    found: list[Write] = []
    if limits.cpu_shares is not None:
        found.append(("cpu", "cpu.shares", str(limits.cpu_shares)))
    if limits.cpu_period is not None:
        found.append(("cpu", "cpu.cfs_period_us", str(limits.cpu_period)))
    if limits.cpu_quota is not None:
        found.append(("cpu", "cpu.cfs_quota_us", str(limits.cpu_quota or -1)))
    if limits.memory is not None:
        found.append(("memory", "memory.limit_in_bytes", str(limits.memory or -1)))
    if limits.pids is not None:
        found.append(("pids", "pids.max", str(limits.pids) if limits.pids > 0 else "max"))
    return found


def _v2(limits: Limits) -> list[Write]:
    found: list[Write] = []
    if limits.cpu_shares is not None:
        found.append(("cpu", "cpu.weight", str(weight(limits.cpu_shares))))
    if limits.cpu_quota is not None:
        most = str(limits.cpu_quota) if limits.cpu_quota > 0 else "max"
        found.append(("cpu", "cpu.max", f"{most} {limits.cpu_period}"))
    if limits.memory is not None:
        found.append(("memory", "memory.max", str(limits.memory or "max")))
    found += [
        ("memory", name, amount) for name, amount in _kept(limits, "memory.min", "memory.low", "memory.high", "max")
    ]
    if limits.pids is not None:
        found.append(("pids", "pids.max", str(limits.pids) if limits.pids > 0 else "max"))
    return found


def _kept(limits: Limits, least: str, low: str, high: str, unlimited: str) -> Iterator[tuple[str, str]]:
    """Name and amount of what is set of the three, by the names that they are given."""
    if limits.memory_min is not None:
        yield least, str(limits.memory_min)
    if limits.memory_low is not None:
        yield low, str(limits.memory_low)
    if limits.memory_high is not None:
        yield high, str(limits.memory_high or unlimited)


def _declared(pod: Pod, name: str) -> bool:
    """Whether the pod as a whole or every container has a limit for the resource."""
    if res.pod_level(pod, "limits").get(name):
        return True
    kinds = (Kind.INIT, Kind.MAIN)
    return all(res.container_amounts(container, "limits").get(name) for _, container in pod.containers(*kinds))


def milli(cores: Decimal) -> int:
    """CPU in thousandths of a core."""
    return whole(cores * 1000)
