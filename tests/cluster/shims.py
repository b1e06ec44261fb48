"""The shims of a node: processes of containerd, one for each sandbox, which live as long as it does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.world import World
from tests.waiting import until


async def strays(world: World, node: str) -> list[str]:
    """Sandboxes of shims that the runtime does not know, and of those beyond the first for one sandbox."""
    found = shims(world, node)  # before the sandboxes: one that is being made has a shim first
    listed = {one.id for one in await world.sandboxes(node)}
    return [one for one in found if one not in listed or found.count(one) > 1]


async def assert_no_stray_shim(world: World, node: str, before: Sequence[str], seconds: float = 60) -> None:
    """Until each shim of the node has its sandbox, and no sandbox has two, but for those that were there `before`.

    A containerd that other tests killed while it made a sandbox may have left one (docs/robustness.md).
    """
    stray = list[str]()

    async def none() -> bool:
        stray[:] = [one for one in await strays(world, node) if one not in before]
        return not stray

    try:
        await until(none, seconds)
    except AssertionError:
        raise AssertionError(f"shims without a sandbox on {node}: {stray}") from None


def shims(world: World, node: str) -> list[str]:
    """The id of the sandbox of each shim that runs in the node's cgroup."""
    return [
        box for pid in os.listdir("/proc") if pid.isdigit() and (box := _box(pid, f"{world.cluster.cgroup}/{node}"))
    ]


def _box(pid: str, cgroup: str) -> str:
    try:
        argv = Path("/proc", pid, "cmdline").read_text().split("\0")
        if "containerd-shim" not in argv[0] or f"{cgroup.rstrip('/')}/" not in Path("/proc", pid, "cgroup").read_text():
            return ""
        return argv[argv.index("-id") + 1]
    except (OSError, ValueError, IndexError):
        return ""  # it has ended
