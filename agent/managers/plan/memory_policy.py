"""The static memory policy of a machine, and its machine state: first and restored ones, blocks reserved and freed.

Follows pkg/kubelet/cm/memorymanager/policy_static.go, with its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from agent.common.plan import demand
from agent.managers.model.cpus import NumaNode
from agent.managers.model.memory_blocks import Block, MemoryState, MemoryTable, NumaState
from nodelib.errors import Invalid
from nodelib.quantity import format_bytes


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """`system`: bytes reserved for the system, by NUMA node and kind."""

    nodes: tuple[NumaNode, ...]
    system: Mapping[int, Mapping[str, int]]


def memory_policy(
    nodes: Iterable[NumaNode], reserved: Iterable[tuple[int, Mapping[str, int]]], reservation: Mapping[str, Decimal]
) -> MemoryPolicy:
    """`reserved`: reservedMemory; `reservation`: the node's whole reservation. Raises Invalid when the two differ."""
    known = tuple(nodes)
    system: dict[int, dict[str, int]] = {node.id: {} for node in known}
    total: dict[str, int] = {}
    for number, limits in reserved:
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
    """The machine state before anything is assigned."""
    return MemoryState({node.id: _fresh(node, policy.system.get(node.id, {})) for node in policy.nodes})


def checked(policy: MemoryPolicy, state: MemoryState) -> MemoryState:
    """The restored state if it is valid, or the first state if it is empty. Raises Invalid. Upstream: validateState."""
    expected = first_state(policy)
    if not state.nodes:
        if state.assignments:
            raise Invalid("machine state can not be empty when it has memory assignments")
        return expected
    nodes = dict(expected.nodes)
    for (uid, container), blocks in sorted(state.assignments.items()):
        for block in blocks:
            if any(node not in nodes for node in block.nodes):
                text = f"(pod: {uid}, container: {container}) the memory assignment uses the NUMA that does not exist"
                raise Invalid(text)
            if any(block.kind not in nodes[node].tables for node in block.nodes):
                text = "the memory assignment uses memory resource that does not exist"
                raise Invalid(f"(pod: {uid}, container: {container}) {text}")
            reserve(nodes, block.nodes, block.kind, block.size)
    if not _alike(state.nodes, nodes):
        raise Invalid("the expected machine state is different from the real one")
    return state


def reserve(nodes: dict[int, NumaState], on: tuple[int, ...], kind: str, size: int) -> None:
    """Reserve `size` bytes in `nodes`, from each node of `on` as much as it has."""
    for number in on:
        node = nodes[number]
        table = node.tables.get(kind)
        part = min(size, table.free) if table is not None else 0
        size -= part
        tables = node.tables
        if table is not None and part:
            tables = {**tables, kind: replace(table, reserved=table.reserved + part, free=table.free - part)}
        nodes[number] = NumaState(node.assignments + 1, tables, on)


def free_block(nodes: dict[int, NumaState], block: Block) -> None:
    """Free a reserved block in `nodes`. A node without any block leaves its group."""
    size = block.size
    for number in block.nodes:
        node = nodes[number]
        table = node.tables.get(block.kind)
        part = min(size, table.reserved) if table is not None else 0
        size -= part
        tables = node.tables
        if table is not None and part:
            tables = {**tables, block.kind: replace(table, reserved=table.reserved - part, free=table.free + part)}
        left = node.assignments - 1
        nodes[number] = NumaState(left, tables, node.cells if left else (number,))


def is_memory(kind: str) -> bool:
    """memory or hugepages-*."""
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
    """The same machine with as much assigned. Which node of a group serves a block depends on the order."""
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
