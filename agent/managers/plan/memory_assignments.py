"""What NUMA nodes have given: one block booked, or taken back."""

from __future__ import annotations

from dataclasses import replace

from agent.managers.model.memory_blocks import Block, NumaState


def give(nodes: dict[int, NumaState], on: tuple[int, ...], kind: str, size: int) -> None:
    """`size` bytes from these nodes, each as much as it has."""
    for number in on:
        node = nodes[number]
        table = node.tables.get(kind)
        part = min(size, table.free) if table is not None else 0
        size -= part
        tables = node.tables
        if table is not None and part:
            tables = {**tables, kind: replace(table, reserved=table.reserved + part, free=table.free - part)}
        nodes[number] = NumaState(node.assignments + 1, tables, on)


def take_back(nodes: dict[int, NumaState], block: Block) -> None:
    """The same from who had it; a node that holds nothing more is on its own again."""
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
