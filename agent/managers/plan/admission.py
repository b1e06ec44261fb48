"""Admission by the CPU, memory and topology managers: which exclusive CPUs and NUMA memory a pod's containers get.

Follows the scopes of pkg/kubelet/cm/topologymanager: for each container or for the pod as a whole, every manager gives
its hints, they are merged into one affinity, and the managers allocate there. States are values, so a refused pod
leaves nothing behind. Resizes are checked as in pkg/kubelet/allocation/handlers.go with its gates
InPlacePodVerticalScalingExclusiveCPUs and InPlacePodVerticalScalingExclusiveMemory off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import Kind, Pod
from agent.common.model.refusal import UNEXPECTED, Refusal
from agent.common.plan import demand
from agent.common.plan.restart import is_sidecar
from agent.managers.model.counts import AdmissionCounts
from agent.managers.model.cpus import NO_CPUS, format_cpus
from agent.managers.model.memory_blocks import MemoryState
from agent.managers.plan import cpus, memory_blocks, memory_hints
from agent.managers.plan.cpus import CpuPolicy, CpuState, SmtAlignment
from agent.managers.plan.hints import ANYWHERE, Hint, Hints
from agent.managers.plan.memory_hints import Reusable
from agent.managers.plan.memory_policy import MemoryPolicy
from agent.managers.plan.topology import MESSAGE, POD, REASON, TopologyPolicy, merge
from agent.resources.plan.resize_status import INFEASIBLE
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.quantity import format_bytes

SMT_REASON = "SMTAlignmentError"
_INFEASIBLE = 'Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy "{policy}"'
MOST_CONTAINERS = 512
"""Of a pod: each gets hints, CPUs and memory of its own, on the event loop, and what one has is looked at for the next.
Upstream has no limit."""
DeviceHints = Callable[[Pod, Json | None, Collection[int]], Hints]
"""The device manager's hints for a container, or (None) for the pod as a whole, on these NUMA nodes of the machine."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of the three managers. None: the policy of that manager is none."""

    cpus: CpuPolicy | None = None
    topology: TopologyPolicy | None = None
    memory: MemoryPolicy | None = None


@dataclass(frozen=True, slots=True)
class ManagerState:
    """What the CPU manager and the memory manager have assigned."""

    cpus: CpuState = field(default_factory=CpuState)
    memory: MemoryState = field(default_factory=MemoryState)


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """`state` is unchanged by a refusal; `detail` says what a refused pod requested and what was free.

    `affinity`: the chosen NUMA nodes by container.
    """

    state: ManagerState
    counts: AdmissionCounts
    refusal: Refusal | None = None
    detail: str = ""
    affinity: Mapping[str, Hint] = field(default_factory=dict)


class _NoAffinity(Exception):
    """No affinity that the topology policy admits."""


def admit_pod(policies: Policies, state: ManagerState, pod: Pod, devices: DeviceHints) -> AdmissionResult:
    """The state after the pod is admitted, or why it cannot run here."""
    count = sum(1 for _ in pod.containers(Kind.INIT, Kind.MAIN))
    if count > MOST_CONTAINERS and policies != Policies():
        text = f"it has {count} containers, and a node with static policies or a topology policy runs {MOST_CONTAINERS}"
        return AdmissionResult(state, AdmissionCounts(), Refusal(UNEXPECTED, f"Allocate failed: {text} at most"), text)
    admission = _Admission(policies, state, pod, devices)
    try:
        admission.run()
    except _NoAffinity:
        refusal = Refusal(REASON, MESSAGE)
    except SmtAlignment as error:
        refusal = Refusal(SMT_REASON, error.message)
    except Invalid as error:
        refusal = Refusal(UNEXPECTED, f"Allocate failed due to {error.message}, which is unexpected")
    else:
        return AdmissionResult(admission.state, admission.counts, affinity=admission.affinity)
    if policies.topology is not None:
        admission.counts.topology_errors += 1
    return AdmissionResult(state, admission.counts, refusal, _detail(policies, state, pod))


