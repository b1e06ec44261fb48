"""What the machine has, and what of it pods may use: capacity, allocatable, reservations. All amounts as Decimals.

Follows MachineInfo in pkg/kubelet/nodestatus/setters.go and pkg/kubelet/cm/node_container_manager_linux.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from agent.common.plan.demand import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    PIDS,
    PODS,
    STORAGE,
    ZERO,
    Amounts,
    amounts,
    total_of,
)
from agent.eviction.plan.thresholds import share
from agent.node.model import MachineFacts, NodePolicy
from nodelib.errors import Permanent
from nodelib.quantity import format_bytes


def capacity(machine: MachineFacts, policy: NodePolicy) -> Amounts:
    """What the machine has, in the resources that the Node reports."""
    pods = min(machine.cpus * policy.pods_per_core, policy.max_pods) if policy.pods_per_core else policy.max_pods
    found = {
        CPU: Decimal(machine.cpus),
        MEMORY: Decimal(machine.memory),
        STORAGE: Decimal(machine.storage),
        PODS: Decimal(pods),
    }
    for size, total in machine.hugepages.items():
        found[f"{HUGEPAGES_PREFIX}{format_bytes(size)}"] = Decimal(total)
    return found


def allocatable(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    """Capacity minus reservations, hard eviction thresholds and the memory that huge pages take."""
    reserved = reservation(total, policy)
    left = {name: max(ZERO, amount - reserved.get(name, ZERO)) for name, amount in total.items()}
    huge = sum((amount for name, amount in total.items() if name.startswith(HUGEPAGES_PREFIX)), ZERO)
    left[MEMORY] = max(ZERO, left[MEMORY] - huge)
    return left


def reservation(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    """Reservations and hard eviction thresholds together."""
    return total_of([_reserved(policy), _eviction_reserve(total, policy)])


def enforced(machine: MachineFacts, policy: NodePolicy) -> Amounts:
    """What the kubepods cgroup may use: capacity, minus the reservations when enforceNodeAllocatable has "pods"."""
    total = {**capacity(machine, policy), PIDS: Decimal(machine.pids)}
    if not policy.enforce_pods:
        return total
    reserved = _reserved(policy)
    return {name: max(ZERO, amount - reserved.get(name, ZERO)) for name, amount in total.items()}


def check_reservations(machine: MachineFacts, policy: NodePolicy) -> None:
    """Raises Permanent when more is reserved than there is."""
    total = capacity(machine, policy)
    reserved = reservation(total, policy)
    over = [f"{name}: {reserved[name]} of {total[name]}" for name in total if reserved.get(name, ZERO) > total[name]]
    if over:
        raise Permanent(
            f"more is reserved than the machine has ({'; '.join(over)})",
            obj="kubeReserved + systemReserved + evictionHard",
            step="compute Allocatable",
            action="Lower these reservations in the KubeletConfiguration.",
        )


def _reserved(policy: NodePolicy) -> Amounts:
    return total_of([amounts(policy.kube_reserved), amounts(policy.system_reserved)])


def _eviction_reserve(total: Mapping[str, Decimal], policy: NodePolicy) -> Amounts:
    hard = policy.eviction_hard or {}
    pairs = (("memory.available", MEMORY), ("nodefs.available", STORAGE))
    return {name: Decimal(share(hard[signal]).of(int(total[name]))) for signal, name in pairs if signal in hard}
