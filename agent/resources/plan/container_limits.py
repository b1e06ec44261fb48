"""The resources of a container and of a pod's sandbox, as the runtime is told them (CRI LinuxContainerResources).

Follows kuberuntime_container_linux.go and kuberuntime_sandbox_linux.go. CPU time in microseconds, memory in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from agent.common.model.pods import Pod
from agent.common.plan import demand as res
from agent.common.plan.demand import Amounts
from agent.resources.plan import memory_qos
from agent.resources.plan.cgroups import Policy, hugepage_size_text, hugepages, milli, quota, shares
from agent.resources.plan.swap import Swap
from agent.resources.plan.swap import most as most_swap
from nodelib.json_values import Json
from nodelib.quantity import whole


@dataclass(frozen=True, slots=True)
class Machine:
    """What the limits of containers depend on. `memory`, `allocatable` and `hugepage_sizes` in bytes.

    `allocatable`: what all pods together may use, 0 if that is not known.
    `single_process_oom_kill` None: upstream's default, which kills the whole container on v2.
    """

    memory: int
    cgroup_version: int
    allocatable: int = 0
    hugepage_sizes: tuple[int, ...] = ()
    swap: Swap = field(default_factory=Swap)
    single_process_oom_kill: bool | None = None


def container_resources(pod: Pod, container: Json, policy: Policy, machine: Machine) -> Json:
    """CRI LinuxContainerResources. Where the container has no limit, the pod's limit counts."""
    limits = res.container_amounts(container, "limits")
    requests = res.container_amounts(container, "requests")
    of_pod = res.pod_level(pod, "limits")
    cpu_limit = limits.get(res.CPU) or of_pod.get(res.CPU, res.ZERO)
    memory_limit = limits.get(res.MEMORY) or of_pod.get(res.MEMORY, res.ZERO)
    found = _linux(requests.get(res.CPU), cpu_limit, memory_limit, policy)
    found["oom_score_adj"] = res.oom_score_adj(pod, container, machine.memory)
    if memory_limit and machine.swap.limits and machine.cgroup_version == 1:
        # The limit is for memory and swap together, so no swap can be used.
        found["memory_swap_limit_in_bytes"] = found["memory_limit_in_bytes"]
    huge = {**hugepages(of_pod), **hugepages(limits)}
    if machine.hugepage_sizes:
        found["hugepage_limits"] = [
            {"page_size": hugepage_size_text(size), "limit": huge.get(size, 0)}
            for size in sorted(machine.hugepage_sizes)
        ]
    if machine.cgroup_version == 2:
        unified = memory_qos.container_files(pod, container, policy.memory, machine.allocatable)
        if machine.swap.limits:
            unified["memory.swap.max"] = str(most_swap(pod, container, machine.swap))
        if not machine.single_process_oom_kill:  # None means false on v2
            unified["memory.oom.group"] = "1"
        found["unified"] = unified
    return found


def sandbox_resources(pod: Pod, policy: Policy) -> tuple[Json, Json]:
    """(overhead, resources) of CRI LinuxPodSandboxConfig: the runtime's overhead, and what the containers may use."""
    overhead = res.amounts(pod.spec.get("overhead"))
    requests, limits = res.pod_requests(pod, overhead=False), res.pod_limits(pod, overhead=False)
    return _sandbox_part(overhead, overhead, policy) if overhead else {}, _sandbox_part(requests, limits, policy)


def _sandbox_part(requests: Amounts, limits: Amounts, policy: Policy) -> Json:
    return _linux(requests.get(res.CPU), limits.get(res.CPU, res.ZERO), limits.get(res.MEMORY, res.ZERO), policy)


def _linux(cpu_request: Decimal | None, cpu_limit: Decimal, memory_limit: Decimal, policy: Policy) -> Json:
    """A missing request is the limit, which is the API server's default as well."""
    part: Json = {"cpu_shares": shares(milli(cpu_limit if cpu_request is None else cpu_request))}
    if memory_limit:
        part["memory_limit_in_bytes"] = whole(memory_limit)
    if policy.cpu_quota:
        part["cpu_period"] = policy.cpu_period
        part["cpu_quota"] = quota(milli(cpu_limit), policy.cpu_period)
    return part
