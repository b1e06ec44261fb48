"""The static policy of the CPU manager: exclusive CPUs for containers of Guaranteed pods, a shared pool for all others.

Follows pkg/kubelet/cm/cpumanager/policy_static.go, with its messages. A state is a value: allocate() and release()
return a new one. A CPU is in the shared pool or assigned to one pod; only later containers of the pod can get the CPUs
of an init container again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import Kind, Pod
from agent.common.plan import demand
from agent.common.plan.restart import is_sidecar
from agent.managers.model.cpus import NO_CPUS, Cpus, CpuTopology, format_cpus
from agent.managers.plan.distribute import distribute
from agent.managers.plan.hints import Hint, Hints, Mask, mask_of, masks, nodes_of, sum_on
from agent.managers.plan.options import CpuOptions
from agent.managers.plan.take import take
from nodelib.errors import Invalid
from nodelib.json_values import Json

Owner = tuple[str, str]
"""Pod UID and container name."""


class SmtAlignment(Invalid):
    """The option full-pcpus-only cannot be satisfied."""


@dataclass(frozen=True, slots=True)
class CpuState:
    """`shared`: the pool of all containers without exclusive CPUs; `assignments`: exclusive CPUs by owner."""

    shared: Cpus = NO_CPUS
    assignments: Mapping[Owner, Cpus] = field(default_factory=dict)

    def of(self, owner: Owner) -> Cpus:
        """The CPUs that the container may run on; empty: any."""
        return self.assignments.get(owner, self.shared)


@dataclass(frozen=True, slots=True)
class CpuPolicy:
    """`reserved`: CPUs for the system; `reserved_cores`: these and their sibling threads."""

    topology: CpuTopology
    reserved: Cpus
    reserved_cores: Cpus
    options: CpuOptions

    @property
    def allocatable(self) -> Cpus:
        return self.topology.all - self.reserved

    def free(self, state: CpuState) -> Cpus:
        return state.shared - self.reserved


def static_policy(topology: CpuTopology, reserve: float, chosen: Cpus, options: CpuOptions) -> CpuPolicy:
    """`reserve`: number of CPUs for the system and the kubelet together; `chosen`: reservedSystemCPUs, may be empty.

    Raises Invalid.
    """
    if reserve <= 0:
        raise Invalid(
            "the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            action="Set reservedSystemCPUs, systemReserved.cpu or kubeReserved.cpu.",
        )
    if options.by_socket and len(topology.sockets) > len(topology.numas):
        raise Invalid(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )
    count = math.ceil(reserve)
    bare = CpuPolicy(topology, NO_CPUS, NO_CPUS, options)
    reserved = chosen or (_take(bare, topology.all, count) if count <= len(topology.all) else NO_CPUS)
    if len(reserved) != count:
        text = f"(size of {format_cpus(reserved)} did not equal {count})"
        raise Invalid(f"unable to reserve the required amount of CPUs {text}")
    return CpuPolicy(topology, reserved, topology.siblings(reserved), options)


def checked(policy: CpuPolicy, state: CpuState) -> CpuState:
    """The restored state if it is valid, or the first state if it is empty. Raises Invalid. Upstream: validateState."""
    everything = policy.allocatable if policy.options.strict else policy.topology.all
    if not state.shared:
        # With a strict reservation all other CPUs may be assigned. Upstream does not start again then.
        if state.assignments and not policy.options.strict:
            raise Invalid("default cpuset cannot be empty")
        if not state.assignments:
            return CpuState(everything)
    shown = format_cpus(state.shared)
    both = policy.reserved & state.shared
    if policy.options.strict and both:
        text = f'"{format_cpus(both)}" are present in defaultCpuSet: "{shown}"'
        raise Invalid(f"some of strictly reserved cpus: {text}")
    if not policy.options.strict and both != policy.reserved:
        text = f'"{format_cpus(policy.reserved)}" are present in defaultCpuSet: "{shown}"'
        raise Invalid(f"not all reserved cpus: {text}")
    for (uid, container), cpus in sorted(state.assignments.items()):
        if cpus & state.shared:
            text = f'cpuset: "{format_cpus(cpus)}" overlaps with default cpuset "{shown}"'
            raise Invalid(f"pod: {uid}, container: {container} {text}")
    known = state.shared.union(*state.assignments.values())
    if known != everything:
        text = f'"{format_cpus(everything)}" doesn\'t match with CPUs in state "{format_cpus(known)}"'
        raise Invalid(f"current set of available CPUs {text}")
    return state


def guaranteed_cpus(pod: Pod, container: Json) -> int:
    """How many exclusive CPUs the container gets; 0: it uses the shared pool.

    None with pod-level resources, as upstream while its gate PodLevelResourceManagers is off.
    """
    if demand.qos_class(pod) is not demand.Qos.GUARANTEED or has_pod_level(pod):
        return 0
    amount = demand.container_amounts(container, "requests").get(demand.CPU, demand.ZERO)
    return int(amount) if amount == int(amount) else 0


def pod_guaranteed_cpus(pod: Pod) -> int:
    """The most exclusive CPUs that the containers of the pod have at the same time."""
    sidecars = peak = 0
    for kind, container in pod.containers(Kind.INIT):
        count = guaranteed_cpus(pod, container)
        if is_sidecar(kind, container):
            sidecars += count
        else:
            peak = max(peak, sidecars + count)
    return max(peak, sidecars + sum(guaranteed_cpus(pod, one) for _, one in pod.containers(Kind.MAIN)))


def has_pod_level(pod: Pod) -> bool:
    """The pod as a whole has requests or limits."""
    return bool(demand.pod_level(pod, "requests") or demand.pod_level(pod, "limits"))


def reusable_after(reusable: Cpus, kind: Kind, container: Json, cpus: Cpus) -> Cpus:
    """CPUs that later containers of the pod can get as well, after this one got `cpus`."""
    ends = kind is Kind.INIT and not is_sidecar(kind, container)
    return reusable | cpus if ends else reusable - cpus


def allocate(
    policy: CpuPolicy, state: CpuState, owner: Owner, count: int, affinity: Mask | None, reusable: Cpus
) -> CpuState:
    """Assign `count` CPUs to a container, as many as possible on the NUMA nodes of `affinity`.

    A container that has CPUs already keeps them. Raises SmtAlignment, and Invalid when too few CPUs are free.
    """
    if not count or owner in state.assignments:
        return state
    _check_cores(policy, state, count)
    free = policy.free(state) | reusable
    found = NO_CPUS
    if affinity is not None:
        near = _near(policy, affinity, free)
        found = _take(policy, near, min(count, len(near)))
    found |= _take(policy, free - found, count - len(found))
    return CpuState(state.shared - found, {**state.assignments, owner: found})


def release(state: CpuState, owner: Owner) -> CpuState:
    """The container is gone: CPUs that no other container of its pod has return to the shared pool."""
    cpus = state.assignments.get(owner)
    if cpus is None:
        return state
    assignments = {one: has for one, has in state.assignments.items() if one != owner}
    used = frozenset().union(*(has for (uid, _), has in assignments.items() if uid == owner[0]))
    return replace(state, shared=state.shared | (cpus - used), assignments=assignments)


def hints(policy: CpuPolicy, state: CpuState, owner: Owner, count: int, reusable: Cpus) -> Hints:
    """Topology hints for the CPUs of one container."""
    if not count:
        return {}
    has = state.assignments.get(owner)
    if has is not None:
        return {demand.CPU: _hints(policy, has, NO_CPUS, count) if len(has) == count else ()}
    return {demand.CPU: _hints(policy, policy.free(state), reusable, count)}


def pod_hints(policy: CpuPolicy, state: CpuState, pod: Pod) -> Hints:
    """Topology hints for the CPUs of all containers of the pod together."""
    count = pod_guaranteed_cpus(pod)
    if not count:
        return {}
    has = NO_CPUS
    for _, container in pod.containers(Kind.INIT, Kind.MAIN):
        assigned = state.assignments.get((pod.uid, container["name"]))
        if assigned is not None and len(assigned) != guaranteed_cpus(pod, container):
            return {demand.CPU: ()}
        has |= assigned or NO_CPUS
    if len(has) == count:
        return {demand.CPU: _hints(policy, has, NO_CPUS, count)}
    return {demand.CPU: _hints(policy, policy.free(state), has, count)}


def _hints(policy: CpuPolicy, free: Cpus, reusable: Cpus, count: int) -> tuple[Hint, ...]:
    """Every set of NUMA nodes with enough CPUs. The smallest sets that could ever be enough are preferred."""
    topology, found, smallest = policy.topology, [], len(policy.topology.numas)
    must = mask_of({topology.by_id[cpu].numa for cpu in reusable})
    every = {node: len(there) for node, there in topology.numas.items()}
    left = Counter(topology.by_id[cpu].numa for cpu in free)
    for mask in masks(topology.numas):
        if mask.bit_count() < smallest and sum_on(mask, every) >= count:
            smallest = mask.bit_count()
        if not must & ~mask and len(reusable) + sum_on(mask, left) >= count:
            found.append(mask)
    return tuple(Hint(mask, _is_preferred(policy, mask, smallest)) for mask in found)


def _is_preferred(policy: CpuPolicy, mask: Mask, smallest: int) -> bool:
    if mask.bit_count() == smallest:
        return True
    per_socket = len(policy.topology.numas) // len(policy.topology.sockets)
    if not policy.options.by_socket or not per_socket:
        return False
    return len(policy.topology.sockets_of(nodes_of(mask))) == -(-smallest // per_socket)


def _near(policy: CpuPolicy, affinity: Mask, free: Cpus) -> Cpus:
    topology, nodes = policy.topology, nodes_of(affinity)
    if policy.options.by_socket:
        sockets = topology.sockets_of(nodes)
        return frozenset(cpu for cpu in free if topology.by_id[cpu].socket in sockets)
    return frozenset(cpu for cpu in free if topology.by_id[cpu].numa in nodes)


def _check_cores(policy: CpuPolicy, state: CpuState, count: int) -> None:
    if not policy.options.full_cores:
        return
    per_core = policy.topology.per_core
    if count % per_core:
        raise SmtAlignment(f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}")
    free = len(state.shared - policy.reserved_cores)
    if count > free:
        raise SmtAlignment(
            f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, "
            f"requested CPUs = {count}, CPUs per core = {per_core}"
        )


def _take(policy: CpuPolicy, free: Cpus, count: int) -> Cpus:
    options, spread = policy.options, policy.options.across_cores
    if not options.across_numa:
        return take(policy.topology, free, count, spread=spread, uncore=options.by_uncore)
    group = policy.topology.per_core if options.full_cores else 1
    return distribute(policy.topology, free, count, group=group, spread=spread, by_socket=options.by_socket)
