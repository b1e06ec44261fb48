"""Whether a pod's containers can have the CPUs and memory that are to be theirs alone, and which.

Follows the scopes of pkg/kubelet/cm/topologymanager: container by container, or for the pod as a whole, each manager
says where it could give, one place is chosen, and they give there. All of it or nothing: a state is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import Json, Kind, Pod
from agent.common.model.refusal import UNEXPECTED, Refusal
from agent.common.plan import demand
from agent.managers.model.counts import Tally
from agent.managers.model.cpus import NO_CPUS, format_cpus
from agent.managers.model.memory_blocks import MemoryState
from agent.managers.plan import cpus, memory_blocks, memory_hints
from agent.managers.plan.cpus import CpuPolicy, CpuState, SmtAlignment
from agent.managers.plan.hints import ANYWHERE, Hint, Hints
from agent.managers.plan.memory_hints import Again
from agent.managers.plan.memory_policy import MemoryPolicy
from agent.managers.plan.topology import MESSAGE, POD, REASON, TopologyPolicy, merged
from nodelib.errors import Invalid
from nodelib.quantity import format_bytes

SMT_REASON = "SMTAlignmentError"
DeviceHints = Callable[[Pod, Json | None], Hints]
"""Of a container, or (None) of the pod as a whole."""


@dataclass(frozen=True, slots=True)
class Policies:
    """None: that manager's policy is none."""

    cpus: CpuPolicy | None = None
    topology: TopologyPolicy | None = None
    memory: MemoryPolicy | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Who has what."""

    cpus: CpuState = field(default_factory=CpuState)
    memory: MemoryState = field(default_factory=MemoryState)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`held` is unchanged with a refusal; `detail` says of a refusal what was there and what was asked for.

    `affinity`: the NUMA nodes chosen, by container.
    """

    held: Held
    tally: Tally
    refusal: Refusal | None = None
    detail: str = ""
    affinity: Mapping[str, Hint] = field(default_factory=dict)


class _Misplaced(Exception):
    """There is no place that will do."""


def admitted(policies: Policies, held: Held, pod: Pod, devices: DeviceHints) -> Outcome:
    """What the pod's containers have for themselves from now on, or why it cannot run here."""
    walk = _Walk(policies, held, pod, devices)
    try:
        walk.run()
    except _Misplaced:
        refusal = Refusal(REASON, MESSAGE)
    except SmtAlignment as error:
        refusal = Refusal(SMT_REASON, error.message)
    except Invalid as error:
        refusal = Refusal(UNEXPECTED, f"Allocate failed due to {error.message}, which is unexpected")
    else:
        return Outcome(walk.held, walk.tally, affinity=walk.affinity)
    if policies.topology is not None:
        walk.tally.topology_errors += 1
    return Outcome(held, walk.tally, refusal, _detail(policies, held, pod))


