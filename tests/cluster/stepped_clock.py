"""An agent whose wall clock a test steps: libfaketime reads the offset from a file that the test writes.

Only the agent's own view changes; the machine's clock belongs to everyone. Monotonic clocks stay as they are, as with
a real step (https://github.com/wolfcw/libfaketime).
"""

from __future__ import annotations

import contextlib
import glob
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from controlplane.supervisor.edge import units
from tests.cluster.faulty_runtime import agent_changed
from tests.cluster.world import World

_OFFSET_FILE = "/run/nodewright-test-clock"  # as the node sees it


def library() -> str:
    """Where libfaketime is, "" if it is not installed."""
    return next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), "")


@contextlib.asynccontextmanager
async def stepped_clock(world: World, node: str) -> AsyncIterator[Callable[[float], None]]:
    """During the block the node's agent has a clock of its own; the yielded function sets how many seconds it is off
    from the machine's."""
    supervisor = units.supervisor_pid(world.cluster.unit_dir(node))  # in the node's mounts, and it outlives the agent
    file = Path(f"/proc/{supervisor}/root{_OFFSET_FILE}")

    def with_clock(agent: dict[str, Any]) -> None:
        agent["env"] = {**agent["env"], **_environment()}

    def step(seconds: float) -> None:
        file.write_text(f"{seconds:+.0f}")

    step(0)
    try:
        async with agent_changed(world, node, with_clock):
            yield step
            step(0)
    finally:
        file.unlink()


def _environment() -> dict[str, str]:
    return {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": _OFFSET_FILE,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