class _Admission:
    """The admission of one pod, container by container."""

    def __init__(self, policies: Policies, state: ManagerState, pod: Pod, devices: DeviceHints) -> None:
        self._policies, self._pod, self._devices = policies, pod, devices
        self.state, self.counts = state, AdmissionCounts(topology_requests=1)
        self.affinity: dict[str, Hint] = {}
        self._reusable_cpus = NO_CPUS
        self._reusable_memory: Reusable = {}

    def run(self) -> None:
        topology = self._policies.topology
        whole = self._affinity_for(topology, None) if topology is not None and topology.scope == POD else None
        for kind, container in self._pod.containers(Kind.INIT, Kind.MAIN):
            hint = whole or (self._affinity_for(topology, container) if topology is not None else ANYWHERE)
            self.affinity[container["name"]] = hint
            self._allocate_cpus(kind, container, hint)
            self._allocate_memory(kind, container, hint)
            if topology is not None and whole is None and topology.guarantees:
                self.counts.aligned["container", "numa_node"] += 1
        if topology is not None and whole is not None and topology.guarantees:
            self.counts.aligned["pod", "numa_node"] += 1

    def _affinity_for(self, topology: TopologyPolicy, container: Json | None) -> Hint:
        hints: list[Hints] = [self._devices(self._pod, container, frozenset(node.id for node in topology.nodes))]
        if self._policies.cpus is not None:
            hints.append(self._cpu_hints(self._policies.cpus, container))
        if self._policies.memory is not None:
            hints.append(self._memory_hints(container))
        hint, admissible = merge(topology, hints)
        if not admissible:
            if topology.guarantees:
                self.counts.unaligned["pod" if container is None else "container", "numa_node"] += 1
            raise _NoAffinity
        return hint

    def _cpu_hints(self, policy: CpuPolicy, container: Json | None) -> Hints:
        if container is None:
            return cpus.pod_hints(policy, self.state.cpus, self._pod)
        owner, count = (self._pod.uid, container["name"]), cpus.guaranteed_cpus(self._pod, container)
        return cpus.hints(policy, self.state.cpus, owner, count, self._reusable_cpus)

    def _memory_hints(self, container: Json | None) -> Hints:
        if container is None:
            return memory_hints.pod_hints(self.state.memory, self._pod)
        owner, wants = (self._pod.uid, container["name"]), memory_hints.requested(self._pod, container)
        return memory_hints.hints(self.state.memory, owner, wants, self._reusable_memory)

    def _allocate_memory(self, kind: Kind, container: Json, hint: Hint) -> None:
        if self._policies.memory is None or not memory_hints.requested(self._pod, container):
            return
        self.counts.memory_requests += 1
        try:
            state, blocks = memory_blocks.allocate(self.state.memory, self._pod, container, hint, self._reusable_memory)
        except Invalid as error:
            self.counts.memory_errors += 1
            raise Invalid(f"[memorymanager] {error.message}") from error
        self._reusable_memory = memory_blocks.reusable_after(self._reusable_memory, kind, container, blocks)
        self.state = replace(self.state, memory=state)

    def _allocate_cpus(self, kind: Kind, container: Json, hint: Hint) -> None:
        policy, count = self._policies.cpus, cpus.guaranteed_cpus(self._pod, container)
        if policy is None or not count:
            return
        owner = self._pod.uid, container["name"]
        self.counts.cpu_requests += 1
        whole_cores = ("container", "physical_cpu")
        try:
            state = cpus.allocate(policy, self.state.cpus, owner, count, hint.affinity, self._reusable_cpus)
        except Invalid:
            self.counts.cpu_errors += 1
            if policy.options.full_cores:
                self.counts.unaligned[whole_cores] += 1
            raise
        found = state.assignments[owner]
        self._reusable_cpus = cpus.reusable_after(self._reusable_cpus, kind, container, found)
        if policy.options.full_cores:
            self.counts.aligned[whole_cores] += 1
        if state is not self.state.cpus and len(policy.topology.grouped(found, "uncore")) <= 1:
            self.counts.aligned["container", "uncore_cache"] += 1
        self.state = replace(self.state, cpus=state)


