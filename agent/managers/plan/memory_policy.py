"""The static memory manager's policy, and the states that it begins with and goes on from.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from agent.common.plan import demand
from agent.managers.model.cpus import NumaNode
from agent.managers.model.memory_blocks import MemoryState, MemoryTable, NumaState
from agent.managers.plan.memory_assignments import give
from nodelib.errors import Invalid
from nodelib.quantity import format_bytes


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """`system`: bytes kept back, by node and kind."""

    nodes: tuple[NumaNode, ...]
    system: Mapping[int, Mapping[str, int]]


def memory_policy(
    nodes: Iterable[NumaNode], told: Iterable[tuple[int, Mapping[str, int]]], reservation: Mapping[str, Decimal]
) -> MemoryPolicy:
    """`told`: reservedMemory; `reservation`: what the node keeps back in all. Raises Invalid: the two must agree."""
    known = tuple(nodes)
    system: dict[int, dict[str, int]] = {node.id: {} for node in known}
    total: dict[str, int] = {}
    for number, limits in told:
        if number not in system:
            text = f"references a NUMA node {number} that does not exist on this machine"
            raise Invalid(f"the reserved memory configuration {text}")
        for kind, size in limits.items():
            system[number][kind] = size
            total[kind] = total.get(kind, 0) + size
    kept = {kind: int(amount) for kind, amount in reservation.items() if is_memory(kind)}
    for kind in sorted(total.keys() | kept.keys()):
        if total.get(kind, 0) != kept.get(kind, 0):
            amounts = [format_bytes(found.get(kind, 0)) for found in (total, kept)]
            raise Invalid(
                f'the total amount "{amounts[0]}" of type "{kind}" is not equal to the value "{amounts[1]}" determined '
                "by Node Allocatable feature",
                action="Make the sum of reservedMemory what kubeReserved, systemReserved and evictionHard come to.",
            )
    if not total.get(demand.MEMORY):
        raise Invalid("you should specify the system reserved memory", action="Set reservedMemory for a NUMA node.")
    return MemoryPolicy(known, system)


def first_state(policy: MemoryPolicy) -> MemoryState:
    """Nothing is given."""
    return MemoryState({node.id: _fresh(node, policy.system.get(node.id, {})) for node in policy.nodes})


def checked(policy: MemoryPolicy, state: MemoryState) -> MemoryState:
    """A state as it was kept, or the first one. Raises Invalid when it cannot be worked with."""
    expected = first_state(policy)
    if not state.nodes:
        if state.held:
            raise Invalid("machine state can not be empty when it has memory assignments")
        return expected
    nodes = dict(expected.nodes)
    for (uid, container), blocks in sorted(state.held.items()):
        for block in blocks:
            if any(node not in nodes for node in block.nodes):
                text = f"(pod: {uid}, container: {container}) the memory assignment uses the NUMA that does not exist"
                raise Invalid(text)
            if any(block.kind not in nodes[node].tables for node in block.nodes):
                text = "the memory assignment uses memory resource that does not exist"
                raise Invalid(f"(pod: {uid}, container: {container}) {text}")
            give(nodes, block.nodes, block.kind, block.size)
    if not _alike(state.nodes, nodes):
        raise Invalid("the expected machine state is different from the real one")
    return state


def is_memory(kind: str) -> bool:
    return kind == demand.MEMORY or kind.startswith(demand.HUGEPAGES_PREFIX)


def _fresh(node: NumaNode, system: Mapping[str, int]) -> NumaState:
    tables = {}
    for size, total in node.hugepages.items():
        kind = f"{demand.HUGEPAGES_PREFIX}{format_bytes(size)}"
        tables[kind] = _table(total, system.get(kind, 0), 0)
    tables[demand.MEMORY] = _table(node.memory, system.get(demand.MEMORY, 0), sum(node.hugepages.values()))
    return NumaState(0, tables, (node.id,))


def _table(total: int, system: int, elsewhere: int) -> MemoryTable:
    left = max(0, total - system - elsewhere)
    return MemoryTable(total, system, left, 0, left)


def _alike(one: Mapping[int, NumaState], other: Mapping[int, NumaState]) -> bool:
    """The same machine with as much given. Which node of a group gave it depends on the order."""
    if one.keys() != other.keys():
        return False
    for number, node in one.items():
        also = other[number]
        if (node.assignments, set(node.cells)) != (also.assignments, set(also.cells)):
            return False
        if node.tables.keys() != also.tables.keys():
            return False
        for kind, table in node.tables.items():
            fixed = [(each.total, each.system, each.allocatable) for each in (table, also.tables[kind])]
            if fixed[0] != fixed[1] or _given(one, node, kind) != _given(other, also, kind):
                return False
    return True


def _given(nodes: Mapping[int, NumaState], node: NumaState, kind: str) -> tuple[int, int]:
    tables = [table for cell in node.cells if cell in nodes and (table := nodes[cell].tables.get(kind)) is not None]
    return sum(table.reserved for table in tables), sum(table.free for table in tables)