class _Walk:
    """One pod's admission, container by container."""

    def __init__(self, policies: Policies, held: Held, pod: Pod, devices: DeviceHints) -> None:
        self._policies, self._pod, self._devices = policies, pod, devices
        self.held, self.tally = held, Tally(topology_requests=1)
        self.affinity: dict[str, Hint] = {}
        self._cpus_again = NO_CPUS
        self._memory_again: Again = {}

    def run(self) -> None:
        topology = self._policies.topology
        whole = self._place(topology, None) if topology is not None and topology.scope == POD else None
        for kind, container in self._pod.containers(Kind.INIT, Kind.MAIN):
            hint = whole or (self._place(topology, container) if topology is not None else ANYWHERE)
            self.affinity[container["name"]] = hint
            self._allocate_cpus(kind, container, hint)
            self._allocate_memory(kind, container, hint)
            if topology is not None and whole is None and topology.guarantees:
                self.tally.aligned["container", "numa_node"] += 1
        if topology is not None and whole is not None and topology.guarantees:
            self.tally.aligned["pod", "numa_node"] += 1

    def _place(self, topology: TopologyPolicy, container: Json | None) -> Hint:
        told: list[Hints] = [self._devices(self._pod, container)]
        if self._policies.cpus is not None:
            told.append(self._cpu_hints(self._policies.cpus, container))
        if self._policies.memory is not None:
            told.append(self._memory_hints(container))
        hint, will_do = merged(topology, told)
        if not will_do:
            if topology.guarantees:
                self.tally.unaligned["pod" if container is None else "container", "numa_node"] += 1
            raise _Misplaced
        return hint

    def _cpu_hints(self, policy: CpuPolicy, container: Json | None) -> Hints:
        if container is None:
            return cpus.pod_hints(policy, self.held.cpus, self._pod)
        owner, count = (self._pod.uid, container["name"]), cpus.wanted(self._pod, container)
        return cpus.hints(policy, self.held.cpus, owner, count, self._cpus_again)

    def _memory_hints(self, container: Json | None) -> Hints:
        if container is None:
            return memory_hints.pod_hints(self.held.memory, self._pod)
        owner, wants = (self._pod.uid, container["name"]), memory_hints.wanted(self._pod, container)
        return memory_hints.hints(self.held.memory, owner, wants, self._memory_again)

    def _allocate_memory(self, kind: Kind, container: Json, hint: Hint) -> None:
        if self._policies.memory is None or not memory_hints.wanted(self._pod, container):
            return
        self.tally.memory_requests += 1
        try:
            state, blocks = memory_blocks.allocate(self.held.memory, self._pod, container, hint, self._memory_again)
        except Invalid as error:
            self.tally.memory_errors += 1
            raise Invalid(f"[memorymanager] {error.message}") from error
        self._memory_again = memory_blocks.again_after(self._memory_again, kind, container, blocks)
        self.held = replace(self.held, memory=state)

    def _allocate_cpus(self, kind: Kind, container: Json, hint: Hint) -> None:
        policy, count = self._policies.cpus, cpus.wanted(self._pod, container)
        if policy is None or not count:
            return
        owner = self._pod.uid, container["name"]
        self.tally.cpu_requests += 1
        whole_cores = ("container", "physical_cpu")
        try:
            state = cpus.allocate(policy, self.held.cpus, owner, count, hint.affinity, self._cpus_again)
        except Invalid:
            self.tally.cpu_errors += 1
            if policy.options.full_cores:
                self.tally.unaligned[whole_cores] += 1
            raise
        found = state.held[owner]
        self._cpus_again = cpus.reusable_after(self._cpus_again, kind, container, found)
        if policy.options.full_cores:
            self.tally.aligned[whole_cores] += 1
        if state is not self.held.cpus and len(policy.topology.grouped(found, "uncore")) <= 1:
            self.tally.aligned["container", "uncore_cache"] += 1
        self.held = replace(self.held, cpus=state)


def _detail(policies: Policies, held: Held, pod: Pod) -> str:
    told = []
    if policies.cpus is not None:
        free, count = policies.cpus.free(held.cpus), cpus.wanted_by_pod(pod)
        told.append(
            f"cpuManagerPolicy static: {count} exclusive CPUs asked for, {len(free)} free "
            f"({format_cpus(free) or 'none'} of {format_cpus(policies.cpus.allocatable) or 'none'}; "
            f"reserved {format_cpus(policies.cpus.reserved)})"
        )
    if policies.memory is not None:
        nodes = ", ".join(
            f"node {number}: {format_bytes(table.free)}"
            for number, node in sorted(held.memory.nodes.items())
            if (table := node.tables.get(demand.MEMORY)) is not None
        )
        asked = format_bytes(memory_hints.wanted_by_pod(pod).get(demand.MEMORY, 0))
        told.append(f"memoryManagerPolicy Static: {asked} asked for, free: {nodes}")
    if policies.topology is not None:
        told.append(f"topologyManagerPolicy {policies.topology.name} by {policies.topology.scope}")
    return "; ".join(told)


def released(held: Held, uids: Collection[str]) -> Held:
    """The pods with these UIDs are gone."""
    found, memory = held.cpus, held.memory
    for owner in [one for one in found.held if one[0] in uids]:
        found = cpus.release(found, owner)
    for owner in [one for one in memory.held if one[0] in uids]:
        memory = memory_blocks.release(memory, owner)
    return held if (found, memory) == (held.cpus, held.memory) else Held(found, memory)


def moved_on(held: Held, pod: Pod, name: str) -> Held:
    """A container of the pod is about to start: init containers before it have ended, and need no memory any more."""
    memory = held.memory
    for _, container in pod.containers(Kind.INIT):
        if container["name"] == name:
            break
        if not demand.is_sidecar(container):
            memory = memory_blocks.release(memory, (pod.uid, container["name"]))
    return held if memory is held.memory else replace(held, memory=memory)


def owners(held: Held) -> frozenset[str]:
    """UIDs of all pods that have something."""
    return frozenset(uid for listed in (held.cpus.held, held.memory.held) for uid, _ in listed)