def resize_refusal(wanted: Pod, allocated: Pod, policies: Policies) -> Refusal | None:
    """Why a Guaranteed pod cannot be resized in place; None: the managers do not object."""
    if demand.qos_class(wanted) is not demand.Qos.GUARANTEED:
        return None
    if policies.cpus is not None and _requests_differ(wanted, allocated, demand.CPU):
        text = _INFEASIBLE.format(manager="CPU", policy="static")
        return Refusal(INFEASIBLE, text, "guaranteed_pod_cpu_manager_static_policy")
    if policies.memory is not None and _requests_differ(wanted, allocated, demand.MEMORY):
        text = _INFEASIBLE.format(manager="Memory", policy="Static")
        return Refusal(INFEASIBLE, text, "guaranteed_pod_memory_manager_static_policy")
    return None


def _requests_differ(wanted: Pod, allocated: Pod, name: str) -> bool:
    before = {one["name"]: one for _, one in allocated.containers(Kind.INIT, Kind.MAIN)}
    return any(
        demand.container_amounts(one, "requests").get(name, demand.ZERO)
        != demand.container_amounts(before.get(one["name"], one), "requests").get(name, demand.ZERO)
        for _, one in wanted.containers(Kind.INIT, Kind.MAIN)
    )


def _detail(policies: Policies, state: ManagerState, pod: Pod) -> str:
    parts = []
    if policies.cpus is not None:
        free, count = policies.cpus.free(state.cpus), cpus.pod_guaranteed_cpus(pod)
        parts.append(
            f"cpuManagerPolicy static: {count} exclusive CPUs asked for, {len(free)} free "
            f"({format_cpus(free) or 'none'} of {format_cpus(policies.cpus.allocatable) or 'none'}; "
            f"reserved {format_cpus(policies.cpus.reserved)})"
        )
    if policies.memory is not None:
        nodes = ", ".join(
            f"node {number}: {format_bytes(table.free)}"
            for number, node in sorted(state.memory.nodes.items())
            if (table := node.tables.get(demand.MEMORY)) is not None
        )
        asked = format_bytes(memory_hints.pod_requested(pod).get(demand.MEMORY, 0))
        parts.append(f"memoryManagerPolicy Static: {asked} asked for, free: {nodes}")
    if policies.topology is not None:
        parts.append(f"topologyManagerPolicy {policies.topology.name} by {policies.topology.scope}")
    return "; ".join(parts)


def release_pods(state: ManagerState, uids: Collection[str]) -> ManagerState:
    """The state without the pods with these UIDs."""
    found, memory = state.cpus, state.memory
    for owner in [one for one in found.assignments if one[0] in uids]:
        found = cpus.release(found, owner)
    for owner in [one for one in memory.assignments if one[0] in uids]:
        memory = memory_blocks.release(memory, owner)
    return state if (found, memory) == (state.cpus, state.memory) else ManagerState(found, memory)


def release_init_memory(state: ManagerState, pod: Pod, name: str) -> ManagerState:
    """The state when a container is about to start: the init containers before it have ended and need no memory."""
    memory = state.memory
    for kind, container in pod.containers(Kind.INIT):
        if container["name"] == name:
            break
        if not is_sidecar(kind, container):
            memory = memory_blocks.release(memory, (pod.uid, container["name"]))
    return state if memory is state.memory else replace(state, memory=memory)


def pod_uids(state: ManagerState) -> frozenset[str]:
    """UIDs of all pods that have exclusive CPUs or NUMA memory."""
    return frozenset(uid for listed in (state.cpus.assignments, state.memory.assignments) for uid, _ in listed)
