"""What this kernel can limit: sizes of huge pages, swap."""

from __future__ import annotations

import os

from agent.resources.edge.cgroups import CgroupTree


def hugepage_sizes() -> tuple[int, ...]:
    """Huge page sizes of this kernel, in bytes."""
    try:
        names = os.listdir("/sys/kernel/mm/hugepages")
    except FileNotFoundError:
        return ()
    sizes = [name.removeprefix("hugepages-").removesuffix("kB") for name in names]
    return tuple(sorted(int(size) * 1024 for size in sizes if size.isdigit()))


def swap_limits(tree: CgroupTree) -> bool:
    """Whether the memory controller can limit swap (swap accounting is on)."""
    if tree.version == 1:
        return "memory" in tree.controllers and os.path.exists(
            f"{tree.folder('', 'memory')}/memory.memsw.limit_in_bytes"
        )
    # The root of v2 has no memory.swap.max; every other cgroup has it when swap accounting is on.
    top = tree.folder("", "")
    with os.scandir(top) as entries:
        return any(os.path.exists(f"{entry.path}/memory.swap.max") for entry in entries if entry.is_dir())
